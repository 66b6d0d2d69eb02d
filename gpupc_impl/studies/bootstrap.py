"""How stable edges and their directions are: searches of resampled data."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import multiprocessing
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpupc_impl.api import pc
from gpupc_impl.core.family import get_family
from gpupc_impl.core.files import read_json, save_json, write_whole
from gpupc_impl.core.orientation import CPDAG
from gpupc_impl.core.problem import InvalidProblem, Problem
from gpupc_impl.intake import take
from gpupc_impl.views.progress import bar

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

SETTINGS = "bootstrap.json"
"""The file of a folder that says what its resamples are of."""

UNDIRECTED, DIRECTED = 0, 1
"""Kinds of edges in a resample's file; conflicts are undirected."""


@dataclasses.dataclass(frozen=True, eq=False)
class Bootstrap:
    """How often resampled data have each edge and each direction.

    Attributes:
        n: number of resamples.
        directed: (p, p) int32, ``[i, j]`` in how many resamples there is i -> j.
        undirected: (p, p) int32, symmetric: in how many there is an edge without a direction, conflicts included.
        graph: what all data together have.
    """

    n: int
    directed: np.ndarray
    undirected: np.ndarray
    graph: CPDAG

    @property
    def names(self) -> tuple[str, ...]:
        return self.graph.names

    @property
    def edge_frequencies(self) -> np.ndarray:
        """(p, p) float64, symmetric: the share of resamples with an edge."""
        return (self.directed + self.directed.T + self.undirected) / self.n

    @property
    def direction_frequencies(self) -> np.ndarray:
        """(p, p) float64: ``[i, j]`` is the share of resamples with i -> j."""
        return self.directed / self.n

    def __repr__(self) -> str:
        often = int(np.count_nonzero(np.triu(self.edge_frequencies) >= 0.5))
        return f"Bootstrap({self.n} resamples, {len(self.names)} variables, {often} edges in at least half of them)"

    def to_frame(self, at_least: float = 0.0) -> pandas.DataFrame:
        """A row a pair that is an edge in some resample, frequent ones first.

        Columns: ``source``, ``target``, named so that source -> target is the more frequent direction; ``frequency`` of
        an edge; ``directed``, ``reversed`` and ``undirected``: the shares of resamples with source -> target, the other
        way round, and without a direction, which add up to the frequency.

        Args:
            at_least: the least frequency that is listed.
        """
        import pandas

        edge, arrow = self.edge_frequencies, self.direction_frequencies
        pairs = np.argwhere(np.triu((edge > 0) & (edge >= at_least), 1))
        turned = arrow[tuple(pairs.T)] < arrow[tuple(pairs.T[::-1])]
        i, j = np.where(turned[:, None], pairs[:, ::-1], pairs).T
        frame = pandas.DataFrame(
            {
                "source": [self.names[k] for k in i],
                "target": [self.names[k] for k in j],
                "frequency": edge[i, j],
                "directed": arrow[i, j],
                "reversed": arrow[j, i],
                "undirected": self.undirected[i, j] / self.n,
            }
        )
        return frame.sort_values("frequency", ascending=False, kind="stable", ignore_index=True)

    def plot(self, at_least: float = 0.5, ax: Axes | None = None, *, title: str | None = None) -> Axes:
        """Draw the edges of at least a frequency, as wide as they are frequent; those below 100 % say how frequent.

        An edge has a direction where most of the resamples that have the edge agree on it.

        Raises:
            ImportError: matplotlib is not installed (extra ``plots``).
        """
        from gpupc_impl.views.plots.frequencies import plot

        return plot(
            self.names, self.to_frame(at_least), ax, self._title(f", edges in at least {at_least:.0%} of them", title)
        )

    def heatmap(self, ax: Axes | None = None, *, at_least: float = 0.05, title: str | None = None) -> Axes:
        """Draw the frequencies of the edges as a matrix, variables ordered by community.

        Args:
            at_least: pairs that are less often an edge are left white.

        Raises:
            ImportError: matplotlib is not installed (extra ``plots``).
        """
        from gpupc_impl.views.plots.frequencies import heatmap

        return heatmap(self.names, self.to_frame(at_least), ax, self._title("", title))

    def _title(self, more: str, given: str | None) -> str:
        return f"{self.n:,} resamples{more}" if given is None else given


def bootstrap(
    data: Any,
    n: int = 100,
    alpha: float = 0.05,
    *,
    seed: int = 0,
    replace: bool = True,
    fraction: float = 1.0,
    folder: str | Path | None = None,
    processes: int | None = None,
    executor: Executor | None = None,
    progress: bool | None = None,
    **options: Any,
) -> Bootstrap:
    """`pc` of resampled data: how often is each edge found, and each direction?

    Resample k is ``data`` in the rows ``resampled_rows(len(data), seed, k, replace, fraction)``, searched by itself;
    none depends on how many there are, or on where and in which order they are searched. Rows that
    ``missing="drop-rows"`` drops are dropped before.

    Args:
        data: samples, as `pc` takes them. Categories of a column that is no pandas Categorical are those that occur in
            a resample.
        n: number of resamples.
        alpha, options: all that `pc` takes, but for ``progress``.
        seed: of the resamples, at least 0.
        replace: whether a sample can be drawn several times; without, take a `fraction` below one (stability
            selection). CMIknn asks for nearest neighbours, which repeated samples falsify: better False.
        fraction: size of a resample, of that of the data.
        folder: where each resample's graph is kept: a run that was stopped goes on where it was, and one that asks for
            a larger `n` finds the earlier ones. None keeps nothing.
        processes: to search in, each with its share of the cores; None: this one. A script must then be safe to import
            (``if __name__ == "__main__":``), as for every pool of processes.
        executor: searches there instead: anything like a `concurrent.futures.Executor`, such as a Dask client's
            ``get_executor()``.
        progress: a progress bar with the time that is left; None: where somebody can see it, and tqdm is installed.

    Raises:
        InvalidProblem: the data or a parameter cannot be used; the folder holds resamples of something else.
        What `pc` raises.
    """
    _check(data, n, seed, replace, fraction, processes, options)
    graph = pc(data, alpha, **options)  # which checks the rest
    family = graph.skeleton.problem.family
    job = _Job(*_samples(data, family, options), alpha, seed, replace, fraction)
    store = None if folder is None else Path(folder)
    if store is not None:
        told = {name: repr(value) for name, value in options.items() if name not in ONLY_HOW}
        settings = {"seed": seed, "replace": replace, "fraction": fraction, "options": told}
        _claim(store, {"data": graph.skeleton.problem.fingerprint, **settings})
    p = len(graph.names)
    counts = np.zeros((2, p, p), np.int32)
    missing = []
    for k in range(n):
        kept = None if store is None else _load(_path(store, k), p)
        if kept is None:
            missing.append(k)
        else:
            _add(counts, kept)
    said: set[str] = set()
    with bar(progress, n, "resamples", " resamples", done=n - len(missing)) as shown, warnings.catch_warnings():
        warnings.simplefilter("always")
        for k, edges, messages in _searched(job, missing, processes, executor):
            if store is not None:
                _save(edges, _path(store, k))
            _add(counts, edges)
            for message in messages:
                if message not in said:
                    said.add(message)
                    warnings.warn(f"in a resample: {message}", stacklevel=2)
            shown.update()
    return Bootstrap(n, counts[DIRECTED], counts[UNDIRECTED] + counts[UNDIRECTED].T, graph)


def resampled_rows(n_samples: int, seed: int, k: int, replace: bool = True, fraction: float = 1.0) -> np.ndarray:
    """The rows of resample k: max(1, round(fraction n)) of 0 to n - 1.

    Drawn from the raw stream of PCG64, which is fixed for good, unlike what numpy's Generator makes of it.
    """
    size = max(1, round(fraction * n_samples))
    stream = np.random.PCG64(np.random.SeedSequence([seed, k]))
    if replace:
        return (stream.random_raw(size) % np.uint64(n_samples)).astype(np.int64)
    return np.argsort(stream.random_raw(n_samples), kind="stable")[:size]


# --- checks ----------------------------------------------------------------------------------------------------------


def _check(
    data: Any, n: int, seed: int, replace: bool, fraction: float, processes: int | None, options: Mapping[str, Any]
) -> None:
    """What `pc` does not check.

    Raises:
        InvalidProblem: something cannot be used.
    """
    if isinstance(data, Problem) or options.get("n_samples") is not None:
        raise InvalidProblem(
            "data must be samples in rows: a correlation matrix or a ready problem cannot be resampled"
        )
    for name, value, least in (("n", n, 1), ("seed", seed, 0), ("processes", 1 if processes is None else processes, 1)):
        if int(value) != value or value < least:
            raise InvalidProblem(f"{name} is {value!r}; it must be a whole number of at least {least}")
    if not fraction > 0 or (fraction > 1 and not replace):
        raise InvalidProblem(f"fraction is {fraction!r}; it must lie above 0, and at 1 or below without replacement")


ONLY_HOW = ("names", "backend", "device_memory_limit")
"""Options that change no graph."""


def _samples(data: Any, family: str, options: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The samples of a user's data, read, turned and without the rows that are dropped; and what is left to be said of
    them to `pc`, which has been given the data before and warned of what is odd."""
    missing = options.get("missing", "error")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = take(
            data,
            names=options.get("names"),
            kind=get_family(family).data,
            missing=missing,
            transpose=options.get("transpose"),
        )
    said = {"names": table.names, "transpose": False, "missing": "pairwise" if missing == "pairwise" else "error"}
    return table.values, {**options, **said, "family": family}


# --- searches --------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Job:
    """What all resamples share; a process gets it once."""

    data: Any
    options: Mapping[str, Any]
    alpha: float
    seed: int
    replace: bool
    fraction: float

    def search(self, k: int) -> tuple[int, np.ndarray, list[str]]:
        """Resample k: its edges, (k, 3) int32, and what was warned of."""
        rows = resampled_rows(len(self.data), self.seed, k, self.replace, self.fraction)
        resampled = self.data.iloc[rows] if hasattr(self.data, "iloc") else np.asarray(self.data)[rows]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            graph = pc(resampled, self.alpha, **self.options)
        return k, _edges(graph), [str(warning.message) for warning in caught]


def _edges(graph: CPDAG) -> np.ndarray:
    """(k, 3) int32: i, j and `DIRECTED` (i -> j) or `UNDIRECTED` (i < j)."""
    parts = [
        np.insert(np.argwhere(matrix), 2, kind, axis=1)
        for kind, matrix in ((UNDIRECTED, np.triu(graph.undirected)), (DIRECTED, graph.directed))
    ]
    return np.concatenate(parts).astype(np.int32)


def _add(counts: np.ndarray, edges: np.ndarray) -> None:
    i, j, kind = edges.T
    counts[kind, i, j] += 1


_of_this_process: _Job | None = None


def _begin(job: _Job, threads: int) -> None:
    """What a process of the pool does first: it keeps the job, and to its share of the cores."""
    global _of_this_process
    _of_this_process = job
    os.environ.setdefault("GPUPC_HOST_THREADS", str(threads))


def _search_here(k: int) -> tuple[int, np.ndarray, list[str]]:
    assert _of_this_process is not None
    return _of_this_process.search(k)


def _searched(
    job: _Job, numbers: Sequence[int], processes: int | None, executor: Executor | None
) -> Iterator[tuple[int, np.ndarray, list[str]]]:
    """The resamples of these numbers, as they are done."""
    if executor is not None:
        for done in as_completed([executor.submit(job.search, k) for k in numbers]):
            yield done.result()
    elif processes in (None, 1) or not numbers:
        yield from map(job.search, numbers)
    else:
        workers = min(processes, len(numbers))
        threads = max(1, len(os.sched_getaffinity(0)) // workers)
        context = multiprocessing.get_context("spawn")  # a fork would take an initialised device along
        with ProcessPoolExecutor(workers, context, _begin, (job, threads)) as pool, _explained():
            waiting = [pool.submit(_search_here, k) for k in numbers]
            try:
                for done in as_completed(waiting):
                    yield done.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except BrokenProcessPool as error:
        raise RuntimeError(
            "a process of bootstrap(processes=...) ended before it was done: it was killed (out of memory?), or this "
            'script cannot be imported by other processes; put what it does under `if __name__ == "__main__":`, or '
            "leave processes out"
        ) from error


# --- files -----------------------------------------------------------------------------------------------------------


def _claim(folder: Path, settings: Mapping[str, Any]) -> None:
    """Make sure that a folder is for resamples of these settings.

    Raises:
        InvalidProblem: it is for others.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / SETTINGS
    settings = json.loads(json.dumps(settings))
    if not path.exists():
        save_json(settings, path)
        return
    try:
        found = dict(read_json(path))
    except (ValueError, TypeError) as error:
        raise InvalidProblem(f"{path} is damaged ({error}); remove the folder, or name another") from error
    for name in sorted(settings.keys() | found.keys()):
        if settings.get(name) != found.get(name):
            what = "other data, or another alpha or test" if name == "data" else f"{name} {found.get(name)!r}"
            raise InvalidProblem(f"{folder} holds resamples of {what}; name another folder, or remove this one")


def _path(folder: Path, k: int) -> Path:
    return folder / f"{k:06d}.npy"


def _save(edges: np.ndarray, path: Path) -> None:
    with write_whole(path) as part:
        np.save(part, edges)


def _load(path: Path, p: int) -> np.ndarray | None:
    """A resample's edges; None where there are none, or what is there is no such file."""
    try:
        edges = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    fits = isinstance(edges, np.ndarray) and edges.dtype == np.int32 and edges.ndim == 2 and edges.shape[1] == 3
    if not fits or (edges < 0).any() or (edges[:, :2] >= p).any() or (edges[:, 2] > DIRECTED).any():
        return None
    return edges
