"""Where the arrays of a problem lie: in memory that a backend gives, and the problem is the same."""

import numpy as np
import pytest

from gpupc_impl import skeleton
from gpupc_impl.backends.host import HostBackend
from gpupc_impl.core import allocation
from gpupc_impl.discrete.problem import DiscreteProblem
from gpupc_impl.gaussian.large import problem_from_data
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.kernel.problem import KernelProblem
from gpupc_impl.measurement.worker import Session
from gpupc_impl.mixed.problem import MixedProblem
from gpupc_impl.nonlinear.problem import NonlinearProblem
from gpupc_impl.regression.problem import RegressionProblem

DATA = np.random.default_rng(0).integers(0, 3, (60, 5))
PROBLEMS = {
    "gaussian": lambda: GaussianProblem.from_data(DATA),
    "a correlation matrix": lambda: GaussianProblem.from_correlation(np.corrcoef(DATA.T), n_samples=60),
    "samples": lambda: GaussianProblem.from_data(DATA, correlations="device"),
    "discrete": lambda: DiscreteProblem.from_data(DATA),
    "nonlinear": lambda: NonlinearProblem.from_data(DATA),
    "kernel": lambda: KernelProblem.from_data(DATA),
    "mixed": lambda: MixedProblem.from_data(DATA, categories=["V0"]),
    "regression": lambda: RegressionProblem.from_data(DATA, categories=["V0"]),
}


class Shelf:
    """Memory that knows what it gave."""

    def __init__(self):
        self.given: list[np.ndarray] = []

    def empty(self, shape, dtype):
        self.given.append(np.full(shape, 7, dtype))
        return self.given[-1].view()

    def has(self, array) -> bool:
        return any(array.base is each and array.flags.c_contiguous and not array.flags.writeable for each in self.given)


@pytest.fixture
def shelf():
    return Shelf()


def largest_array(problem) -> np.ndarray:
    return max(problem._arrays().values(), key=lambda array: array.nbytes)


@pytest.mark.parametrize("made", PROBLEMS.values(), ids=PROBLEMS)
def test_a_problem_is_made_there(shelf, made):
    with allocation.allocated_by(shelf.empty):
        problem = made()
    assert shelf.has(largest_array(problem))
    assert problem.fingerprint == made().fingerprint
    assert not shelf.has(largest_array(made()))


@pytest.mark.parametrize("made", PROBLEMS.values(), ids=PROBLEMS)
def test_a_problem_that_is_there_is_copied(shelf, made):
    problem = made()
    with allocation.allocated_by(shelf.empty):
        copied = problem.reallocated()
    copied.__dict__.pop("fingerprint", None)
    assert copied.fingerprint == problem.fingerprint
    assert all(shelf.has(array) for array in copied._arrays().values())
    assert not any(shelf.has(array) for array in problem._arrays().values())


def test_what_lies_in_a_file_stays_there(shelf, tmp_path):
    problem = problem_from_data(DATA.astype(float), tmp_path / "correlation.npy")
    with allocation.allocated_by(shelf.empty):
        assert problem.reallocated().correlation is problem.correlation
    assert not shelf.given


def test_who_searches_makes_the_problem_where_the_backend_wants_it(shelf, monkeypatch):
    monkeypatch.setattr(HostBackend, "host_arrays", property(lambda backend: shelf.empty))
    found = skeleton(np.sin(DATA), backend="host", transpose=False)
    assert shelf.has(found.problem.correlation)


def test_who_measures_puts_it_there_once_for_all_settings(shelf, monkeypatch, tmp_path):
    monkeypatch.setattr(HostBackend, "host_arrays", property(lambda backend: shelf.empty))
    problem, path = GaussianProblem.from_data(DATA), str(tmp_path / "problem.npz")
    problem.save(path)
    session = Session()
    given = {"fingerprint": problem.fingerprint, "backend": "host", "params": {}, "separating_sets": "canonical"}
    given |= {"problem": path, "device_memory_limit": None, "single_test": False}
    for name in ("cupc-s", "pair-scan"):
        session.open(name, method=name, **given)
    cold = session.run("cupc-s", path, False)
    for name in ("cupc-s", "pair-scan"):
        assert session.run(name, path, False)["result"]["sepsets_sha256"] == cold["result"]["sepsets_sha256"]
        assert len(shelf.given) == 1
        assert shelf.has(session.problems[path].correlation)
    for name in ("cupc-s", "pair-scan"):
        session.forget(name)
    assert not session.problems
    session.open("cupc-s", method="cupc-s", **given)
    session.run("cupc-s", path, False)
    assert shelf.has(session.problems[path].correlation)
