"""Skeletons on which other packages agree, found by every Gaussian method on every backend that it can use here.

`data/generated-p200.csv.gz` is a sample of cuPC's generator (section 5.6), 1000 x 200. On `generated-p200_pcalg.edges`
pcalg 2.7-12 (stable and stable.fast), ParallelPC 1.2, bnlearn 4.9 (zf) and causal-learn 0.1.4.8 agree, at alpha 0.01.
"""

import functools
from pathlib import Path

import numpy as np
import pytest

from gpupc_impl import GaussianProblem, Skeleton, methods, skeleton
from gpupc_impl.core.solve import unavailable
from tests import loaded
from tests.graphs import edges_to_adjacency

DATA = Path(__file__).parent / "data"

PARAMS = {"baseline-2": {"threads": 64}}
"""Fewer threads than the default: on the host backend every one of them is paid for."""

# sha256 of np.packbits(adjacency), as `Skeleton.sha256`, of the 591 edges that pcalg 2.6.1's skeleton() leaves of
# NCI-60 at alpha 0.05 (a list of 0-based pairs "i j", read with `edges_to_adjacency`); the list itself is not ours.
PCALG_NCI60_SHA256 = "43513802810975ec1a871dfc18348f197b7aa48b8ea6eaaac24b35fb13ea73b6"


def settings(family: str = "gaussian", canonical_only: bool = True, slow: tuple[str, ...] = ("causal-learn",)):
    """(method, backend) of a family's methods whose separating sets are canonical, or of all its methods.

    Args:
        slow: methods that are marked so; all are compared with pcalg's skeleton of 200 variables by default.
            causal-learn needs minutes for the other data of this file.
    """
    for method in methods(family).values():
        for backend in method.backends:
            if canonical_only and not method.canonical:
                continue
            name, reason = f"{method.name}-{backend}", unavailable(method, backend)
            marks = [pytest.mark.gpu] if backend == "cuda" else []
            marks += [pytest.mark.slow] if method.name in slow and backend != "cuda" else []
            marks += [pytest.mark.skip(reason=f"{name}: {reason}")] if reason else []
            yield pytest.param(method.name, backend, marks=marks, id=name)


@functools.cache
def load(name: str) -> np.ndarray:
    values = loaded.load(name).values
    values.flags.writeable = False
    return values


@functools.cache
def reference(name: str) -> Skeleton:
    return skeleton(load(name), method="stable-serial", alpha=0.05)


@pytest.mark.parametrize(("method", "backend"), list(settings(canonical_only=False, slow=("causal-learn", "pgmpy"))))
def test_generated_p200(method, backend):
    data = np.loadtxt(DATA / "generated-p200.csv.gz", delimiter=",")
    edges = np.loadtxt(DATA / "generated-p200_pcalg.edges", dtype=int)
    assert data.shape == (1000, 200)
    assert len(edges) == 349
    found = skeleton(data, alpha=0.01, method=method, backend=backend, **PARAMS.get(method, {}))
    assert np.array_equal(found.adjacency, edges_to_adjacency(edges, 200))


@pytest.mark.parametrize(
    ("method", "backend"), list(settings(slow=("baseline-2", "causal-learn", "cupc-e", "out-of-core-um")))
)
def test_nci60(method, backend):
    data = load("nci-60")
    found = skeleton(data, alpha=0.05, method=method, backend=backend, **PARAMS.get(method, {}))
    assert found.edges_per_level == (434052, 6534, 593, 591)
    assert found.sha256 == PCALG_NCI60_SHA256
    assert found == reference("nci-60")


QUICK = list(settings(slow=("baseline-2", "cupc-e", "cupc-s", "out-of-core-um")))


@pytest.mark.parametrize(("method", "backend"), QUICK)
def test_nci60_by_the_published_codes_degrees_of_freedom(method, backend):
    options = {"df_convention": "cupc", **PARAMS.get(method, {})}
    found = skeleton(load("nci-60"), alpha=0.05, method=method, backend=backend, **options)
    assert found.n_edges == 580


@pytest.mark.parametrize(("method", "backend"), QUICK)
def test_mcc(method, backend):
    """Five pairs of identical columns: near-singular conditioning matrices and undefined tests on real data."""
    data = load("mcc")
    found = skeleton(data, alpha=0.05, method=method, backend=backend, **PARAMS.get(method, {}))
    assert found == reference("mcc")
    assert found.n_edges == 1640
    assert found.undefined_tests > 0
    assert found.pseudo_inverses > 0


@pytest.mark.parametrize("name", ["ecoli70", pytest.param("arth150", marks=pytest.mark.slow)])
def test_causal_learn_agrees_on_gaussian_networks(name):
    """Its separating sets too: no test of these data is near enough to its threshold to tell the programs apart."""
    method = methods()["causal-learn"]
    if reason := unavailable(method):
        pytest.skip(reason)
    problem = GaussianProblem.from_data(load(name), alpha=0.05)
    found, expected = skeleton(problem, method="causal-learn"), reference(name)
    assert found == expected
    assert found.edges_per_level == expected.edges_per_level
