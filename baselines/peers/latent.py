"""Other packages' RFCI and FCI.

The published algorithms remove one edge after another, so their graphs depend on the order of the variables
(docs/latent.md). Marks that differ from ours are therefore counted, and are not an error.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from baselines.peers import _tetrad
from baselines.peers._answer import call_package
from gpupc_impl.core.pag import MARKS
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.core.registry import Run, method, needs_package
from gpupc_impl.core.result import Skeleton
from gpupc_impl.latent.problem import LatentProblem

PEER: dict[str, Any] = {"family": "latent", "backends": ("cpu",), "canonical": False, "knowledge": False}
IN_ORDER = "in this package the graph depends on the order of the variables"


def _marks(marks: np.ndarray) -> tuple[np.ndarray, list[Any]]:
    """Return the edges and the marks of a (p, p) matrix with pcalg's codes."""
    return marks != 0, [(i, j, MARKS[marks[i, j]], None) for i, j in np.argwhere(marks).tolist()]


def _refuse_rfci(problem: LatentProblem, run: Run) -> None:
    if problem.algorithm == "rfci":
        raise InvalidProblem(f"method {run.facts['method']!r} has no RFCI; leave it out of this problem")


@method(
    "tetrad-fci",
    source="Tetrad, search.Rfci and search.Fci with IndTestFisherZ",
    summary="RFCI and FCI of the package Tetrad (Java)",
    unavailable=_tetrad.unavailable,
    **PEER,
)
def tetrad(problem: LatentProblem, run: Run) -> Skeleton:
    def search(test: Any) -> Any:
        package = _tetrad.tetrad().search
        return (package.Rfci if problem.algorithm == "rfci" else package.Fci)(test).search()

    edges = lambda graph: _tetrad.edges_of(problem, graph)  # noqa: E731
    return call_package(problem, run, search, edges, data=_tetrad.test_of, differs_by=IN_ORDER)


@method(
    "andrey-fci",
    source="andrey-core, fci",
    summary="FCI of the package andrey-core",
    unavailable=needs_package("andrey", "andrey-core"),
    **PEER,
)
def andrey_core(problem: LatentProblem, run: Run) -> Skeleton:
    import andrey

    _refuse_rfci(problem, run)
    return call_package(
        problem,
        run,
        lambda samples: andrey.fci(samples, alpha=problem.alpha),
        lambda found: _marks(found.structure.to_pcalg()),
        differs_by=IN_ORDER,
    )


@method(
    "causal-learn-fci",
    source="causal-learn, fci with fisherz",
    summary="FCI of the package causal-learn (Python, slow)",
    unavailable=needs_package("causallearn", "causal-learn"),
    **PEER,
)
def causal_learn(problem: LatentProblem, run: Run) -> Skeleton:
    from causallearn.search.ConstraintBased.FCI import fci

    _refuse_rfci(problem, run)
    codes = {-1: 3, 1: 2, 2: 1}  # Its [i, j] is the mark at i: -1 a tail, 1 an arrow, 2 a circle.

    def translate(found: Any) -> Any:
        theirs = found[0].graph.T
        return _marks(np.select([theirs == code for code in codes], list(codes.values()), 0))

    search = lambda samples: fci(samples, "fisherz", problem.alpha, verbose=False, show_progress=False)  # noqa: E731
    return call_package(problem, run, search, translate, differs_by=IN_ORDER)
