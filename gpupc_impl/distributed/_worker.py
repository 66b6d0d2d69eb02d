"""What a worker does: it makes panels, keeps those that fit, and tests blocks of pairs or groups of rows."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import gc
import socket
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from gpupc_impl.backends import (
    BackendUnavailable,
    DeviceMemoryError,
    Filled,
    KernelSource,
    Pointer,
    Struct,
    backend_class,
    open_backend,
)
from gpupc_impl.core import mapped
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.distributed import _cluster, _plan, _shards
from gpupc_impl.distributed.correlations import correlate, correlate_squares, mirror
from gpupc_impl.engine.bit_graph import row_words
from gpupc_impl.engine.graph import BINOMIALS, COUNTER_SHAPE, NO_KEY, REQUIRED_KEY, binomial_table
from gpupc_impl.gaussian import cupc_s
from gpupc_impl.integers import ceil_div
from gpupc_impl.out_of_core import _gathered, _panels, _split_rows

Result = TypeVar("Result")

BLOCKS_SOURCE = "distributed/kernels/blocks.cu"
BLOCK = Struct(
    "Block",
    near=Pointer(np.uint32),
    required=Pointer(np.uint32),
    members=Pointer(np.uint32),
    edges=Pointer(np.uint32),
    left=Pointer(np.uint32),
    removed=Pointer(np.int32),
    **dict.fromkeys(("row_words", "words", "n_i", "n_j", "first_i", "first_j"), np.int32),
)
DECIDE = KernelSource(BLOCKS_SOURCE, "decide_rows")
KEEP = KernelSource(BLOCKS_SOURCE, "keep_block", (BLOCK,))
LIST = KernelSource(BLOCKS_SOURCE, "list_members", (BLOCK,))
NO_MEMBER = np.uint32(2**32 - 1)  # blocks.cu

ROW_WARPS = 4
"""Warps of a block that take rows each."""

THETA = cupc_s.PARAMETERS["theta"].default
MOST_SENT = 1 << 14
"""Pairs left of a block up to which they go to the client with what a task returns; more are read from its shard."""

LOOKS = 20
"""How often to look whether a backend is gone, an error that Dask has kept may have hold of it for longer; and whether
there is room again."""

MOST_DELTA = 1 << 12
"""Blocks that share out the sets of a row, at most."""


@dataclasses.dataclass(frozen=True)
class Spec:
    """What tasks of one search share: small, since it goes with each of them.

    Attributes:
        key: of this run of the search, so that a worker knows what it keeps.
        code: digest of the package's code.
        folder: of shards and of the numbers.
        shape: of the numbers.
        given: whether the numbers are a correlation matrix, and not samples.
        plan: panels and budget.
        backend: where the worker's kernels run.
        limited: whether the user said what device memory a worker may take.
        critical: critical r^2 of level 0 and of level 1, or None where that is not run.
        knowledge: whether there are fixed pairs.
    """

    key: str
    code: str
    folder: str
    shape: tuple[int, int]
    given: bool
    plan: _plan.Plan
    backend: str
    limited: bool
    critical: tuple[float, float | None]
    residual_tolerance: float
    pivot_tolerance: float
    knowledge: bool

    @property
    def samples(self) -> int:
        """Samples that a worker holds: none of a given matrix."""
        return 0 if self.given else self.shape[0]

    @property
    def shards(self) -> _shards.Folder:
        return _shards.Folder(Path(self.folder))


@dataclasses.dataclass(frozen=True)
class Group:
    """Rows that a task tests at a level from 2 on.

    Attributes:
        name: of the shard.
        rows: (rows,) int64 variables.
        degrees: (rows,) int64 numbers of neighbours.
        neighbours: (slots,) int32: theirs, row after row, ascending in each.
        required: (k,) int64 slots of required edges.
    """

    name: str
    rows: np.ndarray
    degrees: np.ndarray
    neighbours: np.ndarray
    required: np.ndarray

    def part(self, rows: slice) -> Group:
        """Some of the rows, and what belongs to them."""
        first, last = (int(self.degrees[:end].sum()) for end in (rows.start, rows.stop))
        required = self.required[(first <= self.required) & (self.required < last)] - first
        return Group(self.name, self.rows[rows], self.degrees[rows], self.neighbours[first:last], required)


class Panel:
    """Whole rows on the device: correlations, the graph after level 0, and what else tests need of them."""

    def __init__(self, state: State, number: int):
        spec, backend = state.spec, state.backend
        rows, p, words = spec.plan.panel(number), spec.plan.p, row_words(spec.plan.p)
        first, count = rows.start, rows.stop - rows.start
        self.c = state.rows(rows)
        state.lap("correlate")
        self.near = backend.empty((count, words), np.uint32)
        self.degrees = backend.empty(count, np.int32)
        self.required, forbidden = (state.fixed_rows(pairs, rows) for pairs in state.fixed)
        numbers = (*map(np.int32, (count, first, p, words)), np.float64(spec.critical[0]))
        state.launch(DECIDE, count, [self.c, *numbers, self.required, forbidden, self.near, self.degrees])
        has_twin = backend.empty(count, np.uint8)
        tolerance = np.float64(spec.residual_tolerance)
        twins = [self.c, np.int32(count), np.int32(first), np.int32(p), tolerance, has_twin]
        state.launch(_panels.TWINS, count, twins)
        self.rows = _panels.DeviceRows(first, self.c, self.near, has_twin)
        state.lap("level_0")


def _numbers(spec: Spec) -> np.ndarray:
    """The samples or the matrix that the client wrote, mapped."""
    machine, path = socket.gethostname(), spec.shards.numbers
    if not spec.shards.holds(spec.key):
        raise InvalidProblem(
            f"a worker on {machine} does not see in folder {spec.folder!r} what the client wrote there: name a folder "
            "on a file system that all machines share (folder=...), and have no other search use it meanwhile"
        )
    try:
        numbers: np.ndarray = np.load(path, mmap_mode="r")
    except (OSError, ValueError) as error:
        raise InvalidProblem(f"a worker on {machine} cannot read {path}: {error}; name another folder") from error
    if numbers.shape != spec.shape or numbers.dtype != np.float64:
        raise InvalidProblem(
            f"a worker on {machine} finds {numbers.dtype} {numbers.shape} in {path}, not float64 {spec.shape}: have no "
            "other search use the folder meanwhile"
        )
    return numbers


def budget(spec: Spec) -> int:
    """Bytes that this worker may take on its device, which may be less than those that were there at the start."""
    if spec.limited or spec.backend != "host":
        return spec.plan.budget
    return min(spec.plan.budget, _cluster.host_device_bytes(_cluster.free_memory()))


class State:
    """What a worker keeps of a search: the numbers on its device, and panels, as many as its budget holds.

    Raises:
        InvalidProblem: the worker does not see the client's folder, or what is in it is not what the client wrote.
        BackendUnavailable: the worker has other code, or cannot run kernels.
        DeviceMemoryError: it cannot hold two panels.

    Attributes:
        lock: held while the device is used.
        budget: bytes that it takes on its device; `Plan.budget`, or less where it has less.
        held: panels that it keeps.
        made: panels made so far, some more than once.
        most_held: panels that were held at once.
        seconds: of each step since `take_seconds`.
    """

    def __init__(self, spec: Spec):
        self.spec, plan = spec, spec.plan
        if spec.code != _cluster.code():
            raise BackendUnavailable(
                f"a worker on {socket.gethostname()} has another version of gpupc; install one everywhere"
            )
        self.backend = open_backend(spec.backend, budget(spec))
        self.budget = self.backend.memory_limit  # on a GPU no more than is free
        shape = spec.samples, plan.p, plan.rows, spec.knowledge
        self.held = _plan.held_panels(*shape, self.budget)
        if self.held < min(2, plan.panels):
            raise DeviceMemoryError(
                plan.device_bytes,
                0,
                self.budget,
                f"a worker on {socket.gethostname()} has {self.budget:,} bytes of device memory, and a search that has "
                f"begun needs {plan.device_bytes:,}: give it more, or have none with so little",
            )
        self.lock = threading.Lock()
        self.made = self.most_held = 0
        self.seconds: dict[str, float] = collections.defaultdict(float)
        self._panels: collections.OrderedDict[int, Panel] = collections.OrderedDict()
        self._matrix = self._samples = None
        numbers = _numbers(spec)
        self.fixed: tuple[np.ndarray | None, ...] = (None, None)
        if spec.knowledge:
            self.fixed = tuple(np.load(path, mmap_mode="r") for path in spec.shards.fixed)
        if spec.given:
            self._matrix = numbers
        else:
            self._samples = self.backend.upload(numbers)
            self._every = self.backend.upload(np.arange(plan.p, dtype=np.int32))
            mapped.release(numbers)

    def lap(self, step: str) -> None:
        """Wait for the device, and count the time since the last lap to a step."""
        self.backend.synchronize()
        now = time.perf_counter()
        self.seconds[step] += now - self._last
        self._last = now

    def begin(self) -> None:
        """Begin a task, which may be the first of its thread, and its clock."""
        self.backend.synchronize()  # CUDA's driver launches nothing in a thread that has not used the runtime
        self.seconds.clear()
        self._last = time.perf_counter()

    def launch(self, kernel: KernelSource, rows: int, arguments: list[Any]) -> None:
        """A kernel whose warps have rows."""
        warps = ROW_WARPS if self.backend.warp_threads > 1 else 1
        grid = (max(1, ceil_div(rows, warps)),)
        self.backend.kernel(*kernel)(grid, (warps * self.backend.warp_threads,), arguments)

    # --- correlations ------------------------------------------------------------------------------------------------

    def rows(self, rows: slice) -> Any:
        """(rows, p) correlations on the device; what held panels have of them is copied."""
        if self._matrix is not None:
            found = self.backend.upload(self._matrix[rows])
            mapped.release(self._matrix)
            return found
        p, begin = self.spec.plan.p, 0
        out = self.backend.empty((rows.stop - rows.start, p), np.float64)
        for number in [*sorted(self._panels), None]:
            other = slice(p, p) if number is None else self.spec.plan.panel(number)
            columns = self._every[begin : other.start]
            correlate(self.backend, self._samples, self._every[rows], columns, out, begin)
            if number is not None:
                mirror(self.backend, self._panels[number].c, other.start, out, rows.start)
            begin = other.stop
        return out

    def squares(self, variables: np.ndarray, sizes: np.ndarray) -> Any:
        """Correlations among the variables of each group, as matrices one after the other on the device."""
        if self._matrix is None:
            return correlate_squares(self.backend, self._samples, variables, sizes)
        groups = np.split(variables, np.cumsum(sizes)[:-1])
        found = [self._matrix[np.ix_(members, members)].reshape(-1) for members in groups]
        mapped.release(self._matrix)
        return self.backend.upload(np.concatenate(found))

    def fixed_rows(self, pairs: np.ndarray | None, rows: slice) -> Any:
        """Some rows of the graph of fixed pairs, on the device; None without background knowledge."""
        if pairs is None:
            return None
        bits = np.zeros((rows.stop - rows.start, row_words(self.spec.plan.p)), np.uint32)
        for i, j in (pairs.T, pairs.T[::-1]):
            own = (rows.start <= i) & (i < rows.stop)
            np.bitwise_or.at(bits, (i[own] - rows.start, j[own] // 32), np.uint32(1) << (j[own] % 32).astype(np.uint32))
        return self.backend.upload(bits)

    # --- panels ------------------------------------------------------------------------------------------------------

    def panel(self, number: int, keep: int) -> Panel:
        """A panel, made unless it is held; the one used longest ago makes room, but never panel `keep`."""
        if number not in self._panels:
            while len(self._panels) >= self.held:
                del self._panels[next(other for other in self._panels if other != keep)]
            self._panels[number] = Panel(self, number)
            self.made += 1
            self.most_held = max(self.most_held, len(self._panels))
        self._panels.move_to_end(number)
        return self._panels[number]

    def drop_panels(self) -> None:
        self._panels.clear()

    def facts(self) -> dict[str, Any]:
        """What is told of the worker with each task."""
        return {
            "seconds": dict(self.seconds),
            "panels_made": self.made,
            "panels_held": self.most_held,
            "peak_device_bytes": self.backend.memory_peak,
        }

    # --- tasks -------------------------------------------------------------------------------------------------------

    def test_block(self, i: int, j: int) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Levels 0 and 1 of the pairs of panels I and J: what a shard says, and its arrays."""
        spec, backend = self.spec, self.backend
        panel = self.panel(i, keep=i)
        other = self.panel(j, keep=i)
        own, others = panel.rows.struct, other.rows.struct
        n_i, n_j = own.values["count"], others.values["count"]
        counters, members = backend.full(COUNTER_SHAPE, 0, np.uint64), None
        if spec.critical[1] is not None:
            members = backend.full((n_i, n_j), NO_MEMBER, np.uint32)
            self._scan(own, others, members, counters)
        found = self._keep(panel, others.values["first"], n_j, members)
        if i == j:
            found["degrees"] = backend.download(panel.degrees)
        tests, undefined, _ = map(int, backend.download(counters).sum(axis=0)[:3])
        self.lap("level_1")
        return {"tests": tests, "undefined": undefined}, found

    def left(self, i: int, j: int, bits: np.ndarray) -> np.ndarray | None:
        """The pairs that a block's level 1 left, for the client; None where they are too many to be sent."""
        return self.spec.plan.pairs(i, j, bits) if _plan.count_bits(bits) <= MOST_SENT else None

    def _scan(self, own: Filled, others: Filled, members: Any, counters: Any) -> None:
        """Queue level 1."""
        spec, p = self.spec, self.spec.plan.p
        argument = _panels.PANEL(
            i=own,
            j=others,
            p=p,
            words=row_words(p),
            members=members,
            min_r_squared=None,
            counters=counters,
            critical_r_squared=spec.critical[1],
            residual_tolerance=spec.residual_tolerance,
        )
        splits = min(ceil_div(others.values["count"], 32 * _panels.WARPS), _panels.MOST_SPLITS)
        kernel = self.backend.kernel(*_panels.SCANS["false"])
        kernel((own.values["count"], splits), (_panels.WARPS * self.backend.warp_threads,), [argument])

    def _keep(self, panel: Panel, first_j: int, n_j: int, members: Any) -> dict[str, np.ndarray]:
        """The pairs of a block that are edges after level 0 and after level 1, and what separated the others."""
        backend, n_i, words = self.backend, len(panel.degrees), ceil_div(n_j, 32)
        bits = backend.empty_all(edges=((n_i, words), np.uint32), left=((n_i, words), np.uint32))
        removed = backend.empty(n_i, np.int32)
        argument = BLOCK(
            near=panel.near,
            required=panel.required,
            members=members,
            **bits,
            removed=removed,
            row_words=row_words(self.spec.plan.p),
            words=words,
            n_i=n_i,
            n_j=n_j,
            first_i=panel.rows.first,
            first_j=first_j,
        )
        self.launch(KEEP, n_i, [argument])
        ends = np.cumsum(backend.download(removed), dtype=np.int64)
        separated = np.empty(0, np.int32)
        if ends[-1]:
            found = backend.empty(int(ends[-1]), np.int32)
            starts = backend.upload(np.concatenate(([0], ends[:-1])))
            self.launch(LIST, n_i, [argument, starts, found])
            separated = backend.download(found)
        return {**{name: backend.download(array) for name, array in bits.items()}, "members": separated}

    def test_rows(self, level: int, critical: float, group: Group) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """A level from 2 on of some rows: what a shard says, and the best key of each of their slots.

        They are made for the plan's budget: a worker that has less takes some of them at a time.
        """
        sizes, totals, keys = _plan.row_bytes(group.degrees), collections.Counter[str](), []
        limit = _plan.bytes_for_rows(self.spec.samples, self.spec.plan.p, level, int(group.degrees.max()), self.budget)
        for rows in _plan.share_out(np.zeros(len(sizes)), sizes, limit, 1.0, 1):
            said, of_rows = self._test_rows(level, critical, group.part(rows))
            totals.update(said)
            keys.append(of_rows)
        return dict(totals), {"keys": np.concatenate(keys)}

    def _test_rows(self, level: int, critical: float, group: Group) -> tuple[dict[str, int], np.ndarray]:
        spec, backend = self.spec, self.backend
        rows, degrees, near = group.rows, group.degrees, group.neighbours
        first_slot = np.concatenate(([0], np.cumsum(degrees)))
        owners = np.repeat(rows, degrees)
        # A row's matrix is of its neighbours and, in its place among them, itself.
        position = np.arange(len(near)) - np.repeat(first_slot[:-1], degrees)
        local = (position + (near > owners)).astype(np.int32)
        own = np.add.reduceat(near < owners, first_slot[:-1]).astype(np.int32)
        sizes = degrees + 1
        starts = np.cumsum(sizes) - sizes
        variables = np.empty(int(sizes.sum()), np.int32)
        variables[starts + own], variables[np.repeat(starts, degrees) + local] = rows, near
        matrices = self.squares(variables, sizes)
        self.lap("correlate")
        keys_now = np.full(len(near), NO_KEY, np.uint64)
        keys_now[group.required] = REQUIRED_KEY
        keys, counters = backend.upload(keys_now), backend.full(COUNTER_SHAPE, 0, np.uint64)
        widest = int(degrees.max())
        batch = _gathered.BATCH(
            matrices=matrices,
            matrix_at=backend.upload(np.cumsum(np.square(sizes)) - np.square(sizes)),
            first_slot=backend.upload(first_slot),
            sizes=backend.upload(sizes.astype(np.int32)),
            own=backend.upload(own),
            neighbours=backend.upload(local),
            mirrors=backend.upload(mirrors(owners, near, spec.plan.p)),
        )
        search = _split_rows.ROW_SEARCH(
            keys=keys,
            min_r_squared=None,
            counters=counters,
            binomial=BINOMIALS(table=backend.upload(binomial_table(widest, level)), max_n=widest),
            critical_r_squared=critical,
            residual_tolerance=spec.residual_tolerance,
            pivot_tolerance=spec.pivot_tolerance,
            first_come=False,
        )
        shared_bytes = 4 * widest if 4 * widest <= backend.max_shared_bytes else 0
        most_sets = int(binomial_table(widest, level)[level, widest])
        delta = max(1, min(ceil_div(most_sets, THETA), ceil_div(4 * backend.blocks_at_once, len(rows)), MOST_DELTA))
        arguments = [batch, search, np.bool_(shared_bytes > 0)]
        backend.kernel(*_gathered.kernel(level))((len(rows), delta), (THETA,), arguments, shared_bytes)
        found = backend.download(keys)
        tests, undefined, singular = map(int, backend.download(counters).sum(axis=0)[:3])
        self.lap("tests")
        return {"tests": tests, "undefined": undefined, "pseudo_inverses": singular}, found


def mirrors(owners: np.ndarray, near: np.ndarray, p: int) -> np.ndarray:
    """(slots,) int32: the slot of the same edge in its other end's row; its own where that row is elsewhere."""
    forth, back = owners.astype(np.int64) * p + near, near.astype(np.int64) * p + owners
    order = np.argsort(forth)
    at = order[np.minimum(np.searchsorted(forth[order], back), len(order) - 1)]
    return np.where(forth[at] == back, at, np.arange(len(at))).astype(np.int32)


# --- what Dask calls -------------------------------------------------------------------------------------------------

_opening = threading.Lock()


class Kept:
    """What a worker keeps: one search's state, and how many tasks are at work with it.

    No two searches have memory at once. A task of another search waits until those at work have ended, also those of a
    client that died, and then takes their place.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._state: State | None = None
        self._at_work = 0
        self._over = False

    def take(self, spec: Spec) -> State:
        """The search's state, for a task that has to `give_back`."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_of(spec.key) or not self._at_work)
            if not self._is_of(spec.key):
                self._drop()
                with _opening:  # several workers may be in this process
                    self._state = State(spec)
            assert self._state is not None
            self._at_work += 1
            return self._state

    def give_back(self) -> None:
        with self._changed:
            self._at_work -= 1
            if self._over and not self._at_work:
                self._drop()
            self._changed.notify_all()

    def forget(self, key: str | None = None) -> None:
        """Drop the state of a search, or of any, when no task is at work with it any more."""
        with self._changed:
            if key is None or self._is_of(key):
                self._over = True
                if not self._at_work:
                    self._drop()

    def _is_of(self, key: str) -> bool:
        return self._state is not None and self._state.spec.key == key

    def _drop(self) -> None:
        self._over = False
        if self._state is None:
            return
        backend, self._state = weakref.ref(self._state.backend), None
        for _ in range(LOOKS):  # a backend and its kernels refer to each other, and the memory pool with them
            gc.collect()
            if backend() is None:
                break
            time.sleep(0.01)  # while another thread collects, a call does nothing


def _kept(worker: Any) -> Kept:
    kept: Kept = worker.__dict__.setdefault("_gpupc_kept", Kept())
    return kept


async def probe(backend: str, device_memory_limit: int | None, dask_worker: Any = None) -> dict[str, Any]:
    """What a worker is and may take; of searches before it forgets all."""
    await asyncio.to_thread(_kept(dask_worker).forget)
    if backend != "host":
        gc.collect()  # what a task kept that ended after its search
    kind = backend_class(backend)
    said: dict[str, Any] = {"code": _cluster.code(), "machine": socket.gethostname()}
    if reason := kind.unavailable():
        return said | {"unavailable": reason}
    opened = kind(device_memory_limit)
    said |= {"describe": opened.describe(), "gpu": opened.device_key(), "host_memory": _cluster.free_memory()}
    return said | {"device_memory": opened.memory_limit, "on_host": opened.warp_threads == 1}


async def prepare(spec: Spec, dask_worker: Any = None) -> None:
    """Bring the numbers to a worker's device; beside its event loop, since another search may have to end first."""
    await asyncio.to_thread(_with_state, dask_worker, spec, lambda _: None)


async def forget(key: str, dask_worker: Any = None) -> None:
    """Give back what a worker keeps of a search."""
    await asyncio.to_thread(_kept(dask_worker).forget, key)


def _with_state(worker: Any, spec: Spec, work: Callable[[State], Any]) -> Any:
    """What work with a search's state gives; the state is let go of before another one may be made."""
    kept = _kept(worker)
    state = kept.take(spec)
    try:
        return work(state)
    finally:
        del state
        kept.give_back()


def _task(spec: Spec, work: Callable[[State], dict[str, Any]]) -> dict[str, Any]:
    """What a task says."""
    from distributed import get_worker

    said: dict[str, Any] = _with_state(get_worker(), spec, work)
    return said


def _with_room(work: Callable[[], Result]) -> Result:
    """What work gives; tried again where memory is short, since Dask's profiler looks at frames of the task before, and
    keeps what they hold for as long."""
    for _ in range(LOOKS):
        with contextlib.suppress(DeviceMemoryError):
            return work()
        time.sleep(0.01)
    return work()


def make_block(spec: Spec, i: int, j: int) -> dict[str, Any]:
    """Task: the shard of a block."""

    def work(state: State) -> dict[str, Any]:
        with state.lock:
            state.begin()
            said, arrays = _with_room(lambda: state.test_block(i, j))
            facts = state.facts()
        arrays["members"] = arrays["members"].astype(np.uint16 if spec.plan.p <= 1 << 16 else np.int32, copy=False)
        own = {"left": state.left(i, j, arrays["left"]), "degrees": arrays.get("degrees")}
        return _written(spec.shards.block(i, j), said, arrays, facts) | own

    return _task(spec, work)


def make_rows(spec: Spec, level: int, critical: float, group: Group) -> dict[str, Any]:
    """Task: the shard of a group of rows."""

    def work(state: State) -> dict[str, Any]:
        with state.lock:
            state.begin()
            state.drop_panels()
            said, arrays = _with_room(lambda: state.test_rows(level, critical, group))
            facts = state.facts()
        return _written(spec.shards.rows(level, group.name), said, arrays, facts)

    return _task(spec, work)


def _written(
    path: Path, said: dict[str, Any], arrays: Mapping[str, np.ndarray], facts: dict[str, Any]
) -> dict[str, Any]:
    """What a task returns: its shard says the same, but for how it was made."""
    from distributed import get_worker

    started = time.perf_counter()
    size = _shards.write(path, said, arrays)
    facts["seconds"]["write"] = time.perf_counter() - started
    return {**said, "worker": str(get_worker().name), "bytes": size, "made": facts}
