"""Levels 0 and 1 of pair-scan. Level 1 tests single pairs, or tiles of pairs where nearly all pairs remain."""

import numpy as np

from gpupc_impl.backends import KernelSource
from gpupc_impl.engine.bit_graph import CONSTANTS
from gpupc_impl.engine.graph import COUNTER_SHAPE, TALLY_CONSTANTS
from gpupc_impl.gaussian import pair_block
from gpupc_impl.gaussian.scan_state import SEARCH, ScanState
from gpupc_impl.integers import ceil_div

PROBED = 4096
"""The number of pairs in the sample whose scans show whether scans are long."""

MOST_BLOCKS = 1 << 20
"""The upper bound on the thread blocks of a launch, which includes blocks that have no tests."""

_CONSTANTS = {**CONSTANTS, **TALLY_CONSTANTS}
KERNELS = {
    name: KernelSource("gaussian/kernels/pair_scan.cu", name, (SEARCH,), _CONSTANTS)
    for name in (
        *("pair_scan_zero", "pair_scan_one<false>", "pair_scan_one<true>"),
        *("list_removed_one", "probe_pairs", "keep_unseparated"),
    )
}


def run_level_zero(state: ScanState) -> None:
    """Queue the tests of level 0, which make graph 0 and leave graph 1 without edges."""
    critical = np.float64(state.problem.critical_r_squared(0))
    state.graph = 0
    state.graphs.launch(KERNELS["pair_scan_zero"], state.search, critical, np.int32(0), np.int32(1))


def run_level_one(state: ScanState, start: int, left: int) -> None:
    """Queue the tests of level 1, which write the remaining edges into graph `left`; before, `left` has only the
    required edges."""
    if _in_tiles(state, start):
        _run_in_tiles(state, start, left)
    else:
        scan_pairs(state, start, left)
    _ = state.critical_later  # The host computes and caches these values while the device is busy.


def scan_pairs(state: ScanState, start: int, left: int) -> None:
    splits = state.params["splits"] or max(1, min(ceil_div(state.p, 128), MOST_BLOCKS // state.p, 8))
    kernel = state.backend.kernel(*KERNELS[f"pair_scan_one<{'true' if state.pmax else 'false'}>"])
    kernel((state.p, splits), (state.threads,), [state.search, _critical(state), np.int32(start), np.int32(left)])


def list_removed(state: ScanState, before: int, after: int, pairs: np.ndarray, sets: np.ndarray) -> None:
    """Queue a kernel that lists the pairs that level 1 removed, and their separating sets."""
    state.graphs.launch(KERNELS["list_removed_one"], state.search, np.int32(before), np.int32(after), pairs, sets)


def _in_tiles(state: ScanState, graph: int) -> bool:
    """Return whether tiles are requested, or the scans of a sample of pairs are long."""
    requested, backend, p = state.params["tiles"], state.backend, state.p
    if state.pmax or state.problem.fixed is not None:  # Tiles support neither p-values nor fixed edges.
        return False
    if requested != "auto":
        return bool(requested == "always")
    share = state.graphs.edges / max(1, p * (p - 1) // 2)
    if backend.name not in pair_block.TILED or p < pair_block.TILED_FROM or share * pair_block.GAIN < 1:
        return False
    counts = backend.full(2, 0, np.uint64)
    state.graphs.launch(
        KERNELS["probe_pairs"], state.search, _critical(state), np.int32(graph), np.int32(PROBED), counts
    )
    edges, tests = backend.download(counts).tolist()
    return bool(edges > 0 and share * tests * pair_block.GAIN >= p * edges)


def _run_in_tiles(state: ScanState, start: int, left: int) -> None:
    backend, p, problem = state.backend, state.p, state.problem
    members, counters = state.fields["members"], backend.full(COUNTER_SHAPE, 0, np.uint64)
    backend.fill(members, -1)  # NO_MEMBER
    block = pair_block.whole_matrix(
        state.fields["C"],
        state.graphs.bits(start),
        keys=members.view(np.uint32),
        min_r_squared=None,
        counters=counters,
        critical_r_squared=problem.critical_r_squared(1),
        residual_tolerance=problem.residual_tolerance,
        first_come=False,
    )
    kernel, grid, threads = pair_block.tile_launch(p, p, problem.residual_tolerance)
    backend.kernel(*kernel)(grid, threads, [block])
    grid = ceil_div(p, 32), max(1, min(state.graphs.words // 64, 16))
    arguments = [state.search, np.int32(start), np.int32(left), counters]
    backend.kernel(*KERNELS["keep_unseparated"])(grid, (state.threads,), arguments)


def _critical(state: ScanState) -> np.float64:
    return np.float64(state.problem.critical_r_squared(1))
