"""A CPDAG with every kind of edge, and names of every kind."""

import matplotlib
import numpy as np
import pytest

from gpupc_impl import CPDAG
from tests.graphs import edges_to_adjacency, make_skeleton

matplotlib.use("Agg")

NAMES = (
    *("plain", 'quote"s, comma; \\back\\', "line\nbreak", "<b>&amp;</b>", "=cmd|'/c calc'!A1", "-dash", "β–漢字🙂"),
    *("$x_1$ and $", "a name that is longer than any box can hold, really", " space "),
)
DIRECTED = [(0, 1), (2, 1), (1, 3), (4, 5)]
UNDIRECTED = [(3, 4), (6, 7)]
CONFLICTS = [(5, 6)]  # variables 8 and 9 have no edge


@pytest.fixture
def skeleton():
    return skeleton_of_names(NAMES)


def skeleton_of_names(names):
    facts = {"method": "cupc-s", "backend": "host", "params": {"theta": 64}}
    facts |= {"problem": {"alpha": 0.01, "n_samples": 1234, "max_level": None}}
    levels = {"tests_per_level": (45, 12), "edges_per_level": (8, 7), "seconds_per_level": (0.5, 0.25), "levels_run": 2}
    levels |= {"stopped_because": "complete: for the sake of the <test>"}
    edges = [*DIRECTED, *UNDIRECTED, *CONFLICTS]
    return make_skeleton(len(names), edges, {(0, 2): [9]}, names, facts=facts, **levels)


@pytest.fixture
def cpdag(skeleton):
    return cpdag_of(skeleton)


def cpdag_of(skeleton):
    directed = np.zeros_like(skeleton.adjacency)
    directed[tuple(np.array(DIRECTED).T)] = True
    undirected = edges_to_adjacency([*UNDIRECTED, *CONFLICTS], len(skeleton.names))
    return CPDAG(directed, undirected, np.array(CONFLICTS), skeleton)


@pytest.fixture(params=["skeleton", "cpdag"])
def result(request):
    return request.getfixturevalue(request.param)
