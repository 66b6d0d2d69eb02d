"""The CMIknn test and search on a device: what both methods share.

`Engine` makes permutations and tests of a problem on a backend. `run_level` of a method decides which tests to make, in
which batches; the level loop is that of every family (core/pc_stable.py).
"""

from __future__ import annotations

import abc
import dataclasses
import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from gpupc_impl.backends import Backend, DeviceMemoryError, Filled, Kernel, KernelSource, Pointer, Struct
from gpupc_impl.backends.launch import MAX_GRID_Y
from gpupc_impl.core.checkpoint import Checkpoint, SearchState
from gpupc_impl.core.fixed import write
from gpupc_impl.core.mapped import pieces
from gpupc_impl.core.pc_stable import LevelOutcome, LevelSearch
from gpupc_impl.core.registry import Parameter, Run
from gpupc_impl.core.result import NO_PAIRS
from gpupc_impl.integers import ceil_div, round_up
from gpupc_impl.nonlinear.problem import NonlinearProblem

logger = logging.getLogger("gpupc_impl.nonlinear")

PERMUTATION_SOURCE = "nonlinear/kernels/permutation.cu"
COUNTING_SOURCE = "nonlinear/kernels/estimate.cu"
BUCKETS_SOURCE = "nonlinear/kernels/buckets.cu"
REGISTERS_SOURCE = "nonlinear/kernels/registers.cu"
INSERTION_SOURCE = "nonlinear/kernels/insertion.cu"
STOPPING_SOURCE = "nonlinear/kernels/stopping.cu"

TYPES = {"short": (np.int16, np.int16), "float": (np.float32, np.int32), "double": (np.float64, np.int64)}
"""Types of a value in kernels (lanes.cuh), with NumPy's for it and for the keys that order its distances."""

SETS = {
    kind: Struct(
        f"Sets<{kind}>",
        values=Pointer(value),
        first=Pointer(np.int32),
        order=Pointer(np.int32),
        n=np.int32,
        level=np.int32,
    )
    for kind, (value, _) in TYPES.items()
}
TESTS = Struct(
    "Tests",
    first=Pointer(np.int32),
    count=np.int32,
    lanes=np.int32,
    row=np.int32,
    k=np.int32,
    psi=Pointer(np.int64),
    partials=Pointer(np.uint64),
    open=Pointer(np.uint8),
)
SHUFFLES = Struct("Shuffles", knn=Pointer(np.int32), k=np.int32, seed=np.uint64)
COUNTING = {
    kind: Struct(
        f"Counting<{kind}>",
        columns=Pointer(value),
        sorted=Pointer(value),
        ranks=np.bool_,
        stride=np.int32,
        wanted=np.int32,
        widest=key,
        capacity=np.int32,
        scratch=Pointer(np.uint8),
        scratch_bytes=np.int64,
    )
    for kind, (value, key) in TYPES.items()
}
LISTS = {
    kind: Struct(
        f"Lists<{kind}>",
        entries=Pointer(np.uint8),
        headers=Pointer(np.uint8),
        arranged=Pointer(value),
        first=np.int32,
        samples=np.int32,
        near=np.int32,
        padded=np.int32,
        wanted=np.int32,
        fine_low=key,
        fine_shift=np.int32,
        farthest=key,
        room=np.int32,
        remembered=np.int32,
        **dict.fromkeys(("far", "counters"), Pointer(np.uint32)),
        shares=np.int32,
        lanes=np.int32,
    )
    for kind, (value, key) in TYPES.items()
}
COLUMNS = {
    kind: Struct(
        f"Columns<{kind}>",
        values=Pointer(value),
        rows=Pointer(value),
        sorted=Pointer(value),
        ranks=np.bool_,
        stride=np.int32,
        width=np.int32,
        of_group=np.int32,
        of_test=np.int32,
        row=np.int32,
    )
    for kind, (value, _) in TYPES.items()
}
"""Structs of tests.cuh, permutation.cu, estimate.cu and buckets.cu; by the type of a value where they depend on it."""

LISTING = ("registers", "buckets")
"""What `selection` may be where neighbours are listed."""

FEW_NEAREST = 16
"""Samples of a list up to which permutation.cu has its order in one number."""

SEVERAL = 3
"""Blocks that permute which keep a multiprocessor busy; where its shared memory has room for fewer, they are large."""

IN_REGISTERS = (8, 32)
"""Nearest distances that insertion.cu keeps in registers; more are kept in memory."""

BINS, FINE = 32, 256  # buckets.cu: buckets of a list, and those that tell how wide they are
ENTRY_BYTES = {"short": 4, "float": 8, "double": 16}  # of a list in buckets.cu ...
ENTRIES = 8  # ... which is padded to a multiple of this
HEADER_BYTES = 280  # of the lists of a sample
HOST_SHARES = 3  # that work in buckets is dealt in where there are no multiprocessors
LIST_ARRAYS = 5  # that lists are kept in
ARRANGING = 1024  # samples whose values a block puts in order
CANDIDATE_BYTES = {"short": 8, "float": 12, "double": 24}  # of a sample that may be listed
DISTANCES_BYTES = {"short": 4, "float": 8, "double": 16}  # of a sample in both spaces
CELL_BYTES = {"short": 2, "float": 2, "double": 4}  # of what buckets are counted in
MOST_ORDERED = 2**16  # samples whose numbers fit in 2 bytes
MOST_NARROW = 2**16 - 8  # samples up to which a count, with the entries that a list is padded with, fits in 2 bytes
ROUND_GROWTH = 4  # times as many lanes as before there are after each round of early stopping
LEAST_SAMPLES = 4  # of a warp in registers.cu, where there are few tests
LEAST_LISTED = 64  # samples whose lists there is room for at the least
FINE_BINADES = 16  # binades below the largest distance that the FINE buckets tell apart
LANES = 32  # the side-by-side layout is padded to a multiple of this
REGISTERS_LANES = 8  # registers.cu: lanes of a warp
REGISTERS_ROWS = (8, 12, 16)  # ... which keeps distances of so many times 32 neighbours
REGISTERS_THREADS = 128  # ... of a block, at most
REGISTERS_END = 2**11  # ... which has whole numbers up to this: values are below, and so are counts of other samples
REGISTERS_BYTES = 24  # ... of a sample's values in these lanes and a term
VECTOR_BYTES = 64  # lanes.cuh: what a thread of the host backend works on at a time
ALLOCATION = 512  # CuPy's pool hands out multiples of this many bytes
STATIC_SHARED = 8448  # of the kernels, which leaves that much less for dynamic shared memory

PARAMS = {
    "selection": Parameter(
        "auto",
        "how the k_CMI-th distance is found: among the nearest neighbours by a warp that has their distances in "
        "registers (in buckets where these do not serve the values), in buckets of lists of them, by bisection and "
        "counting, by sorted insertion as in the paper, or by what is fastest on the backend for this k_CMI",
        choices=("auto", "registers", "buckets", "counting", "insertion"),
    ),
    "beta": Parameter(0, "threads a block that permutes (beta); 0: what suits the backend", minimum=0, maximum=1024),
    "gamma": Parameter(0, "threads a block that estimates (gamma); 0: what suits the backend", minimum=0, maximum=512),
}
"""Parameters of every test of the family."""

SEARCH_PARAMS = {
    **PARAMS,
    "stopping": Parameter(
        "never",
        "early: a test ends when no further permutation can change whether its set separates (not by insertion, nor "
        "where p-values are asked for)",
        choices=("never", "early"),
    ),
    "checkpoint": Parameter("", "file from which a killed search goes on; none by default"),
}
"""Parameters of every search."""


KERNELS = {
    "arrange_members": (PERMUTATION_SOURCE, [SETS]),
    "nearest": (PERMUTATION_SOURCE, [SETS]),
    "assign": (PERMUTATION_SOURCE, [SETS, SHUFFLES]),
    "assign_racing": (PERMUTATION_SOURCE, [SETS, SHUFFLES]),
    "permute_freely": (PERMUTATION_SOURCE, [SETS]),
    "lay_side_by_side": (PERMUTATION_SOURCE, [SETS]),
    "estimate": (COUNTING_SOURCE, [SETS, TESTS, COUNTING]),
    "arrange": (BUCKETS_SOURCE, [SETS, TESTS]),
    "list_neighbours": (BUCKETS_SOURCE, [SETS, TESTS, LISTS]),
    "estimate_by_buckets": (BUCKETS_SOURCE, [SETS, TESTS, LISTS, COLUMNS]),
    "estimate_far": (BUCKETS_SOURCE, [SETS, TESTS, LISTS, COLUMNS]),
    "estimate_by_insertion": (INSERTION_SOURCE, [SETS, TESTS]),
}
"""Source and structs of each kernel that depends on the type of values."""

CLOSE_TESTS = KernelSource(STOPPING_SOURCE, "close_tests", (TESTS,))


def all_kernels(max_level: int) -> list[KernelSource]:
    """Every kernel of this family; they serve all levels."""
    found = [CLOSE_TESTS]
    for kind in TYPES:
        own = [name for name, (source, _) in KERNELS.items() if source == PERMUTATION_SOURCE and name != "assign"]
        found += [kernel_of(name, kind) for name in own]
        found += [kernel_of("assign", kind, few) for few in ("true", "false")]
        found.append(kernel_of("arrange", kind))
        found += [kernel_of(name, kind, *others) for name, *others in by_distances(kind)]
        if kind != "short":
            found += [kernel_of("estimate_by_insertion", kind, str(kept)) for kept in (*IN_REGISTERS, 0)]
    return found + [registers_kernel(level, rows) for level in (0, 1) for rows in REGISTERS_ROWS]


def by_distances(kind: str) -> list[tuple[str, ...]]:
    """The kernels that a rule for distances may be handed to, with their template arguments between type and rule."""
    flags = ("true", "false")
    found: list[tuple[str, ...]] = [
        (name, empty) for name in ("estimate", "list_neighbours", "estimate_far") for empty in flags
    ]
    widths = flags if kind == "float" else ("false",)
    return found + [("estimate_by_buckets", empty, wide) for empty in flags for wide in widths]


def kernel_of(name: str, kind: str, *arguments: str) -> KernelSource:
    """A kernel for values of a type, with its further template arguments."""
    source, structs = KERNELS[name]
    own = tuple(struct if isinstance(struct, Struct) else struct[kind] for struct in structs)
    return KernelSource(source, f"{name}<{', '.join((kind, *arguments))}>", own)


def registers_kernel(level: int, rows: int) -> KernelSource:
    """The kernel that estimates in registers, with some of `REGISTERS_ROWS`."""
    structs = SETS["short"], TESTS, LISTS["short"], COLUMNS["short"]
    return KernelSource(REGISTERS_SOURCE, f"estimate_by_registers<{'false' if level else 'true'}, {rows}>", structs)


@dataclasses.dataclass(frozen=True)
class Tuning:
    """How work is spread on a backend; nothing in it changes an answer.

    Attributes:
        nearest, assign, estimate, lists, buckets, far, registers, insert, transpose: threads a block of the kernels.
        assign_alone: threads of a block of `assign` where few of these blocks fit beside each other.
        blocks: blocks that keep the device busy, but for those that work in buckets or in registers.
        sharing: blocks that keep it busy in registers, each with the values of all samples.
        samples: tests times samples that keep the device busy in one launch.
        buffer_bytes: shared memory that distances may be buffered in.
        list_bytes: memory that lists of neighbours take at a time, at most.
        room_bytes: shared memory for the samples that may be listed, while lists are made, at most.
        remembered_bytes: shared memory for distances meanwhile, at most.
        selection: what ``selection=auto`` is ...
        registers_from: ... but for such k_CMI on, from which it is ``registers`` where these serve the values.
    """

    nearest: int
    assign: int
    assign_alone: int
    estimate: int
    lists: int
    buckets: int
    far: int
    registers: int
    insert: int
    transpose: int
    blocks: int
    sharing: int
    samples: int
    buffer_bytes: int
    list_bytes: int
    room_bytes: int
    remembered_bytes: int
    selection: str
    registers_from: float


TUNING = {
    "cuda": Tuning(
        nearest=32,
        assign=256,
        assign_alone=1024,
        estimate=128,
        lists=128,
        buckets=256,
        far=128,
        registers=REGISTERS_THREADS,
        insert=128,
        transpose=32,
        blocks=1 << 14,
        sharing=1 << 13,
        samples=1 << 17,
        buffer_bytes=0,
        list_bytes=1 << 31,
        room_bytes=1 << 15,
        remembered_bytes=1 << 14,
        selection="buckets",
        registers_from=40,
    ),
    "host": Tuning(
        nearest=32,
        assign=1,
        assign_alone=1,
        estimate=1,
        lists=1,
        buckets=32,
        far=1,
        registers=32,
        insert=32,
        transpose=1,
        blocks=64,
        sharing=2,
        samples=1 << 10,
        buffer_bytes=128 * 1024,
        list_bytes=1 << 22,
        room_bytes=1 << 12,
        remembered_bytes=1 << 12,
        selection="counting",
        registers_from=math.inf,
    ),
}


class Engine:
    """Permutations and tests of one problem on one backend.

    Args:
        params: values of `PARAMS`.
        racing: resolve permutations by who comes first, as the paper does; p-values then vary from run to run.
    """

    def __init__(self, problem: NonlinearProblem, backend: Backend, params: Mapping[str, object], racing: bool = False):
        self.problem, self.backend, self.racing = problem, backend, racing
        self.n, self.lanes = problem.n_samples, problem.permutations + 1
        self.stride = round_up(self.lanes, LANES)
        beta, gamma = int(params["beta"]), int(params["gamma"])
        tuning = TUNING[backend.name]
        self.selection = params["selection"]
        if self.selection == "auto":
            self.selection = "registers" if problem.k_cmi >= tuning.registers_from else tuning.selection
        self.side_by_side = self.selection != "insertion"
        self.tuning = dataclasses.replace(
            tuning,
            nearest=beta or tuning.nearest,
            assign=beta or tuning.assign,
            assign_alone=beta or tuning.assign_alone,
            estimate=gamma or tuning.estimate,
            buckets=gamma or tuning.buckets,
            registers=min(max(LANES, _whole_warps(gamma)), REGISTERS_THREADS) if gamma else tuning.registers,
            insert=gamma or tuning.insert,
        )
        self.kind, values, spread = self._device_values()
        self.dtype, self.key_dtype = map(np.dtype, TYPES[self.kind])
        self.widest = self.dtype.type(spread).reshape(1).view(self.key_dtype)[0]
        self.values = backend.upload(values)
        self.psi = backend.upload(problem.psi)
        self.shared_limit = max(0, backend.max_shared_bytes - STATIC_SHARED)
        if self.selection == "registers" and not self._in_registers():
            self.selection = "buckets"
        self._wide = self.kind == "float" and self.n > MOST_NARROW
        self._cell_bytes = 4 if self._wide else CELL_BYTES[self.kind]
        warps = self.shared_limit // (self._cell_bytes * BINS * LANES)
        threads = min(self.tuning.buckets, warps * LANES)
        self.tuning = dataclasses.replace(self.tuning, buckets=_whole_warps(threads))
        self.shares = backend.multiprocessors or HOST_SHARES
        if self.selection == "buckets" and not warps:
            self.selection = "counting"
        self._sorted = self._order = None
        self._capacity = (-1, 0)  # level and sets that the buffers are for
        self._buffers: dict[str, object] = {}

    # --- what another family of the same permutations does otherwise (mixed/device.py) --------------------------------

    @property
    def ranks(self) -> bool:
        """Whether each variable's values are 0 to n - 1, or constant."""
        return self.problem.transform == "ranks"

    def _in_registers(self) -> bool:
        """Whether `registers` serves the values: they and counts of samples are exact in 16 bits, and all samples'
        values in some lanes lie in shared memory."""
        exact = self.kind == "short" and max(self.widest + 1, self.n) <= REGISTERS_END
        return exact and REGISTERS_BYTES * (self.n + 1) <= self.shared_limit

    def _device_values(self) -> tuple[str, np.ndarray, float]:
        """The kernels' type for the problem's values, (p, n) values of that type, and the largest distance."""
        kind, values = _device_values(self.problem, self.side_by_side)
        return kind, values, (values.max(axis=1) - values.min(axis=1)).max(initial=0)

    def _kernel(self, name: str, *arguments: str) -> Kernel:
        return self.backend.kernel(*kernel_of(name, self.kind, *arguments))

    # --- memory ------------------------------------------------------------------------------------------------------

    def fitting(self, level: int, wanted: int, tests_per_set: int) -> int:
        """How many sets, up to `wanted`, fit in device memory with their tests; makes room for them.

        Raises:
            DeviceMemoryError: not even one does.
        """
        if self._capacity[0] == level and wanted <= self._capacity[1]:
            return wanted
        self._buffers.clear()
        self._capacity = (-1, 0)
        if level == 0 and self._sorted is None:
            order = np.sort(self.backend.download(self.values), axis=1)
            self._sorted = self.backend.upload(order)
        if level and self._order is None:
            places = np.argsort(self.backend.download(self.values), axis=1, kind="stable")
            self._order = self.backend.upload(places.astype(np.int32))
        free = self.backend.memory_limit - self.backend.memory_used
        sets = wanted
        while sets > 1 and self._needed(level, sets, tests_per_set) > free:
            # Arrays grow with the number of sets, but for their rounding and for the scratch of a launch.
            share = free / self._needed(level, sets, tests_per_set)
            sets = max(1, min(sets - 1, int(sets * share)))
        needed = self._needed(level, sets, tests_per_set)
        if needed > free:
            raise DeviceMemoryError(needed, self.backend.memory_used, self.backend.memory_limit)
        for name, (shape, dtype) in self._arrays(level, sets).items():
            self._buffers[name] = self.backend.empty(shape, dtype)
        self._capacity = (level, sets)
        return sets

    def _arrays(self, level: int, sets: int) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """The buffers that hold permutations of a number of sets."""
        n, perm, k = self.n, self.problem.permutations, self.problem.k_perm
        arrays = {"rows": ((sets, self.lanes, n), self.dtype)}
        if self.side_by_side:
            arrays["columns"] = ((sets, n, self.stride), self.dtype)
        if level == 0:
            if self._sort_bytes() > self.shared_limit:
                arrays["owners"] = ((sets, perm, self._sort_bytes() // 8), np.dtype(np.uint64))
            return arrays
        arrays["members"] = ((sets, level, n), self.dtype)
        arrays["knn"] = ((sets, n, k), np.dtype(np.int32))
        if self._list_bytes() > self.shared_limit:
            arrays["distances"] = ((sets, n, k), self.key_dtype)
        if self.racing:
            arrays["used"] = ((sets, perm, n), np.dtype(np.int32))
        elif self._owner_bytes() > self.shared_limit:
            arrays["owners"] = ((sets, perm, self._owner_bytes() // 8), np.dtype(np.uint64))
        return arrays

    def _needed(self, level: int, sets: int, tests_per_set: int) -> int:
        """Bytes that so many sets and their tests take, at most."""
        tests = sets * tests_per_set
        sizes = [math.prod(shape) * dtype.itemsize for shape, dtype in self._arrays(level, sets).values()]
        sizes += [4 * sets * (level + 1), 13 * tests, 8 * tests * self.lanes, self._scratch_bytes(level, tests)]
        return sum(round_up(size, ALLOCATION) for size in sizes)

    def _sort_bytes(self) -> int:
        """permutation.cu, permute_freely: what a block needs to sort priorities."""
        return 8 * (self.n + (self.n + 1) // 2)

    def _owner_bytes(self) -> int:
        """permutation.cu, assign: what a block needs, the order of its samples included where there is one."""
        return 8 * self.n + (8 * ((self.n + 3) // 4) if self._ordered() else 0)

    def _ordered(self) -> bool:
        """Whether samples ask about in the order of their priorities: not if only that takes them out of shared
        memory."""
        room = self.shared_limit - 8 * self.n
        return self.n <= MOST_ORDERED and not 0 <= room < 8 * ((self.n + 3) // 4)

    def _list_bytes(self) -> int:
        """permutation.cu, nearest: the lists of a block."""
        entries = self.tuning.nearest * self.problem.k_perm
        return round_up(entries * self.key_dtype.itemsize, 8) + 4 * entries

    def _workspace_bytes(self, level: int) -> int:
        """estimate.cu: what a block needs, without the buffers of distances."""
        n, key = self.n, self.key_dtype.itemsize
        listed = n + 1 + (n + 1) % 2
        size = self.stride * (8 + key + 4) + 4 * listed + key * (n + 1 + n + (n if level else 0))
        return round_up(size, VECTOR_BYTES)

    def _estimate_blocks(self, level: int, tests: int) -> int:
        """Blocks that share the samples of a test."""
        blocks = self.tuning.blocks
        if self._workspace_bytes(level) > self.shared_limit:
            blocks //= 16
        return max(1, min(self.n, blocks // max(tests, 1)))

    def _insertion_blocks(self) -> int:
        return self.tuning.blocks // 4

    def _neighbour_bytes(self, level: int) -> int:
        """buckets.cu: the lists of one sample of one test."""
        padded = round_up(self.n - 1, ENTRIES)
        return (2 if level else 1) * padded * ENTRY_BYTES[self.kind]

    def _listed_bytes(self, level: int) -> int:
        """The same, with what is kept beside the lists: their header, the lanes that they end too early for, and the
        sample's values."""
        beside = HEADER_BYTES + 4 * self.lanes + (level + 1) * self.dtype.itemsize
        return self._neighbour_bytes(level) + beside

    def _beside_bytes(self, level: int) -> int:
        """buckets.cu: the values of one test in the order of its lists, and counters."""
        return (level + 1) * self.n * self.dtype.itemsize + 4 * (1 + self.shares) + LIST_ARRAYS * ALLOCATION

    def _work(self, width: int, lanes: int, samples: int) -> tuple[int, int]:
        """Pieces of work that samples of a test are to warps, in a group of `width` lanes and in all lanes."""
        warp = min(self.tuning.buckets, LANES)
        groups = ceil_div(lanes, width)
        of_group, of_last = (ceil_div(samples, warp // lanes) for lanes in (width, lanes - (groups - 1) * width))
        return of_group, (groups - 1) * of_group + of_last

    def _scratch_bytes(self, level: int, tests: int) -> int:
        """Global memory for one launch: lists, or in place of shared memory or registers."""
        if self.selection in LISTING:
            listed = min(LEAST_LISTED, self.n * tests) * self._listed_bytes(level)
            return listed + self._beside_bytes(level)
        if self.selection == "insertion":
            if self.problem.k_cmi <= IN_REGISTERS[-1]:
                return 0
            return self._insertion_blocks() * self.tuning.insert * self.problem.k_cmi * self.key_dtype.itemsize
        size = self._workspace_bytes(level)
        return 0 if size <= self.shared_limit else size * self._estimate_blocks(level, tests) * tests

    # --- permutations and tests --------------------------------------------------------------------------------------

    def partials(self, level: int, sets: np.ndarray, tests: np.ndarray) -> np.ndarray:
        """Tests of one level, with the permutations that they need.

        Args:
            sets: (s, 1 + level) the permuted variable and the members of S ascending; s as `fitting` has it.
            tests: (t, 2) a set's number and V_j.

        Returns:
            (t, 1 + perm) int64: sums of psi(n_xz) + psi(n_yz) - psi(n_z), of the data and of the permutations; of mixed
            data less psi(k~).
        """
        self.permute(level, sets)
        return self.estimate(level, sets, tests)

    def counts(self, level: int, sets: np.ndarray, tests: np.ndarray, early: bool) -> np.ndarray:
        """(t,) how many permutations reach the data's CMI, of tests as `partials` takes them.

        Args:
            early: leave out permutations that cannot change which side of the critical count a test ends on. The counts
                are then those of the permutations made.
        """
        if not early or not self.side_by_side:
            return counts_of(self.partials(level, sets, tests))
        self.permute(level, sets)
        return self._estimate(level, sets, tests, early=True)

    def permute(self, level: int, sets: np.ndarray) -> None:
        """Fill the buffers with the permutations of the sets' variables (Algorithm 3)."""
        backend, problem, tuning, buffers = self.backend, self.problem, self.tuning, self._buffers
        perm, k = problem.permutations, problem.k_perm
        for part in pieces(len(sets), MAX_GRID_Y):
            count = part.stop - part.start
            rows = buffers["rows"][part]
            data = self._sets(level, sets[part])
            if level == 0:
                scratch = buffers["owners"][part] if "owners" in buffers else None
                self._kernel("permute_freely")(
                    (perm, count),
                    (tuning.assign,),
                    [data, np.uint64(problem.seed), scratch, rows],
                    shared_bytes=0 if "owners" in buffers else self._sort_bytes(),
                )
            else:
                knn = buffers["knn"][part]
                shuffles = SHUFFLES(knn=knn, k=k, seed=problem.seed)
                scratch = buffers["distances"][part] if "distances" in buffers else None
                arranged = buffers["members"][part]
                self._kernel("arrange_members")(
                    (ceil_div(self.n, ARRANGING), count), (tuning.lists,), [data, self._order, arranged]
                )
                self._kernel("nearest")(
                    (ceil_div(self.n, tuning.nearest), count),
                    (tuning.nearest,),
                    [data, self._order, arranged, np.int32(k), knn, scratch],
                    shared_bytes=0 if "distances" in buffers else self._list_bytes(),
                )
                if self.racing:
                    buffers["used"] = None
                    buffers["used"] = backend.full((self._capacity[1], perm, self.n), 0, np.int32)
                    self._kernel("assign_racing")(
                        (ceil_div(self.n, tuning.nearest), count),
                        (tuning.nearest,),
                        [data, shuffles, np.int32(perm), buffers["used"], rows],
                    )
                else:
                    scratch = buffers["owners"][part] if "owners" in buffers else None
                    shared_bytes = 0 if "owners" in buffers else self._owner_bytes()
                    several = SEVERAL * shared_bytes <= self.shared_limit
                    self._kernel("assign", "true" if k <= FEW_NEAREST else "false")(
                        (perm, count),
                        (tuning.assign if several else tuning.assign_alone,),
                        [data, shuffles, scratch, np.bool_(self._ordered()), rows],
                        shared_bytes=shared_bytes,
                    )
            if self.side_by_side:
                self._kernel("lay_side_by_side")(
                    (ceil_div(self.n, 32), self.stride // 32, count),
                    (tuning.transpose,),
                    [data, rows, *map(np.int32, (self.lanes, self.stride, self._together())), buffers["columns"][part]],
                )

    def _together(self) -> int:
        """Lanes that lie side by side in columns."""
        return {"registers": REGISTERS_LANES, "buckets": LANES}.get(self.selection, self.stride)

    def estimate(self, level: int, sets: np.ndarray, tests: np.ndarray) -> np.ndarray:
        """The tests' partials from the permutations in the buffers (Algorithm 4); see `partials`."""
        return self._estimate(level, sets, tests, early=False).view(np.int64)

    def _estimate(self, level: int, sets: np.ndarray, tests: np.ndarray, early: bool) -> np.ndarray:
        """Partials, (t, 1 + perm) uint64; or, `early`, counts, (t,) int32, of as many permutations as decide."""
        backend = self.backend
        device_sets = self._sets(level, sets)
        found = []
        for part in pieces(len(tests), MAX_GRID_Y):
            count = part.stop - part.start
            partials = backend.full((count, self.lanes), 0, np.uint64)
            counts = backend.full((count,), 0, np.int32) if early else None
            device_tests = TESTS(
                first=backend.upload(np.ascontiguousarray(tests[part], np.int32)),
                count=count,
                lanes=self.lanes,
                row=self.lanes,
                k=self.problem.k_cmi,
                psi=self.psi,
                partials=partials,
                open=backend.full((count,), 1, np.uint8) if early else None,
            )
            self._estimate_by[self.selection](self, level, device_sets, device_tests, counts)
            found.append(backend.download(partials if counts is None else counts))
        return np.concatenate(found)

    def _stages(self, tests: Filled, counts: Any) -> Iterator[tuple[Filled, int]]:
        """The tests for the lanes of each launch, and the first of these; behind it tests that are decided close.

        The first is for LANES lanes, and each makes it ROUND_GROWTH times as many; without `counts` one is for all.
        """
        if counts is None:
            yield tests, 0
            return
        values, threads = tests.values, self.tuning.lists
        partials = values["partials"].reshape(-1)
        close = self.backend.kernel(*CLOSE_TESTS)
        first, last = 0, min(LANES, self.lanes)
        while first < last:
            yield TESTS(**values | {"lanes": last - first, "partials": partials[first:]}), first
            numbers = np.int32(first), np.int32(last), np.int32(self.problem.critical_count)
            close((ceil_div(values["count"], threads),), (threads,), [tests, *numbers, counts])
            first, last = last, min(ROUND_GROWTH * last, self.lanes)

    def _estimate_by_counting(self, level: int, sets: Filled, tests: Filled, counts: Any) -> None:
        tuning, count = self.tuning, tests.values["count"]
        size, blocks = self._workspace_bytes(level), self._estimate_blocks(level, count)
        scratch, capacity, shared = None, 0, size
        if size > self.shared_limit:
            scratch, shared = self.backend.empty(size * blocks * count, np.uint8), 0
        elif tuning.buffer_bytes:
            room = min(tuning.buffer_bytes, self.shared_limit - size)
            capacity = min(self.n, room // (VECTOR_BYTES * tuning.estimate))
            shared += capacity * VECTOR_BYTES * tuning.estimate
        for staged, first in self._stages(tests, counts):
            counting = COUNTING[self.kind](
                columns=self._columns_from(first),
                sorted=self._sorted,
                ranks=self.ranks,
                stride=self.stride,
                wanted=self._first_guess(level),
                widest=self.widest,
                capacity=capacity,
                scratch=scratch,
                scratch_bytes=size,
            )
            self._kernel("estimate", "false" if level else "true")(
                (blocks, count), (tuning.estimate,), [sets, staged, counting], shared_bytes=shared
            )

    def _estimate_by_lists(self, level: int, sets: Filled, tests: Filled, counts: Any) -> None:
        """Lists of neighbours, and the counts that they serve: of as many samples at a time as lists have room for."""
        launch = self._launch_by_registers if self.selection == "registers" else self._launch_by_buckets
        backend, n, values = self.backend, self.n, tests.values
        count, empty = values["count"], "false" if level else "true"
        each, bytes_of_lists = self._listed_bytes(level), self._neighbour_bytes(level)
        free = backend.memory_limit - backend.memory_used - self._beside_bytes(level)
        listed = max(1, min(self.tuning.list_bytes, free) // each)  # samples of tests, counted over all tests
        listed = min(listed, n * count)
        fitting = max(1, listed // n)
        memory = backend.empty_all(
            entries=(listed * bytes_of_lists, np.uint8),
            headers=(listed * HEADER_BYTES, np.uint8),
            arranged=((fitting, level + 1, n), self.dtype),
            far=(listed * self.lanes, np.uint32),
            counters=(1 + self.shares, np.uint32),
        )
        room, remembered = self._room(level), self._remembered(level)
        for part in pieces(count, ceil_div(count, ceil_div(count, fitting))):  # as many as fit, but equally many
            some = part.stop - part.start
            its = {name: values[name][part] for name in ("first", "partials")}
            if counts is not None:
                its["open"] = values["open"][part]
            device_tests = TESTS(**values | its | {"count": some})
            arguments = [sets, device_tests, memory["arranged"]]
            self._kernel("arrange")((ceil_div(n, ARRANGING), some), (self.tuning.lists,), arguments)
            parts = list(pieces(n, min(n, listed // some)))
            made = None
            for staged, first in self._stages(device_tests, None if counts is None else counts[part]):
                for samples in parts:
                    lists = self._lists(level, memory, samples, room, remembered)
                    if made != samples:  # else by the last stage
                        self._kernel("list_neighbours", empty)(
                            (samples.stop - samples.start, some),
                            (self.tuning.lists,),
                            [sets, staged, lists],
                            shared_bytes=room * CANDIDATE_BYTES[self.kind] + remembered * DISTANCES_BYTES[self.kind],
                        )
                        made = samples
                    backend.fill(memory["counters"], 0)
                    arguments = launch(level, sets, staged, lists, first)
                    self._kernel("estimate_far", empty)((backend.blocks_at_once,), (self.tuning.far,), arguments)

    def _lists(self, level: int, memory: Mapping[str, Any], samples: slice, room: int, remembered: int) -> Filled:
        """The lists of some samples."""
        fine_low, fine_shift = self._fine_buckets()
        return LISTS[self.kind](
            **memory,
            first=samples.start,
            samples=samples.stop - samples.start,
            near=self._near(level),
            padded=round_up(self.n - 1, ENTRIES),
            wanted=self._listed_finely(level),
            fine_low=fine_low,
            fine_shift=fine_shift,
            farthest=self.widest,
            room=room,
            remembered=remembered,
            lanes=self.lanes,
            shares=self.shares,
        )

    def _launch_by_buckets(self, level: int, sets: Filled, tests: Filled, lists: Filled, first: int) -> list[Filled]:
        threads = self.tuning.buckets
        blocks = self.backend.blocks_at_once * max(1, TUNING[self.backend.name].buckets // threads)
        empty, wide = "false" if level else "true", "true" if self._wide else "false"
        width = min(LANES, threads)
        work = self._work(width, tests.values["lanes"], lists.values["samples"])
        arguments = [sets, tests, lists, self._columns(first, width, *work)]
        self._kernel("estimate_by_buckets", empty, wide)(
            (blocks,),
            (threads,),
            arguments,
            shared_bytes=self._cell_bytes * BINS * ceil_div(threads, LANES) * LANES,
        )
        return arguments

    def _launch_by_registers(self, level: int, sets: Filled, tests: Filled, lists: Filled, first: int) -> list[Filled]:
        enough, count = 1.1 * self._first_guess(level) / LANES, tests.values["count"]
        rows = next((rows for rows in REGISTERS_ROWS if rows >= enough), REGISTERS_ROWS[-1])
        threads = self.tuning.registers
        groups = ceil_div(tests.values["lanes"], REGISTERS_LANES)
        most = ceil_div(self.n, threads // LANES * LEAST_SAMPLES)
        blocks = max(1, min(self.tuning.sharing // (groups * count), most))
        arguments = [sets, tests, lists, self._columns(first, REGISTERS_LANES)]
        self.backend.kernel(*registers_kernel(level, rows))(
            (groups * blocks, count), (threads,), arguments, shared_bytes=REGISTERS_BYTES * (self.n + 1)
        )
        return arguments

    def _columns_from(self, lane: int) -> Any:
        """The values side by side, from those of a lane on."""
        apart = 1 if self._together() == self.stride else self.n
        return self._buffers["columns"].reshape(-1)[lane * apart :]

    def _columns(self, first: int, width: int, of_group: int = 0, of_test: int = 0) -> Filled:
        """Values of the lanes from the first on, for blocks or warps that work for some of them."""
        return COLUMNS[self.kind](
            values=self._columns_from(first),
            rows=self._buffers["rows"].reshape(-1)[first * self.n :],
            sorted=self._sorted,
            ranks=self.ranks,
            stride=self.stride,
            width=width,
            of_group=of_group,
            of_test=of_test,
            row=self._together() * self.dtype.itemsize,
        )

    def _fine_buckets(self) -> tuple[int, int]:
        """Key where the FINE buckets begin and logarithm of their width; they reach to the largest distance."""
        low = 0
        if self.kind != "short":
            low = max(0, int(self.widest) - (FINE_BINADES << np.finfo(self.dtype).nmant))
        return low, max(0, ((int(self.widest) - low) // FINE).bit_length())

    def _listed_finely(self, level: int) -> int:
        """Samples that lists reach to, k_CMI or more; a lane where V_i is an outlier needs others, too."""
        guess = self._first_guess(level)
        wanted = (level + 3) * guess // 2 if self.ranks else 10 * guess
        return min(self.n - 1, wanted)

    def _reached(self, level: int, dimensions: int) -> float:
        """Of independent uniform samples, those that lists reach to by some of the dimensions of (V_j, S)."""
        others = self.n - 1
        return others * (self._listed_finely(level) / others) ** (dimensions / (level + 1))

    def _near(self, level: int) -> int:
        """Samples on either side in the order of S[0] that should do to find how far lists reach: a quarter more."""
        return max(self._listed_finely(level), math.ceil(1.25 * self._reached(level, 1) / 2))

    def _room(self, level: int) -> int:
        """Samples that shared memory is asked for while lists are made: half as many more as there are, of independent
        uniform ones, in the space of the longer list."""
        most = min(self.n - 1, math.ceil(1.5 * self._reached(level, level or 1)))
        return min(most, min(self.tuning.room_bytes, self.shared_limit) // CANDIDATE_BYTES[self.kind])

    def _remembered(self, level: int) -> int:
        """Samples whose distances are kept in shared memory while lists are made: those looked at first, or none."""
        most = min(2 * self._near(level) + 1, self.n) if level else self.n
        room = min(self.tuning.remembered_bytes, self.shared_limit - self._room(level) * CANDIDATE_BYTES[self.kind])
        return most if most * DISTANCES_BYTES[self.kind] <= room else 0

    def _first_guess(self, level: int) -> int:
        """About how many samples are as near in (V_j, S) as the k-th nearest in (V_i, V_j, S) in the worst lane.

        Of n independent uniform samples in d dimensions, the ball of k samples holds n (k / n)^((d - 1) / d) in one
        dimension less; three standard deviations are added to k.
        """
        n, k = self.n, self.problem.k_cmi
        share = min(1.0, (k + 3 * math.sqrt(k) + 2) / n)
        return min(n - 1, max(k, math.ceil(n * share ** ((level + 1) / (level + 2)))))

    def _estimate_by_insertion(self, level: int, sets: Filled, tests: Filled, counts: None) -> None:
        k, threads = self.problem.k_cmi, self.tuning.insert
        kept = next((capacity for capacity in IN_REGISTERS if k <= capacity), 0)
        each = 2 * (level + 2) * self.dtype.itemsize  # the thread's samples in shared memory
        threads = max(1, min(threads, self.shared_limit // each))
        items = ceil_div(self.n, threads) * self.lanes * tests.values["count"]
        blocks = min(items, 2**31 - 1) if kept else min(items, self._insertion_blocks())
        scratch = None if kept else self.backend.empty(blocks * threads * k, self.key_dtype)
        self._kernel("estimate_by_insertion", str(kept))(
            (blocks,), (threads,), [sets, tests, self._buffers["rows"], scratch], shared_bytes=threads * each
        )

    _estimate_by: ClassVar = {
        "registers": _estimate_by_lists,
        "buckets": _estimate_by_lists,
        "counting": _estimate_by_counting,
        "insertion": _estimate_by_insertion,
    }

    def _sets(self, level: int, sets: np.ndarray) -> Filled:
        """Sets as kernels take them."""
        first = self.backend.upload(np.ascontiguousarray(sets, np.int32))
        order = self._order if level and self.selection in LISTING else None
        return SETS[self.kind](values=self.values, first=first, order=order, n=self.n, level=level)


def ci_test(
    problem: NonlinearProblem,
    i: int,
    j: int,
    S: Sequence[int],
    backend: Backend,
    *,
    selection: str = "auto",
    beta: int = 0,
    gamma: int = 0,
    racing: bool = False,
    engine_of: type[Engine] = Engine,
) -> tuple[int, float, np.ndarray]:
    """One test of V_i, which is permuted, and V_j given S (Algorithm 2).

    Returns:
        how many permuted CMI values reach the data's (the p-value is that share of them), the data's CMI in nats, and
        the (perm,) permuted ones.

    Raises:
        ValueError: i, j and S are not different variables of the problem.
        DeviceMemoryError: the test does not fit in device memory.
    """
    members = sorted(map(int, S))
    if len({i, j, *members}) != len(members) + 2 or not all(0 <= v < problem.n_variables for v in (i, j, *members)):
        raise ValueError(f"i={i}, j={j}, S={members} must be different variables from 0 to {problem.n_variables - 1}")
    params = {
        name: parameter.parse(name, value)
        for (name, parameter), value in zip(PARAMS.items(), (selection, beta, gamma), strict=True)
    }
    engine = engine_of(problem, backend, params, racing)
    engine.fitting(len(members), 1, 1)
    partials = engine.partials(len(members), np.array([[i, *members]]), np.array([[0, j]]))[0]
    cmi = problem.cmi(partials)
    return int(counts_of(partials)), float(cmi[0]), cmi[1:]


def counts_of(partials: np.ndarray) -> np.ndarray:
    """(...,) how many of the permutations' CMI values reach the data's; a larger CMI has a smaller partial."""
    return np.count_nonzero(partials[..., 1:] <= partials[..., :1], axis=-1)


def _whole_warps(threads: int) -> int:
    """Threads of a block in as many whole warps, or in one that is not."""
    return max(1, threads if threads < LANES else threads // LANES * LANES)


def _device_values(problem: NonlinearProblem, counting: bool) -> tuple[str, np.ndarray]:
    """The kernels' type for the problem's values, and (p, n) values of that type with the same distances.

    Whole numbers that span little have the same distances as short integers.
    """
    values = problem.values
    kind = "double" if problem.precision == "float64" else "float"
    if counting and problem.n_samples < 2**15 and (values == np.rint(values)).all():
        shifted = values - values.min(axis=1, keepdims=True)
        if shifted.max(initial=0) < 2**15 - 1:
            return "short", shifted.astype(np.int16)
    return kind, values


# --- the search ------------------------------------------------------------------------------------------------------


class Search(LevelSearch):
    """One search on one backend: what both methods share of a `LevelSearch` (core/pc_stable.py).

    A pair i < j is tested with sets from adj(i) in lexicographic order, then with sets from adj(j). Its separating set
    is the first of these that separates, so an earlier one may still replace one that a batch found out of turn.
    """

    engine_of: ClassVar[type[Engine]] = Engine

    def __init__(self, problem: NonlinearProblem, run: Run, racing: bool = False):
        self.problem = problem
        self.engine = self.engine_of(problem, run.backend, run.params, racing)
        self.first_come = run.separating_sets == "first-come"
        p = self.p = problem.n_variables
        self.edges = problem.start_graph()
        self._required = NO_PAIRS if problem.fixed is None else problem.fixed.required
        self._pmax = np.full((p, p), np.nan) if run.pmax else None
        self.early = run.params["stopping"] == "early" and not run.pmax
        self._side = np.empty(0)
        self._sets: dict[tuple[int, int], tuple[int, ...]] = {}
        self._tests = 0
        self._outcomes: list[LevelOutcome] = []  # of the levels in the checkpoint
        self._checkpoint = None
        if path := run.params["checkpoint"]:
            rule = f"{run.separating_sets}, racing" if racing else run.separating_sets  # its graph is one of many
            self._checkpoint = Checkpoint(path, problem.fingerprint, rule, run.pmax)
            if (state := self._checkpoint.load()) is not None:
                self.edges, self._outcomes, self._pmax = state.adjacency, state.outcomes, state.pmax
                logger.info("resuming at level %d from %s", len(self._outcomes), path)

    # --- LevelSearch -------------------------------------------------------------------------------------------------

    def run_level(self, level: int) -> LevelOutcome:
        if level < len(self._outcomes):
            return self._outcomes[level]
        started = time.perf_counter()
        outcome = self._run_level(level)
        if self._checkpoint is not None:
            self._outcomes.append(dataclasses.replace(outcome, seconds=time.perf_counter() - started))
            self._checkpoint.save(SearchState(self.edges, self._outcomes, self._pmax))
        return outcome

    def _run_level(self, level: int) -> LevelOutcome:
        self._side = np.full((self.p, self.p), 2, np.int8)  # where a set was found: 0 or 1; 2: none
        self._sets, self._tests = {}, 0
        write(self._side, self._required, -1)  # no set of a required edge can become its separating set
        self._test_all(level)
        write(self._side, self._required, 2)
        i, j = np.nonzero(np.triu(self._side < 2))
        pairs = np.stack([i, j], axis=1).astype(np.int32)
        members = [self._sets[pair] for pair in zip(i.tolist(), j.tolist(), strict=True)] if level else []
        sets = np.array(members, np.int32).reshape(len(pairs), level)
        self.edges[i, j] = self.edges[j, i] = False
        degrees = self.edges.sum(axis=1)
        most = self.problem.most_tested_degree(degrees)
        return LevelOutcome(int(degrees.sum()) // 2, most, self._tests, pairs, sets)

    def adjacency(self) -> np.ndarray:
        if self._checkpoint is not None:  # it has served its end
            self._checkpoint.remove()
        return self.edges

    def pmax(self) -> np.ndarray | None:
        if self._pmax is None:
            return None
        return np.where(np.tri(self.p, dtype=bool), self._pmax.T, self._pmax)

    # --- for the methods ---------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def _test_all(self, level: int) -> None:
        """Make the level's tests."""

    def open(self, i: int, js: np.ndarray | int) -> np.ndarray | bool:
        """Whether a set from adj(i) can still become the separating set of the pair(s) of i and j."""
        lower, upper = np.minimum(i, js), np.maximum(i, js)
        return self._side[lower, upper] > (1 if self.first_come else np.greater(i, js))

    def make(self, level: int, sets: Sequence[Sequence[int]], tests: Sequence[tuple[int, int]]) -> None:
        """Make tests, (a set's number, V_j) each, a variable's sets in lexicographic order; note what separates."""
        numbers, others = np.array(tests).T
        counts = self.engine.counts(level, np.array(sets), np.array(tests), self.early)
        self._tests += len(tests)
        lower, upper = np.sort([np.array(sets)[numbers, 0], others], axis=0)
        if self._pmax is not None:
            kept = self._side[lower, upper] == 2  # a removed pair's is that of the set that separated it
            np.fmax.at(self._pmax, (lower[kept], upper[kept]), self.problem.p_value(counts[kept]))
        found = np.flatnonzero(counts >= self.problem.critical_count)
        if level == 0:
            self._side[lower[found], upper[found]] = 0
            return
        for at in found.tolist():
            number, j = tests[at]
            i, *members = sets[number]
            if self.open(i, j):
                pair = min(i, j), max(i, j)
                self._side[pair] = i > j
                self._sets[pair] = tuple(members)
                if self._pmax is not None:
                    self._pmax[pair] = self.problem.p_value(counts[at])
