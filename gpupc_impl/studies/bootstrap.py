"""Bootstrap: counts how often searches of resampled data find each edge and each direction."""

from __future__ import annotations

import dataclasses
import functools
import multiprocessing
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpupc_impl.api import pc
from gpupc_impl.core.family import get_family
from gpupc_impl.core.files import open_arrays
from gpupc_impl.core.orientation import CPDAG
from gpupc_impl.core.problem import InvalidProblem, Problem, as_number
from gpupc_impl.core.result import read_whole
from gpupc_impl.core.result_folder import ResultFolder
from gpupc_impl.core.rows import RowStream
from gpupc_impl.intake import TableFormat
from gpupc_impl.search import SearchRequest
from gpupc_impl.views.exports import write_study
from gpupc_impl.views.progress import bar

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

UNDIRECTED, DIRECTED = 0, 1  # Kinds of edges in a resample's file; conflicts count as undirected
FORMAT_OPTIONS = frozenset(field.name for field in dataclasses.fields(TableFormat))
NEUTRAL_OPTIONS = ("names", "backend", "device_memory_limit")  # options that do not change the graph
_STORED = ("n", "directed", "undirected", "replace", "fraction")  # the attributes of a Bootstrap beside its graph


@dataclasses.dataclass(frozen=True, eq=False)
class Bootstrap:
    """The frequencies of edges and directions in resampled data.

    Attributes:
        n: number of resamples.
        directed: (p, p) int32; ``[i, j]`` is the number of resamples with i -> j.
        undirected: (p, p) int32, symmetric: the number of resamples with an edge that has no direction or a conflict.
        graph: the CPDAG of the data themselves.
        replace, fraction: how the resamples were drawn, as of `bootstrap`.
    """

    n: int
    directed: np.ndarray
    undirected: np.ndarray
    graph: CPDAG
    replace: bool = True
    fraction: float = 1.0

    @property
    def names(self) -> tuple[str, ...]:
        return self.graph.names

    @property
    def edge_frequencies(self) -> np.ndarray:
        """The share of resamples with an edge, (p, p) float64, symmetric."""
        return (self.directed + self.directed.T + self.undirected) / self.n

    @property
    def direction_frequencies(self) -> np.ndarray:
        """(p, p) float64; ``[i, j]`` is the share of resamples with i -> j."""
        return self.directed / self.n

    def __eq__(self, other: object) -> bool:
        """Whether two results have the same graph and counts."""
        if not isinstance(other, Bootstrap):
            return NotImplemented
        return self.graph == other.graph and all(
            np.array_equal(getattr(self, name), getattr(other, name)) for name in _STORED
        )

    def __repr__(self) -> str:
        frequent = int(np.count_nonzero(np.triu(self.edge_frequencies) >= 0.5))
        return f"Bootstrap({self.n} resamples, {len(self.names)} variables, {frequent} edges in at least half of them)"

    def _repr_html_(self) -> str:
        from gpupc_impl.views.pages import study
        from gpupc_impl.views.plots.graph import MAX_NODES

        frequent = np.count_nonzero((self.edge_frequencies >= 0.5).any(axis=0))
        draw = self.plot if frequent <= MAX_NODES else self.heatmap
        return study(repr(self), self.to_frame(), draw)

    def to_frame(self, at_least: float = 0.0) -> pandas.DataFrame:
        """Return a DataFrame with a row for each pair that is an edge in some resample, by descending frequency.

        Its columns are ``source`` and ``target``, in the order of the more frequent direction; ``frequency``, the share
        of resamples with the edge; and ``directed``, ``reversed`` and ``undirected``, the shares with source -> target,
        with target -> source, and without a direction, which add up to the frequency.

        Args:
            at_least: lower bound on the frequency of the pairs that are listed, from 0 to 1, or ValueError is raised.
        """
        if not 0 <= at_least <= 1:
            raise ValueError(f"at_least is {at_least!r}; it must be a share of the resamples, from 0 to 1")
        import pandas

        edge, arrow = self.edge_frequencies, self.direction_frequencies
        pairs = np.argwhere(np.triu((edge > 0) & (edge >= at_least), 1))
        swapped = arrow[tuple(pairs.T)] < arrow[tuple(pairs.T[::-1])]
        i, j = np.where(swapped[:, None], pairs[:, ::-1], pairs).T
        columns: dict[str, Any] = {"source": [self.names[k] for k in i], "target": [self.names[k] for k in j]}
        columns |= {"frequency": edge[i, j], "directed": arrow[i, j], "reversed": arrow[j, i]}
        frame = pandas.DataFrame(columns | {"undirected": self.undirected[i, j] / self.n})
        return frame.sort_values("frequency", ascending=False, kind="stable", ignore_index=True)

    def threshold(self, errors: float = 1.0) -> float:
        """Return the least frequency at which an edge is stable: ``to_frame(stable.threshold())`` has the stable edges,
        of which at most `errors` are expected to be false (see `expected_errors`, which this inverts). InvalidProblem
        is raised if the resamples are not halves, or if so many edges are found that no threshold keeps this bound; a
        lower alpha finds fewer."""
        if not as_number(errors) > 0:
            raise InvalidProblem(f"errors is {errors!r}; it must be a number above 0")
        threshold = (1 + self._squared_edges_per_pair() / errors) / 2
        if threshold > 1:
            raise InvalidProblem(
                f"no threshold keeps the expected number of false edges at {errors:g}: at 100 % of the resamples the "
                f"bound is {self.expected_errors(1.0):.3g}; give a lower alpha, or accept more errors"
            )
        return threshold

    def expected_errors(self, threshold: float) -> float:
        """Return the upper bound q² / ((2 threshold - 1) m) on the expected number of false edges among those at least
        this frequent, with q edges in a resample on average and m pairs (Meinshausen and Bühlmann 2010, Theorem 1).

        The theorem assumes that false edges are exchangeable, and that the search is no worse than guessing. The bound
        is for resamples of half of the samples without replacement; for others, and for a threshold that is not above
        1/2 and at most 1, InvalidProblem is raised.
        """
        if not 0.5 < as_number(threshold) <= 1:
            raise InvalidProblem(f"threshold is {threshold!r}; it must be above 0.5 and at most 1")
        return self._squared_edges_per_pair() / (2 * threshold - 1)

    def _squared_edges_per_pair(self) -> float:
        if self.replace or self.fraction != 0.5:
            raise InvalidProblem(
                "the bound of stability selection is for halves of the samples: say replace=False, fraction=0.5"
            )
        pairs = len(self.names) * (len(self.names) - 1) / 2
        return float(np.triu(self.edge_frequencies).sum()) ** 2 / max(pairs, 1)

    def save(self, path: str | Path) -> None:
        """Write a file whose format the suffix selects: ``.npz`` (everything but the data, which `load` reads),
        ``.csv`` (as `to_frame`), or the picture of `plot`, ``.png`` or ``.svg``."""
        write_study(self, self.to_frame(), Path(path))

    def stored_arrays(self) -> dict[str, Any]:
        """Return the arrays by which `save` stores everything but the data in an ``.npz``."""
        return {**self.graph.stored_arrays(), **{f"resamples_{name}": getattr(self, name) for name in _STORED}}

    @classmethod
    def load(cls, path: str | Path) -> Bootstrap:
        """Read the ``.npz`` that `save` wrote, which `CPDAG.load` reads, too. `InvalidSkeleton` is raised if it has
        other content, or is damaged."""
        graph = CPDAG.load(path)
        with read_whole(path, "holds no resamples"), open_arrays(path) as stored:
            arrays = {name: stored[f"resamples_{name}"] for name in _STORED}
            scalars = {name: arrays.pop(name).item() for name in ("n", "replace", "fraction")}
            found = cls(graph=graph, **scalars, **arrays)
            p, edges = len(graph.names), found.directed + found.directed.T + found.undirected
            if edges.shape != (p, p) or edges.min(initial=0) < 0 or edges.max(initial=0) > found.n:
                raise ValueError(f"its counts are not {p} x {p} numbers up to {found.n}")
            return found

    def plot(self, at_least: float = 0.5, ax: Axes | None = None, *, title: str | None = None) -> Axes:
        """Draw the edges that are at least this frequent, with a width that grows with their frequency, which is
        written beside those below 100 %. An edge has a direction if most of the resamples that have it agree on it.
        `ax` and `title` are as of `CPDAG.plot`, which says what is raised."""
        from gpupc_impl.views.plots.graph import frequencies

        title = f"{self.n:,} resamples, edges in at least {at_least:.0%} of them" if title is None else title
        return frequencies(self.names, self.to_frame(at_least), ax, title)

    def heatmap(self, ax: Axes | None = None, *, at_least: float = 0.05, title: str | None = None) -> Axes:
        """Draw the frequencies of the edges that are at least this frequent as a matrix, variables ordered by
        community; `ax` and `title` are as of `CPDAG.heatmap`."""
        from gpupc_impl.views.plots.heatmap import frequencies

        title = f"{self.n:,} resamples" if title is None else title
        return frequencies(self.names, self.to_frame(at_least), ax, title)


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
    """Run `pc` on resampled data and count how often each edge and each direction is found.

    Resample k consists of the rows ``resampled_rows(len(data), seed, k, replace, fraction)`` of ``data``. These rows do
    not depend on the number of resamples, or on where and in which order they are searched. Rows that
    ``missing="drop-rows"`` drops are dropped before the first draw.

    Args:
        data: samples, as `pc` takes them. The categories of a column that is not a pandas Categorical are those that
            occur in the resample.
        n: number of resamples.
        alpha, options: everything that `pc` takes except ``progress``.
        seed: seed of the resamples, at least 0.
        replace: whether a sample can be drawn several times. If not, choose a `fraction` below one, such as 0.5 for
            stability selection (`Bootstrap.threshold`). Choose False for CMIknn, since repeated samples distort nearest
            neighbours.
        fraction: size of a resample relative to that of the data.
        folder: a folder that keeps each resample's graph, so that an interrupted run can be resumed and a later run
            with a larger `n` reuses the graphs; None keeps nothing.
        processes: number of processes that share the searches and the cores; None means that this process makes all
            searches. A script must be safe to import (``if __name__ == "__main__":``), as for every pool of processes.
        executor: runs the searches instead: a `concurrent.futures.Executor` or an object like it, such as a Dask
            client's ``get_executor()``.
        progress: whether to show a progress bar; None shows it on a terminal or in a notebook if tqdm is installed.

    Raises:
        InvalidProblem: the data or a parameter cannot be used, or the folder belongs to other data or settings; and the
        errors of `pc`.
    """
    if isinstance(data, Problem) or options.get("n_samples") is not None:
        raise InvalidProblem(
            "data must be samples in rows: a correlation matrix or a ready problem cannot be resampled"
        )
    if options.get("missing") == "imputed":
        raise InvalidProblem("missing='imputed' has several tables, which are not resampled together; give one of them")
    for name, value, least in (("n", n, 1), ("seed", seed, 0), ("processes", 1 if processes is None else processes, 1)):
        if not (as_number(value).is_integer() and value >= least):
            raise InvalidProblem(f"{name} is {value!r}; it must be a whole number of at least {least}")
    if not as_number(fraction) > 0 or (fraction > 1 and not replace):
        raise InvalidProblem(f"fraction is {fraction!r}; it must lie above 0, and at 1 or below without replacement")
    n, seed, fraction = int(n), int(seed), float(fraction)
    graph = pc(data, alpha, **options)  # This also checks the other arguments.
    problem = graph.skeleton.problem
    draw = functools.partial(resampled_rows, seed=seed, replace=replace, fraction=fraction)
    search = functools.partial(_search, *_samples(data, problem.family, options), alpha, draw)
    store = None
    if folder is not None:
        answer_options = {name: repr(value) for name, value in options.items() if name not in NEUTRAL_OPTIONS}
        settings = {"seed": seed, "replace": replace, "fraction": fraction, "options": answer_options}
        store = ResultFolder(Path(folder), "bootstrap", {**settings, "data": problem.fingerprint})
    p = len(graph.names)
    counts = np.zeros((2, p, p), np.int32)
    remaining = []
    for k in range(n):
        stored_edges = store and store.read(f"{k:06d}", lambda _, arrays: _checked_edges(arrays["edges"], p))
        if stored_edges is None:
            remaining.append(k)
        else:
            _add(counts, stored_edges)
    shown_messages: set[str] = set()
    with bar(progress, n, "resamples", " resamples", done=n - len(remaining)) as display, warnings.catch_warnings():
        warnings.simplefilter("always")
        for k, edges, messages in _search_all(search, remaining, processes, executor):
            if store is not None:
                store.write(f"{k:06d}", {}, {"edges": edges})
            _add(counts, edges)
            for message in messages:
                if message not in shown_messages:
                    shown_messages.add(message)
                    warnings.warn(f"in a resample: {message}", stacklevel=2)
            display.update()
    undirected = counts[UNDIRECTED] + counts[UNDIRECTED].T
    return Bootstrap(n, counts[DIRECTED], undirected, graph, bool(replace), fraction)


def resampled_rows(n_samples: int, seed: int, k: int, replace: bool = True, fraction: float = 1.0) -> np.ndarray:
    """Return the rows of resample k: max(1, round(fraction * n_samples)) indexes from 0 to n_samples - 1.

    The rows are drawn from the raw stream of PCG64, which NumPy guarantees for all versions, unlike the distributions
    of its Generator.
    """
    size = max(1, round(fraction * n_samples))
    stream = np.random.PCG64(np.random.SeedSequence([seed, k]))
    if replace:
        return (stream.random_raw(size) % np.uint64(n_samples)).astype(np.int64)
    return np.argsort(stream.random_raw(n_samples), kind="stable")[:size]


def _samples(data: Any, family: str, options: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the samples in rows, without dropped ones, and the options with which `pc` takes resamples of them."""
    request = SearchRequest.of(**options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The search of all data has already issued the warnings.
        table = request.read(data, get_family(family).data)
    options = {name: value for name, value in options.items() if name not in FORMAT_OPTIONS}
    missing = "pairwise" if request.missing == "pairwise" else "error"
    changed = {"names": table.names, "transpose": False, "missing": missing}
    values = np.asarray(table.values) if isinstance(table.values, RowStream) else table.values
    if get_family(family).data == "labels" and hasattr(values, "select_dtypes"):
        # A resample has the categories of all samples, of which some may not occur in it.
        declared = {str(name): list(values[name].cat.categories) for name in values.select_dtypes("category")}
        changed["categories"] = declared | dict(options.get("categories") or {})
    return values, {**options, **changed, "family": family}


# --- searches --------------------------------------------------------------------------------------------------------
def _search(
    data: Any, options: Mapping[str, Any], alpha: float, draw: Callable[..., np.ndarray], k: int
) -> tuple[int, np.ndarray, list[str]]:
    """Search resample k, whose rows `draw` chooses; returns its number, its edges, and the messages of its warnings."""
    rows = draw(len(data), k=k)
    resampled = data.iloc[rows] if hasattr(data, "iloc") else np.asarray(data)[rows]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        graph = pc(resampled, alpha, **options)
    return k, _edges(graph), [str(warning.message) for warning in caught]


def _edges(graph: CPDAG) -> np.ndarray:
    """Return the edges as i, j and `DIRECTED` (i -> j) or `UNDIRECTED` (i < j): (m, 3) int32."""
    parts = [
        np.insert(np.argwhere(matrix), 2, kind, axis=1)
        for kind, matrix in ((UNDIRECTED, np.triu(graph.undirected)), (DIRECTED, graph.directed))
    ]
    return np.concatenate(parts).astype(np.int32)


def _checked_edges(edges: np.ndarray, p: int) -> np.ndarray:
    """Return the edges of a resample's file; raises ValueError if they are no edges of p variables."""
    i, j, kind = edges.T
    in_range = (edges >= 0).all() and (edges[:, :2] < p).all() and (kind <= DIRECTED).all()
    distinct = len(np.unique(np.sort(edges[:, :2], axis=1), axis=0)) == len(edges)
    if edges.dtype != np.int32 or not in_range or not distinct or (i == j).any() or (i > j)[kind == UNDIRECTED].any():
        raise ValueError(f"its edges are not those of {p} variables")
    return edges


def _add(counts: np.ndarray, edges: np.ndarray) -> None:
    i, j, kind = edges.T
    counts[kind, i, j] += 1


def _limit_threads(threads: int) -> None:
    os.environ.setdefault("GPUPC_HOST_THREADS", str(threads))


def _search_all(
    search: Callable[[int], Any], numbers: Sequence[int], processes: int | None, executor: Executor | None
) -> Iterator[tuple[int, np.ndarray, list[str]]]:
    """Search these resamples and yield each result of `_search` when it is complete."""
    if executor is not None:
        for future in as_completed([executor.submit(search, k) for k in numbers]):
            yield future.result()
    elif processes in (None, 1) or not numbers:
        yield from map(search, numbers)
    else:
        workers = min(int(processes), len(numbers))
        threads = max(1, len(os.sched_getaffinity(0)) // workers)
        context = multiprocessing.get_context("spawn")  # A forked process could not use an initialised device.
        with ProcessPoolExecutor(workers, context, _limit_threads, (threads,)) as pool:
            try:
                yield from _search_all(search, numbers, None, pool)
            except BrokenProcessPool as error:
                raise RuntimeError(
                    "a process of bootstrap(processes=...) ended before its search was complete: it was killed (out of "
                    "memory?), or this script cannot be imported by other processes; put its calls under `if __name__ "
                    '== "__main__":`, or leave processes out'
                ) from error
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
