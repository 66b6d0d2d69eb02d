"""PC of other packages, called as their users call it: from samples to a CPDAG, of which the skeleton is compared.

None of these keeps its separating sets in a form that all of them have, so their answers are compared as graphs alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from baselines.peers import _tetrad
from baselines.peers._answer import call_package, deepest_level, samples_of
from gpupc_impl.core.registry import Run, method, needs_package
from gpupc_impl.core.result import Skeleton

PEER: dict[str, Any] = {"backends": ("cpu",), "canonical": False, "knowledge": False}
FAMILIES = {"": "gaussian", "-discrete": "discrete"}
"""What follows a package's name in that of its method for a family."""

ONE_SIDED = "gCastle draws sets from the neighbours of a pair's first variable alone"
OWN_COUNT = "the package counts degrees of freedom by a rule of its own"


def package_methods(name: str, source: str, unavailable: Any) -> Any:
    """Register a function as a package's method for Gaussian and for discrete problems."""

    def register(solve: Any) -> Any:
        for suffix, family in FAMILIES.items():
            summary = f"PC of the package {source.partition(',')[0]}"
            register_one = method(
                name + suffix, family=family, source=source, summary=summary, unavailable=unavailable, **PEER
            )
            solve = register_one(solve)
        return solve

    return register


def skeleton_only(found: Any) -> tuple[np.ndarray, list[Any]]:
    """Return the skeleton of a (p, p) matrix of edges, without marks."""
    edges = np.asarray(found) != 0
    return edges | edges.T, []


@package_methods("andrey", "andrey-core, pc", needs_package("andrey", "andrey-core"))
def andrey_core(problem: Any, run: Run) -> Skeleton:
    import andrey

    test = "fisherz" if problem.family == "gaussian" else {"chi-square": "chisq", "g-square": "gsq"}[problem.test]
    return call_package(
        problem,
        run,
        lambda samples: andrey.pc(samples, alpha=problem.alpha, indep_test=test, max_depth=problem.max_level),
        lambda found: skeleton_only(found.structure.to_numpy()),
        differs_by="" if getattr(problem, "df_rule", "adjusted") == "adjusted" else OWN_COUNT,
    )


@package_methods("tetrad", "Tetrad, search.Pc", _tetrad.unavailable)
def tetrad(problem: Any, run: Run) -> Skeleton:
    def search(test: Any) -> Any:
        pc = _tetrad.tetrad().search.Pc(test)
        pc.setDepth(-1 if problem.max_level is None else problem.max_level)
        return pc.search()

    return call_package(
        problem,
        run,
        search,
        lambda graph: (_tetrad.edges_of(problem, graph)[0], []),
        data=_tetrad.test_of,
        differs_by=OWN_COUNT if problem.family == "discrete" else "",
    )


@package_methods("pgmpy", "pgmpy, causal_discovery.PC(variant='stable')", needs_package("pgmpy", "pgmpy"))
def pgmpy(problem: Any, run: Run) -> Skeleton:
    import pandas
    from pgmpy.causal_discovery import PC

    discrete = problem.family == "discrete"

    def data(problem: Any) -> Any:
        frame = pandas.DataFrame(samples_of(problem), columns=range(problem.n_variables))
        return frame.astype("category") if discrete else frame

    search = PC(
        variant="stable",
        ci_test={"chi-square": "chi_square", "g-square": "g_sq"}[problem.test] if discrete else "fisher_z",
        significance_level=problem.alpha,
        max_cond_vars=deepest_level(problem, problem.n_variables),
        show_progress=False,
        n_jobs=1,
    )

    def translate(found: Any) -> Any:
        edges = np.zeros((problem.n_variables,) * 2, bool)
        for i, j in found.causal_graph_.edges():
            edges[i, j] = True
        return skeleton_only(edges)

    return call_package(problem, run, search.fit, translate, data=data, differs_by=OWN_COUNT if discrete else "")


@package_methods("gcastle", "gCastle, algorithms.PC(variant='stable')", needs_package("castle", "gcastle"))
def gcastle(problem: Any, run: Run) -> Skeleton:
    from castle.algorithms import PC

    test = "fisherz" if problem.family == "gaussian" else {"chi-square": "chi2", "g-square": "g2"}[problem.test]
    search = PC(variant="stable", alpha=problem.alpha, ci_test=test)

    def learn(samples: np.ndarray) -> Any:
        search.learn(samples)
        return search.causal_matrix

    return call_package(problem, run, learn, skeleton_only, differs_by=ONE_SIDED)
