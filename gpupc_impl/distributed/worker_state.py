"""The state of a search on a worker: the numbers on its device, and the panels that it keeps."""

from __future__ import annotations

import collections
import socket
import threading
from typing import Any

import numpy as np

from gpupc_impl.backends import BackendUnavailable, DeviceMemoryError, KernelSource, open_backend
from gpupc_impl.core import mapped
from gpupc_impl.core.files import load_array
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.distributed import machine, panel_plan
from gpupc_impl.distributed.correlations import correlate, correlate_squares, mirror
from gpupc_impl.distributed.row_search import RowDevice
from gpupc_impl.distributed.spec import SearchSpec
from gpupc_impl.engine.bit_graph import row_words
from gpupc_impl.integers import ceil_div
from gpupc_impl.out_of_core.panel_scan import DeviceRows, twins_launch

DECIDE = KernelSource("distributed/kernels/blocks.cu", "decide_rows")

ROW_WARPS = 4
"""Warps of a thread block in kernels that give each warp a range of rows."""


class Panel:
    """Rows of the correlation matrix for a range of variables, on the device, and the same rows of the level-0 graph.

    Attributes:
        rows: correlations, the graph, and flags of twins.
        degrees: (rows,) int32 degrees after level 0.
        required: (rows, words) uint32: required edges as rows of bits; None without background knowledge.
    """

    def __init__(self, state: WorkerState, number: int):
        spec, backend = state.spec, state.backend
        variables, p, words = spec.plan.panel(number), spec.plan.p, row_words(spec.plan.p)
        first, count = variables.start, variables.stop - variables.start
        c = state.correlations(variables)
        state.lap("correlate")
        near = backend.empty((count, words), np.uint32)
        self.degrees = backend.empty(count, np.int32)
        self.required, forbidden = (state.fixed_rows(pairs, variables) for pairs in state.fixed)
        numbers = (*map(np.int32, (count, first, p, words)), np.float64(spec.critical[0]))
        state.launch_rows(DECIDE, count, [c, *numbers, self.required, forbidden, near, self.degrees])
        self.rows = DeviceRows(first, c, near, backend.empty(count, np.uint8))
        state.launch(*twins_launch(backend, self.rows, spec.residual_tolerance))
        state.lap("level_0")


def budget(spec: SearchSpec) -> int:
    """Return the bytes that this worker may take on its device; other programs may have taken some since the search was
    planned."""
    if spec.is_limited or spec.backend != "host":
        return spec.plan.budget
    return min(spec.plan.budget, machine.host_device_bytes(machine.free_memory()))


class WorkerState(RowDevice):
    """A worker's state of a search: the numbers on its device, and as many panels as the budget holds.

    Raises:
        InvalidProblem: the worker does not see the client's folder, or the folder does not hold the client's numbers.
        BackendUnavailable: the worker has other code, or cannot run kernels.
        DeviceMemoryError: the worker cannot hold two panels.

    Attributes:
        lock: the lock of the device.
        budget: bytes that the worker may take on its device: `PanelPlan.budget`, or the free bytes if these are fewer.
        capacity: the number of panels that the worker can keep.
        panels_made: the number of computed panels; a panel that was dropped and computed again counts twice.
        panels_held: the largest number of panels that were held at once.
        seconds: the duration of each step since `begin`, without waits for compilers.
        fixed: (k, 2) required pairs and forbidden pairs; None without background knowledge.
    """

    def __init__(self, spec: SearchSpec):
        self.spec, plan = spec, spec.plan
        if spec.code != machine.code_digest():
            raise BackendUnavailable(
                f"a worker on {socket.gethostname()} has another version of gpupc; install one everywhere"
            )
        self.backend = open_backend(spec.backend, budget(spec))
        self.budget = self.backend.memory_limit  # On a GPU this is at most the free bytes.
        self.capacity = panel_plan.held_panels(spec.samples, plan.p, plan.rows, spec.knowledge, self.budget)
        if self.capacity < min(2, plan.panels):
            raise DeviceMemoryError(
                plan.device_bytes,
                0,
                self.budget,
                f"a worker on {socket.gethostname()} has {self.budget:,} bytes of device memory, and a search that has "
                f"begun needs {plan.device_bytes:,}: give it more, or have none with so little",
            )
        self.p, self.samples_held = plan.p, spec.samples
        self.residual_tolerance, self.pivot_tolerance = spec.residual_tolerance, spec.pivot_tolerance
        self.lock = threading.Lock()
        self.panels_made = self.panels_held = 0
        self.seconds: dict[str, float] = collections.defaultdict(float)
        self._panels: collections.OrderedDict[int, Panel] = collections.OrderedDict()
        self._matrix = self._samples = None
        numbers = _read_numbers(spec)
        self.fixed: tuple[np.ndarray | None, ...] = (None, None)
        if spec.knowledge:
            self.fixed = tuple(load_array(path, mapped=True) for path in spec.shards.fixed)
        if spec.is_matrix:
            self._matrix = numbers
        else:
            self._samples = self.backend.upload(numbers)
            self._variables = self.backend.upload(np.arange(plan.p, dtype=np.int32))
            mapped.release(numbers)

    def begin(self) -> None:
        """Start the clock of a task."""
        self.backend.synchronize()  # the driver launches no kernel in a thread before its first call of CUDA's runtime
        self.seconds.clear()
        self._last_lap, self._compiled = self.backend.clock(), self.backend.compile_seconds

    def lap(self, step: str) -> None:
        """Wait for the device, and add the time since the previous call to a step."""
        self.backend.synchronize()
        now = self.backend.clock()
        self.seconds[step] += now - self._last_lap
        self._last_lap = now

    def launch(self, kernel: KernelSource, *launch: Any) -> None:
        self.backend.kernel(*kernel)(*launch)

    def launch_rows(self, kernel: KernelSource, rows: int, arguments: list[Any]) -> None:
        """Launch a kernel that gives each warp a range of rows."""
        warps = ROW_WARPS if self.backend.warp_threads > 1 else 1
        self.launch(kernel, (max(1, ceil_div(rows, warps)),), (warps * self.backend.warp_threads,), arguments)

    # --- correlations ------------------------------------------------------------------------------------------------

    def correlations(self, rows: slice) -> Any:
        """Return (rows, p) correlations on the device; entries that panels in memory contain are copied from these
        panels."""
        if self._matrix is not None:
            c = self.backend.upload(self._matrix[rows])
            mapped.release(self._matrix)
            return c
        p, begin = self.spec.plan.p, 0
        out = self.backend.empty((rows.stop - rows.start, p), np.float64)
        for number in [*sorted(self._panels), None]:
            held = slice(p, p) if number is None else self.spec.plan.panel(number)
            columns = self._variables[begin : held.start]
            correlate(self.backend, self._samples, self._variables[rows], columns, out, begin)
            if number is not None:
                mirror(self.backend, self._panels[number].rows.c, held.start, out, rows.start)
            begin = held.stop
        return out

    def square_correlations(self, variables: np.ndarray, sizes: np.ndarray) -> Any:
        if self._matrix is None:
            return correlate_squares(self.backend, self._samples, variables, sizes)
        groups = np.split(variables, np.cumsum(sizes)[:-1])
        matrices = [self._matrix[np.ix_(members, members)].reshape(-1) for members in groups]
        mapped.release(self._matrix)
        return self.backend.upload(np.concatenate(matrices))

    def fixed_rows(self, pairs: np.ndarray | None, rows: slice) -> Any:
        """Return the rows of the graph of fixed pairs as bits, on the device; None without background knowledge."""
        if pairs is None:
            return None
        bits = np.zeros((rows.stop - rows.start, row_words(self.spec.plan.p)), np.uint32)
        for i, j in (pairs.T, pairs.T[::-1]):
            own = (rows.start <= i) & (i < rows.stop)
            np.bitwise_or.at(bits, (i[own] - rows.start, j[own] // 32), np.uint32(1) << (j[own] % 32).astype(np.uint32))
        return self.backend.upload(bits)

    # --- panels ------------------------------------------------------------------------------------------------------

    def panel(self, number: int, keep: int) -> Panel:
        """Return a panel, which is computed unless it is in memory. If there is no room, the least recently used panel
        other than `keep` is dropped."""
        if number not in self._panels:
            while len(self._panels) >= self.capacity:
                del self._panels[next(other for other in self._panels if other != keep)]
            self._panels[number] = Panel(self, number)
            self.panels_made += 1
            self.panels_held = max(self.panels_held, len(self._panels))
        self._panels.move_to_end(number)
        return self._panels[number]

    def drop_panels(self) -> None:
        self._panels.clear()

    def facts(self) -> dict[str, Any]:
        """Return the facts that the worker reports with each task."""
        return {
            "seconds": dict(self.seconds),
            "compile_seconds": self.backend.compile_seconds - self._compiled,
            "panels_made": self.panels_made,
            "panels_held": self.panels_held,
            "peak_device_bytes": self.backend.memory_peak,
        }


def _read_numbers(spec: SearchSpec) -> np.ndarray:
    """Return the samples or the matrix that the client wrote, as a mapped file."""
    host, path = socket.gethostname(), spec.shards.numbers
    if not spec.shards.holds(spec.key):
        raise InvalidProblem(
            f"a worker on {host} does not see in folder {spec.folder!r} what the client wrote there: name a folder "
            "on a file system that all machines share (folder=...), and have no other search use it meanwhile"
        )
    try:
        numbers: np.ndarray = load_array(path, mapped=True)
    except (OSError, ValueError) as error:
        raise InvalidProblem(f"a worker on {host} cannot read {path}: {error}; name another folder") from error
    if numbers.shape != spec.shape or numbers.dtype != np.float64:
        raise InvalidProblem(
            f"a worker on {host} finds {numbers.dtype} {numbers.shape} in {path}, not float64 {spec.shape}: have no "
            "other search use the folder meanwhile"
        )
    return numbers
