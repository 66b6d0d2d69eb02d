"""The client's side of a search: it hands out tasks, and knows the graph between levels."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import mmap
import os
import platform
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special

from gpupc_impl.backends import BackendUnavailable, DeviceMemoryError
from gpupc_impl.core import mapped
from gpupc_impl.core.files import write_whole
from gpupc_impl.core.pc_stable import LevelOutcome, LevelSearch, stop_reason
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.core.registry import InvalidParameter, Run
from gpupc_impl.core.result import SeparatingSets, complete_graph
from gpupc_impl.distributed import _cluster, _plan, _shards, _worker
from gpupc_impl.distributed._sets import Blocks, ShardedSets
from gpupc_impl.distributed.correlations import standardised
from gpupc_impl.engine.graph import NO_KEY
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.integers import round_up
from gpupc_impl.out_of_core import _gathered, _row_groups
from gpupc_impl.views.progress import bar

logger = logging.getLogger("gpupc_impl.distributed")

LEAST_WORK = 1e9
"""Multiply-adds that a group of rows may need, so that a task is worth its while."""

WORK_OF_A_TEST = 20
"""In multiply-adds."""

TASKS_A_LEVEL = 256
"""Groups of rows of a level with much work, whatever the number of workers: so a restart finds the same ones."""

TOLD_EVERY = 30.0
"""Seconds between messages about how far a level is."""


NO_RESERVE = 0x4000 if platform.machine() in ("x86_64", "aarch64") else 0
"""Linux's MAP_NORESERVE, which Python's mmap does not name before 3.13."""

WITHOUT_WORKERS = 600.0
"""Seconds that a cluster may be without any worker."""


class ClusterFailure(RuntimeError):
    """The cluster ended before the search; the message says how to go on."""


class Watch:
    """Looks now and then whether a cluster has workers.

    Args:
        title: of the step that needs them.
        again: how to go on after a failure.
    """

    def __init__(self, client: Any, title: str, again: str):
        self._client, self._title, self._again = client, title, again
        self._looked = self._seen = time.monotonic()

    def workers(self) -> int:
        """How many there are."""
        return len(self._client.scheduler_info(n_workers=-1)["workers"])

    def look(self) -> None:
        """Say every `TOLD_EVERY` seconds that there is no worker.

        Raises:
            ClusterFailure: there has been none for `WITHOUT_WORKERS` seconds.
        """
        now = time.monotonic()
        if now - self._looked < TOLD_EVERY:
            return
        self._looked = now
        if self.workers():
            self._seen = now
            return
        alone = now - self._seen
        if alone >= WITHOUT_WORKERS:
            raise ClusterFailure(f"{self._title}: the cluster has had no worker for {alone:.0f} s; {self._again}")
        logger.warning("%s: the cluster has 0 workers; one is waited for, %.0f s so far", self._title, alone)


@contextlib.contextmanager
def turn(client: Any) -> Iterator[None]:
    """A search's turn on a cluster, for which others wait, since each is planned for all the workers' memory.

    A client that dies gives up its turn after `distributed.scheduler.locks.lease-timeout`, which is half a minute.

    Raises:
        ClusterFailure: the scheduler died.
    """
    from distributed import Semaphore

    turns = Semaphore(1, "gpupc-search", scheduler_rpc=client.scheduler, loop=client.loop)
    try:
        while not turns.acquire(TOLD_EVERY):
            logger.warning("before level 0: another search is at work on the cluster; its end is waited for")
    except OSError as error:
        raise ClusterFailure(f"before level 0: the cluster failed ({error}); start one, and search again") from error
    try:
        yield
    finally:
        with contextlib.suppress(Exception):  # the cluster may be what failed
            turns.release()
            client.loop.add_callback(turns.refresh_callback.stop)  # Dask would go on until the client ends


class DistributedSearch(LevelSearch):
    """One search on a cluster; a `LevelSearch` (see core/pc_stable.py).

    Attributes:
        report: what is recorded of the search: the plan, the workers, and seconds and bytes by level.

    Raises:
        InvalidParameter: pmax, or a parameter that does not fit the machine.
        InvalidProblem: the folder is for another search, or a worker does not see it.
        BackendUnavailable: a worker cannot run kernels.
        DeviceMemoryError: the workers' memory does not hold the smallest panels.
        ClusterFailure: the scheduler died, no worker was there for long, or a task with several workers one after
            the other.
    """

    def __init__(self, problem: GaussianProblem, run: Run):
        if run.pmax:
            raise InvalidParameter(
                "method 'distributed' records no pmax, which is a p x p matrix; leave it out, or take out-of-core-block"
            )
        self.problem, self.run, self.params, self.p = problem, run, run.params, problem.n_variables
        self._stack = contextlib.ExitStack()
        self._client: Any = None
        self._known: list[LevelOutcome] = []
        self._later: list[tuple[np.ndarray, np.ndarray]] = []
        self._edges: np.ndarray | None = None
        self._adjacency: np.ndarray | None = None
        self._workers: list[str] = []
        self._numbers: dict[str, str] = {}
        self.report: dict[str, Any] = {"levels": []}

    def __enter__(self) -> DistributedSearch:
        return self

    def __exit__(self, *error: Any) -> None:
        if self._client is not None:
            with contextlib.suppress(Exception):  # the cluster may be what failed
                self._client.run(_worker.forget, self._spec.key)
        self._stack.close()

    # --- before the first level --------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Find the cluster, make the plan, and put the numbers where workers read them."""
        started = time.perf_counter()
        self._adjacency = no_edges(self.p)  # first of all: to fail here loses no work
        params, problem = self.params, self.problem
        where = params["workers_on"]
        where = self.run.backend.name if where == "auto" else where
        opened = _cluster.open_client(params["client"], where, params["workers"])
        client = self._stack.enter_context(opened)
        self._stack.enter_context(turn(client))
        owner = None
        if not params["folder"]:
            owner = tempfile.TemporaryDirectory(prefix="gpupc-")
        path = Path(owner.name if owner else params["folder"]).absolute()
        folder = _shards.Folder(path)
        said = self._ask_workers(client, where)
        self._workers = sorted(said)
        given = problem.samples is None
        rows = params["panel"] or folder.rows_claimed()
        plan = _plan.choose(
            0 if given else problem.n_samples,
            self.p,
            device_memory=min(each["device_memory"] for each in said.values()),
            host_memory=min(each["host_memory"] for each in said.values()),
            workers=len(said),
            rows=round_up(rows, _plan.STEP),
            knowledge=problem.fixed is not None,
        )
        asked = time.perf_counter()
        self._write_numbers(folder, plan)
        written = time.perf_counter()
        fixed, one = problem.fixed, stop_reason(problem, 1, max(self.p - 1, 2)) is None
        self._spec = _worker.Spec(
            key=uuid.uuid4().hex,
            code=_cluster.code(),
            folder=str(path),
            shape=(self.p if given else problem.n_samples, self.p),
            given=given,
            plan=plan,
            backend=where,
            limited=self.run.backend.device_memory_limit is not None,
            critical=(problem.critical_r_squared(0), problem.critical_r_squared(1) if one else None),
            residual_tolerance=problem.residual_tolerance,
            pivot_tolerance=problem.pivot_tolerance,
            knowledge=fixed is not None,
        )
        self._client = client
        self._blocks = Blocks(folder, plan, owner)
        self._prepare_workers()
        ready = time.perf_counter()
        seconds = {"plan": asked - started, "write_numbers": written - asked, "read_numbers": ready - written}
        self.report |= {
            "seconds_before_levels": seconds,
            "plan": plan.facts(),
            "workers": len(said),
            "devices": [each["describe"] for each in said.values()],
        }
        logger.info(
            "%s variables in %d panels of %d, %d blocks; %d workers, which need %s bytes of device memory each and may "
            "take %s (%d panels), and %s of host memory",
            *(f"{self.p:,}", plan.panels, plan.rows, plan.panels * (plan.panels + 1) // 2, len(said)),
            *(f"{plan.device_bytes:,}", f"{plan.budget:,}", plan.held, f"{plan.host_bytes:,}"),
        )

    def _ask_workers(self, client: Any, where: str) -> dict[str, dict[str, Any]]:
        """What each worker may take: bytes on its device, and beside that in its process."""
        limit = self.run.backend.device_memory_limit
        watch = Watch(client, "before level 0", "start workers, and search again")
        while not (said := _on_workers(client, _worker.probe, where, limit)):
            time.sleep(0.1)
            watch.look()
        machines = Counter(each["machine"] for each in said.values())
        code = _cluster.code()
        on_gpu: dict[str, str] = {}
        for address, each in said.items():
            if each["code"] != code:
                raise BackendUnavailable(f"worker {address} has another version of gpupc; install one everywhere")
            if "unavailable" in each:
                raise BackendUnavailable(f"worker {address} cannot run kernels on {where}: {each['unavailable']}")
            if each["gpu"] is not None and limit is None and each["gpu"] in on_gpu:
                raise InvalidParameter(
                    f"workers {on_gpu[each['gpu']]} and {address} have the same GPU: give each one of its own "
                    "(CUDA_VISIBLE_DEVICES), or say what a worker may take of it (device_memory_limit)"
                )
            on_gpu[each["gpu"]] = address
            free = each["host_memory"] // machines[each["machine"]]
            share = int(_cluster.MEMORY_SHARE * free)
            if each["on_host"]:
                each["device_memory"] = limit if limit is not None else _cluster.host_device_bytes(free)
                share //= 4
            each["host_memory"] = self.params["host_memory_limit"] or share
        return said

    def _write_numbers(self, folder: _shards.Folder, plan: _plan.Plan) -> None:
        """The samples, standardised, or the matrix that is given, and fixed pairs: files that workers map."""
        problem = self.problem
        folder.make()

        def claim() -> None:
            fingerprint = problem.fingerprint if self.params["folder"] else None  # it reads all data
            folder.claim({"fingerprint": fingerprint, "rows": plan.rows})

        with ThreadPoolExecutor(1) as beside, write_whole(folder.numbers) as temporary:
            claimed = beside.submit(claim)
            if folder.is_claimed():  # another search's is refused before work, and nothing of it is written over
                claimed.result()
            if problem.samples is None:
                np.save(temporary, problem.correlation)
            else:
                out = mapped.new_npy(temporary, problem.samples.shape)
                standardised(self.run.backend, problem.samples, out)
                out.flush()
            claimed.result()
        if problem.fixed is not None:
            for path, pairs in zip(folder.fixed, (problem.fixed.required, problem.fixed.forbidden), strict=True):
                with write_whole(path) as temporary:
                    np.save(temporary, pairs)

    def _prepare_workers(self) -> None:
        """Every worker must see the numbers where the client wrote them, and brings them to its device."""
        self._spec.shards.key.write_text(self._spec.key)
        _on_workers(self._client, _worker.prepare, self._spec)

    # --- LevelSearch -------------------------------------------------------------------------------------------------

    def run_level(self, level: int) -> LevelOutcome:
        if level == 0:
            self._begin()
            self._known = self._first_levels()
        if level < 2:
            return self._known[level]
        return self._level(level)

    def adjacency(self) -> np.ndarray:
        if self._edges is None or self._adjacency is None:  # no level was run
            return complete_graph(self.p)
        i, j = self._edges.T
        self._adjacency[i, j] = self._adjacency[j, i] = True
        return self._adjacency

    def separating_sets(self, adjacency: np.ndarray) -> SeparatingSets:
        if self._edges is None:
            return SeparatingSets.from_levels(adjacency, [])
        return ShardedSets(adjacency, self._blocks, self._later)

    def pmax(self) -> None:
        return None

    # --- tasks -------------------------------------------------------------------------------------------------------

    def _run_tasks(
        self,
        title: str,
        task: Callable[..., Any],
        tasks: Sequence[tuple],
        paths: Sequence[Path],
        preferred: Sequence[str | None],
    ) -> list[dict[str, Any]]:
        """What the tasks say, in their order; those whose shards are there are not made again.

        Args:
            paths: their shards, all in one folder.
            preferred: the address of the worker that should take each; another one may, when it has nothing to do.
        """
        from distributed import KilledWorker

        found = _said(paths)
        missing = [k for k, said in enumerate(found) if said is None]
        logger.info("%s: %d tasks, %d of them done before", title, len(tasks), len(tasks) - len(missing))
        started = told = time.perf_counter()
        futures = {}
        for n, k in enumerate(missing):
            where = {} if preferred[k] is None else {"workers": preferred[k], "allow_other_workers": True}
            futures[self._client.submit(task, self._spec, *tasks[k], pure=False, priority=-n, **where)] = k
        failed: BaseException | None = None
        wanted = None if self.run.progress is not None else False
        try:
            with bar(wanted, len(tasks), title, " tasks", done=len(tasks) - len(missing)) as shown:
                for done, (future, said) in enumerate(self._ended(title, list(futures)), 1):
                    if future.status == "error":
                        failed = said[1].with_traceback(said[2])
                        raise failed
                    if isinstance(said, BaseException):  # of a task that was lost with the scheduler
                        raise said
                    found[futures.pop(future)] = said
                    shown.update()
                    now = time.perf_counter()
                    if now - told >= TOLD_EVERY:
                        told = now
                        left = (now - started) * (len(missing) - done) / done
                        logger.info("%s: %d of %d tasks, about %.0f s left", title, done, len(missing), left)
        except (CancelledError, KilledWorker, OSError) as error:
            if error is failed and not isinstance(error, KilledWorker):  # such as a full disk
                error.add_note(f"{title}: a task failed on a worker; {self._again()}")
                raise
            reason = f"the cluster failed ({type(error).__name__}: {error})"
            raise ClusterFailure(f"{title}: {reason}; {self._again()}") from error
        finally:
            if futures:
                with contextlib.suppress(Exception):
                    self._client.cancel(list(futures))
        self._record(title, found, len(missing), time.perf_counter() - started)
        return found

    def _ended(self, title: str, futures: list[Any]) -> Iterator[tuple[Any, Any]]:
        """Tasks and what they say, as they end."""
        from distributed import as_completed

        ended = as_completed(futures, loop=self._client.loop, with_results=True, raise_errors=False)
        watch = Watch(self._client, title, self._again())
        while not ended.is_empty():
            if ended.has_ready():
                yield next(ended)
            else:
                time.sleep(0.005)
            watch.look()

    def _again(self) -> str:
        """How to go on after a failure."""
        if self.params["folder"]:
            return f"search again with folder={self.params['folder']!r}, and no more is made than is missing"
        return "search again, with folder=... for what is done to be kept"

    def _record(self, title: str, found: list[dict[str, Any]], made: int, seconds: float) -> None:
        """What a level's tasks took, for the facts."""
        workers: dict[str, dict[str, Any]] = {}
        for said in found:
            if "made" not in said:
                continue
            number = self._numbers.setdefault(said["worker"], str(len(self._numbers)))  # its name may be its address
            of_worker = workers.setdefault(number, {"tasks": 0, "bytes": 0, "seconds": Counter()})
            of_worker["tasks"] += 1
            of_worker["bytes"] += said["bytes"]
            of_worker["seconds"].update(said["made"]["seconds"])
            for name in ("panels_made", "panels_held", "peak_device_bytes"):
                of_worker[name] = max(of_worker.get(name, 0), said["made"][name])
        for of_worker in workers.values():
            of_worker["seconds"] = dict(of_worker["seconds"])
        task_seconds = [sum(said["made"]["seconds"].values()) for said in found if "made" in said]
        self.report["levels"].append(
            {
                "step": title,
                "tasks": len(found),
                "made": made,
                "seconds": seconds,
                "task_seconds": task_seconds,
                "workers": workers,
            }
        )

    # --- levels ------------------------------------------------------------------------------------------------------

    def _first_levels(self) -> list[LevelOutcome]:
        """Levels 0 and 1, whose tasks are the same."""
        started, problem, shards = time.perf_counter(), self.problem, self._spec.shards
        blocks = list(self._spec.plan.blocks())
        share = self._spec.plan.shares(len(self._workers))
        preferred = [self._workers[share[block]] if len(self._workers) > 1 else None for block in blocks]
        paths = [shards.block(*one) for one in blocks]
        found = self._run_tasks("levels 0 and 1", _worker.make_block, blocks, paths, preferred)
        left, degrees = [], np.empty(self.p, np.int64)
        for (i, j), said in zip(blocks, found, strict=True):
            sent = said.get("left")
            left.append(self._blocks.left(i, j) if sent is None else sent)
            if i == j:
                sent = said.get("degrees")
                degrees[self._spec.plan.panel(i)] = self._blocks.degrees(i) if sent is None else sent
        edges = np.concatenate(left)
        keys = np.sort(edges[:, 0].astype(np.int64) * self.p + edges[:, 1])  # much faster than to sort rows
        self._edges = np.stack(np.divmod(keys, self.p), axis=1).astype(edges.dtype)
        seconds = time.perf_counter() - started
        spent: Counter = Counter()
        for of_worker in self.report["levels"][-1]["workers"].values():
            spent.update(of_worker["seconds"])
        first = seconds * (spent["correlate"] + spent["level_0"]) / sum(spent.values()) if spent else 0.0
        most = problem.most_tested_degree(degrees)
        zero = LevelOutcome(int(degrees.sum()) // 2, most, problem.tests_of_level_zero, seconds=first)
        totals = Counter()
        for said in found:
            totals.update({name: said[name] for name in ("tests", "undefined")})
        one = LevelOutcome(*self._left(), totals["tests"], undefined=totals["undefined"], seconds=seconds - first)
        return [zero, one]

    def _left(self) -> tuple[int, int]:
        """Edges left, and the largest degree of a variable with an edge to test."""
        degrees = np.bincount(self._edges.reshape(-1), minlength=self.p)
        return len(self._edges), self.problem.most_tested_degree(degrees)

    def _level(self, level: int) -> LevelOutcome:
        graph, edges = graph_of(self._edges, self.p), self._edges
        fixed = self.problem.fixed
        required = np.empty(0, np.int64) if fixed is None else graph.slots(fixed.required)
        groups = list(self._groups(graph, level, required))
        critical, shards = self.problem.critical_r_squared(level), self._spec.shards
        found = self._run_tasks(
            f"level {level}",
            _worker.make_rows,
            [(level, critical, group) for group, _ in groups],
            [shards.rows(level, group.name) for group, _ in groups],
            [None] * len(groups),
        )
        keys = np.full(len(graph.neighbours), NO_KEY, np.uint64)
        totals: Counter = Counter()
        for (group, slots), said in zip(groups, found, strict=True):
            keys[slots] = _shards.read_array(shards.rows(level, group.name), "keys")
            totals.update({name: said[name] for name in ("tests", "undefined", "pseudo_inverses")})
        keys[required] = NO_KEY
        pairs, sets = separated(graph, keys, level)
        self._later.append((pairs, sets))
        numbers = np.array([self.p, 1])
        self._edges = edges[~np.isin(edges @ numbers, pairs @ numbers)]
        return LevelOutcome(
            *self._left(), totals["tests"], undefined=totals["undefined"], pseudo_inverses=totals["pseudo_inverses"]
        )

    def _groups(self, graph: _row_groups.Graph, level: int, required: np.ndarray) -> Any:
        """The tasks of a level, each with the slots of its rows."""
        degrees, plan = graph.degrees, self._spec.plan
        active = degrees > level
        if self.problem.fixed is not None:
            active &= ~self.problem.fixed.without_tests(degrees)
        samples = 0 if self._spec.given else self.problem.n_samples
        limit = _plan.bytes_for_rows(samples, self.p, level, int(degrees.max()), plan.budget)
        needed = _plan.row_bytes(degrees)
        if (active & (needed > limit)).any():
            i = int(np.flatnonzero(active & (needed > limit))[0])
            least = int(needed[i]) + plan.budget - limit
            raise DeviceMemoryError(
                least,
                0,
                plan.budget,
                f"level {level} needs {least:,} bytes of a worker's device memory for the {degrees[i]:,} neighbours of "
                f"{self.problem.names[i]}; it has {plan.budget:,}: give workers more (device_memory_limit), lower "
                f"alpha, or set max_level to {level - 1}",
            )
        order = graph.order()  # neighbours near one another: a row's results end tests of its neighbours' rows
        order = order[active[order]].astype(np.int64)
        near = degrees[order]
        tiles = 64 * (near // 64 + 1)  # a matrix of few variables takes whole tiles all the same
        work = WORK_OF_A_TEST * near * special.comb(near, level) + (near + 1) * tiles * samples
        is_required = np.zeros(len(graph.neighbours), bool)
        is_required[required] = True
        for part in _plan.share_out(work, needed[order], limit, LEAST_WORK, TASKS_A_LEVEL):
            rows = order[part]
            slots = _gathered._ranges(graph.starts[rows], degrees[rows])
            near = graph.neighbours[slots]
            name = hashlib.sha256(rows.tobytes() + near.tobytes()).hexdigest()[:24]
            yield _worker.Group(name, rows, degrees[rows], near, np.flatnonzero(is_required[slots])), slots


def _on_workers(client: Any, function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
    """What a function gives on each worker that is there, by its address.

    Raises:
        ClusterFailure: a worker was lost meanwhile.
    """
    try:
        said: dict[str, Any] = client.run(function, *arguments)
        return said
    except OSError as error:
        raise ClusterFailure(f"before level 0: a worker was lost ({error}); search again") from error


def _said(paths: Sequence[Path]) -> list[Any]:
    """What each whole shard of a folder says, and None where there is none; the folder is made if it is not there.

    It is listed, and not asked for each: a network file system may remember for long that a file was not there.
    """
    for folder in {path.parent for path in paths}:
        folder.mkdir(exist_ok=True)
    there = {folder: set(os.listdir(folder)) for folder in {path.parent for path in paths}}
    found = (_shards.read(path) if path.name in there[path.parent] else None for path in paths)
    return [None if shard is None else shard[0] for shard in found]


def no_edges(p: int) -> np.ndarray:
    """(p, p) bool, False everywhere: on Linux only address space, until edges are written into its pages.

    Raises:
        InvalidProblem: there is no room for it.
    """
    try:
        if sys.platform != "linux" or p == 0:
            return np.zeros((p, p), bool)
        # NumPy's own zeros would be refused where p^2 bytes are more than the memory, although hardly any is touched.
        space = mmap.mmap(-1, p * p, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE)
    except (MemoryError, OSError) as error:
        raise InvalidProblem(
            f"the adjacency matrix of {p:,} variables takes {p * p:,} bytes of address space, which this process "
            f"cannot have ({error}): raise its limit (ulimit -v, vm.overcommit_memory), or take fewer variables"
        ) from error
    with contextlib.suppress(OSError):  # a kernel without huge pages
        space.madvise(mmap.MADV_NOHUGEPAGE)  # an edge takes a page of 4 KiB, not of 2 MiB
    return np.frombuffer(space, np.uint8).view(bool).reshape(p, p)


def graph_of(edges: np.ndarray, p: int) -> _row_groups.Graph:
    """The rows of a graph from its (k, 2) edges."""
    both = np.concatenate([edges, edges[:, ::-1]])
    both = both[np.lexsort((both[:, 1], both[:, 0]))]
    starts = np.concatenate(([0], np.cumsum(np.bincount(both[:, 0], minlength=p))))
    neighbours = np.ascontiguousarray(both[:, 1], np.int32)
    return _row_groups.Graph(starts, neighbours, np.argsort(neighbours, kind="stable"))


def separated(graph: _row_groups.Graph, keys: np.ndarray, level: int) -> tuple[np.ndarray, np.ndarray]:
    """The separated pairs, ascending, and their (k, level) sets, from the best keys that each end's row has found."""
    i = np.repeat(np.arange(len(graph.starts) - 1, dtype=np.int32), graph.degrees)
    keys = np.minimum(keys, keys[graph.reverse])
    slots = np.flatnonzero((i < graph.neighbours) & (keys != NO_KEY))
    keys, pairs = keys[slots], np.stack([i[slots], graph.neighbours[slots]], axis=1)
    owners = np.where(keys & _gathered.SECOND_SIDE, pairs[:, 1], pairs[:, 0])
    positions = _gathered.unrank(keys & ~_gathered.SECOND_SIDE, graph.degrees[owners], level)
    return pairs, graph.neighbours[graph.starts[owners][:, None] + positions].astype(np.int32)
