"""The authors' own programs, where they are installed, find the edges of the references."""

import numpy as np
import pytest

from gpupc_impl import DiscreteProblem, GaussianProblem, NonlinearProblem, methods, skeleton
from gpupc_impl.core.registry import get_method
from gpupc_impl.core.solve import unavailable
from tests.graphs import linear_samples

pytestmark = pytest.mark.gpu

PEERS = [name for name, method in methods().items() if method.module.startswith("baselines.peers.")]


def available(name):
    method = get_method(name)
    if reason := unavailable(method, "cuda"):
        pytest.skip(reason)
    return method


@pytest.fixture(params=[name for name in PEERS if not get_method(name).random])
def peer(request):
    return available(request.param)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("options", [{}, {"df_convention": "cupc"}, {"max_level": 1}])
def test_finds_the_same_edges(peer, seed, options):
    data = linear_samples(60, 300, 0.08, seed)
    if peer.family == "gaussian":
        problem, reference = GaussianProblem.from_data(data, **options), "stable-serial"
    elif "df_convention" in options:
        pytest.skip("a convention of the Gaussian test")
    else:
        codes = np.digitize(data[:, :20] / data[:, :20].std(axis=0), [-0.5, 0.5])
        own = {"test": "g-square", "df_rule": "adjusted"} if peer.name == "fastpgm" else {}  # it has one test only
        problem, reference = DiscreteProblem.from_data(codes, alpha=0.01, **own, **options), "discrete-serial"
    found, expected = (skeleton(problem, method=name) for name in (peer.name, reference))
    assert np.array_equal(found.adjacency, expected.adjacency)
    if found.stopped_because != "the call has ended":  # A whole call of another package says nothing of its levels.
        assert found.edges_per_level == expected.edges_per_level
        assert found.stopped_because == expected.stopped_because


@pytest.mark.parametrize("search", ["parallel", "single"])
def test_gpucmiknn_finds_strong_dependences(search):
    """Its random numbers are its own: an independent pair keeps its edge once in a hundred times at most."""
    available("gpucmiknn-authors")
    rng = np.random.default_rng(0)
    first = rng.standard_normal((400, 3))
    second = np.tanh(2 * first) + 0.5 * rng.standard_normal((400, 3))
    third = second**2 + 0.2 * rng.standard_normal((400, 3))
    data = np.hstack([first, second, third])
    problem = NonlinearProblem.from_data(data, alpha=0.01, permutations=100, max_level=1)
    found = skeleton(problem, method="gpucmiknn-authors", search=search)
    assert all(found.adjacency[v, v + 3] and found.adjacency[v + 3, v + 6] for v in range(3))
    assert found.n_edges <= 6 + 4
    assert found.levels_run == 2
