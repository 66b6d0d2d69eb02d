"""Skeletons over a grid of alphas."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpupc_impl.api import prepare_for
from gpupc_impl.core.knowledge import with_knowledge
from gpupc_impl.core.problem import InvalidProblem, Problem, search_parameters
from gpupc_impl.core.result import Skeleton
from gpupc_impl.views.progress import bar

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

ALPHAS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1)


@dataclasses.dataclass(frozen=True)
class AlphaPath(Mapping[float, Skeleton]):
    """The skeletons of the same data by alpha, ascending: ``path[0.01]`` is what ``skeleton(data, 0.01)`` finds."""

    skeletons: Mapping[float, Skeleton]

    def __getitem__(self, alpha: float) -> Skeleton:
        return self.skeletons[alpha]

    def __iter__(self) -> Iterator[float]:
        return iter(self.skeletons)

    def __len__(self) -> int:
        return len(self.skeletons)

    def __repr__(self) -> str:
        edges = ", ".join(f"{alpha:g}: {found.n_edges:,} edges" for alpha, found in self.items())
        return f"AlphaPath({edges})"

    def to_frame(self) -> pandas.DataFrame:
        """A row an alpha: ``alpha``, ``edges``, ``levels``, ``tests`` and ``seconds`` (in levels)."""
        import pandas

        rows = [
            (alpha, found.n_edges, found.levels_run, sum(found.tests_per_level), sum(found.seconds_per_level))
            for alpha, found in self.items()
        ]
        return pandas.DataFrame(rows, columns=["alpha", "edges", "levels", "tests", "seconds"])

    def edges(self) -> pandas.DataFrame:
        """A row a pair that is an edge at some alpha: ``source``, ``target`` and a column of bools an alpha.

        A larger alpha mostly keeps more edges, but need not: a set that separates a pair may then no longer be of its
        neighbours.
        """
        import pandas

        some = next(iter(self.values()))
        anywhere = sum(found.adjacency for found in self.values()) > 0
        pairs = [(i, j) for i, j in zip(*anywhere.nonzero(), strict=True) if i < j]
        columns: dict[Any, Any] = {
            "source": [some.names[i] for i, _ in pairs],
            "target": [some.names[j] for _, j in pairs],
        }
        columns |= {alpha: [bool(found.adjacency[pair]) for pair in pairs] for alpha, found in self.items()}
        return pandas.DataFrame(columns)

    def plot(self, ax: Axes | None = None, *, title: str | None = None) -> Axes:
        """Draw the number of edges against alpha.

        Raises:
            ImportError: matplotlib is not installed (extra ``plots``).
        """
        from gpupc_impl.views.plots.charts import edges_against_alpha

        some = next(iter(self.values()))
        title = f"{len(some.names):,} variables" if title is None else title
        return edges_against_alpha(list(self), [found.n_edges for found in self.values()], ax, title)


def alpha_path(
    data: Any,
    alphas: Sequence[float] = ALPHAS,
    *,
    family: str = "auto",
    method: str = "auto",
    backend: str = "auto",
    n_samples: int | None = None,
    names: Sequence[str] | None = None,
    max_level: int | None = None,
    missing: str = "error",
    transpose: bool | None = None,
    knowledge: Any = None,
    device_memory_limit: int | None = None,
    progress: bool | None = None,
    **options: Any,
) -> AlphaPath:
    """The skeleton at each of several alphas.

    The data are checked and prepared once (correlations, codes, ranks), and all searches share an open backend with its
    compiled kernels.

    Args:
        data, options and what is not listed: all that `skeleton` takes.
        alphas: significance levels, in any order.
        progress: a progress bar; None: where somebody can see it, and tqdm is installed.

    Raises:
        What `skeleton` raises; InvalidProblem: no alpha, or one that is given twice.
    """
    grid = sorted({search_parameters(alpha, max_level)["alpha"] for alpha in alphas})
    if not grid or len(grid) != len(alphas):
        raise InvalidProblem(f"alphas are {list(alphas)!r}; give at least one, and none twice")
    if isinstance(data, Problem):
        raise InvalidProblem("data is a ready problem, which carries its own alpha; give the data themselves")
    prepared, problem = prepare_for(
        data,
        grid[0],
        family,
        method,
        backend,
        n_samples,
        names,
        max_level,
        missing,
        transpose,
        device_memory_limit,
        options,
    )
    if knowledge is not None:
        problem = with_knowledge(problem, knowledge)
    found: dict[float, Skeleton] = {}
    with bar(progress, len(grid), "alphas", " alphas") as shown:
        for alpha in grid:
            of_alpha = dataclasses.replace(problem, alpha=alpha)
            found[alpha] = dataclasses.replace(prepared.solve(of_alpha), problem=of_alpha)
            shown.update()
    return AlphaPath(found)
