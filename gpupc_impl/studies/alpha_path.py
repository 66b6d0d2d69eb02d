"""Finds skeletons over a grid of alphas."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpupc_impl.core.family import with_fields
from gpupc_impl.core.files import open_arrays
from gpupc_impl.core.problem import InvalidProblem, Problem, search_parameters
from gpupc_impl.core.result import Skeleton, read_whole
from gpupc_impl.ownership import open_regular
from gpupc_impl.search import SearchRequest
from gpupc_impl.views.exports import write_study
from gpupc_impl.views.progress import bar

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

ALPHAS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1)


class AlphaPath(dict[float, Skeleton]):
    """The skeletons of the same data by ascending alpha: ``path[0.01]`` equals ``skeleton(data, 0.01)``."""

    def __repr__(self) -> str:
        edges = ", ".join(f"{alpha:g}: {skeleton.n_edges:,} edges" for alpha, skeleton in self.items())
        return f"AlphaPath({edges})"

    def _repr_html_(self) -> str:
        from gpupc_impl.views.pages import study

        return study("Edges by alpha", self.to_frame(), self.plot)

    def to_frame(self) -> pandas.DataFrame:
        """Return a DataFrame with a row for each alpha: ``alpha``, ``edges``, ``levels``, ``tests`` and ``seconds``.

        The seconds are the time of all levels, without the preparation of the data.
        """
        import pandas

        rows = [
            (alpha, each.n_edges, each.levels_run, sum(each.tests_per_level), sum(each.seconds_per_level))
            for alpha, each in self.items()
        ]
        return pandas.DataFrame(rows, columns=["alpha", "edges", "levels", "tests", "seconds"])

    def edges(self) -> pandas.DataFrame:
        """Return a DataFrame with a row for each pair that is an edge at some alpha.

        Its columns are ``source``, ``target`` and, for each alpha, a column of this name that states whether the pair
        is an edge. A larger alpha usually keeps more edges, but not always: a set may separate a pair because its
        variables are neighbours only at the larger alpha.
        """
        import pandas

        names = next(iter(self.values())).names
        at_some_alpha = sum(skeleton.adjacency for skeleton in self.values()) > 0
        pairs = [(i, j) for i, j in zip(*at_some_alpha.nonzero(), strict=True) if i < j]
        columns: dict[Any, Any] = {"source": [names[i] for i, _ in pairs], "target": [names[j] for _, j in pairs]}
        columns |= {alpha: [bool(skeleton.adjacency[pair]) for pair in pairs] for alpha, skeleton in self.items()}
        return pandas.DataFrame(columns)

    def save(self, path: str | Path) -> None:
        """Write a file whose format the suffix selects: ``.npz`` (everything but the data, which `load` reads),
        ``.csv`` (as `edges`), or the picture of `plot`, ``.png`` or ``.svg``."""
        write_study(self, self.edges(), Path(path))

    def stored_arrays(self) -> dict[str, Any]:
        """Return the arrays by which `save` stores everything but the data in an ``.npz``."""
        arrays: dict[str, Any] = {"alphas": np.array(list(self))}
        for k, skeleton in enumerate(self.values()):
            arrays |= {f"{k}.{name}": array for name, array in skeleton.stored_arrays().items()}
        return arrays

    @classmethod
    def load(cls, path: str | Path) -> AlphaPath:
        """Read the ``.npz`` that `save` wrote. `InvalidSkeleton` is raised if it has other content, or is damaged."""
        with open_regular(path) as file, read_whole(path, "holds no skeletons by alpha"), open_arrays(file) as stored:
            arrays = {name: stored[name] for name in stored}
            skeletons = {}
            for k, alpha in enumerate(arrays.pop("alphas").tolist()):
                own = {name.partition(".")[2]: array for name, array in arrays.items() if name.startswith(f"{k}.")}
                skeletons[alpha] = Skeleton.of_arrays(own)
            return cls(skeletons)

    def plot(self, ax: Axes | None = None, *, title: str | None = None) -> Axes:
        """Draw the number of edges against alpha; this needs matplotlib (extra ``plots``)."""
        from gpupc_impl.views.plots.charts import edges_against_alpha

        skeletons = list(self.values())
        title = f"{len(skeletons[0].names):,} variables" if title is None else title
        return edges_against_alpha(list(self), [skeleton.n_edges for skeleton in skeletons], ax, title)


def alpha_path(
    data: Any, alphas: Iterable[float] = ALPHAS, *, progress: bool | None = None, **options: Any
) -> AlphaPath:
    """Find the skeleton at each of several alphas, which are significance levels in any order.

    The data are checked and prepared once (correlations, codes, ranks), and all searches share an open backend with its
    compiled kernels.

    Args:
        progress: whether to show a progress bar; None shows it on a terminal or in a notebook if tqdm is installed.
        data, options: everything else that `skeleton` takes.

    Raises:
        InvalidProblem: there is no alpha, or one is passed twice; and the errors of `skeleton`.
    """
    if not isinstance(alphas, Iterable):
        raise InvalidProblem(f"alphas is {alphas!r}; it must be a sequence of numbers")
    given = [search_parameters(alpha, options.get("max_level"))["alpha"] for alpha in alphas]
    grid = sorted(set(given))
    if not grid or len(grid) != len(given):
        raise InvalidProblem(f"alphas are {given!r}; give at least one, and none twice")
    if isinstance(data, Problem):
        raise InvalidProblem("data is a ready problem, which carries its own alpha; give the data themselves")
    skeletons: dict[float, Skeleton] = {}
    with (
        SearchRequest.of(alpha=grid[0], **options).open(data) as search,
        bar(progress, len(grid), "alphas", " alphas") as progress_bar,
    ):
        problem = search.problem()
        for alpha in grid:
            skeletons[alpha] = search.solve(with_fields(problem, alpha=alpha))
            progress_bar.update()
    return AlphaPath(skeletons)
