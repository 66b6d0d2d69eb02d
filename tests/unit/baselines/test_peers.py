"""The adapters to the authors' own programs, with stand-ins for the programs: no GPU, and none of their code."""

import subprocess
import sys

import numpy as np
import pytest

from gpupc_impl import DiscreteProblem, GaussianProblem, InvalidParameter, InvalidProblem, skeleton
from gpupc_impl.backends import BackendUnavailable
from gpupc_impl.backends.simt import build
from gpupc_impl.core.registry import Run, get_method
from gpupc_impl.core.solve import open_method_backend, unavailable

STAND_IN = r"""
#include <cmath>

// Levels 0 and 1 with the documented arguments; sets go to [j, i] alone, which the adapter must find.
extern "C" void Skeleton(double* C, int* P, int* G, double* Th, int* l, int* maxlevel, double*, int* SepSet) {
    const int p = *P, room = 14;
    for (int k = 0; k < p * p * room; ++k)
        SepSet[k] = -1;
    for (int i = 0; i < p; ++i)
        for (int j = 0; j < p; ++j)
            G[i * p + j] = i != j && std::fabs(std::atanh(C[i * p + j])) >= Th[0];
    for (*l = 1; *l <= 1 && *l <= *maxlevel; ++*l) {
        for (int i = 0; i < p; ++i)
            for (int j = 0; j < i; ++j)
                for (int k = 0; k < p && G[i * p + j] == 1; ++k) {
                    const bool near = k != i && k != j && (G[i * p + k] || G[j * p + k]);
                    const double a = C[i * p + k], b = C[j * p + k];
                    const double r = (C[i * p + j] - a * b) / std::sqrt((1 - a * a) * (1 - b * b));
                    if (near && std::fabs(std::atanh(r)) < Th[1]) {
                        G[i * p + j] = G[j * p + i] = 2;  // goes when the level ends
                        SepSet[(i * p + j) * room] = k;
                    }
                }
        for (int k = 0; k < p * p; ++k)
            G[k] = G[k] == 1;
    }
}
"""

GPUCSL = {
    "kernel_management": """
class Kernels:
    made = []

    @classmethod
    def for_gaussian_ci(cls, p, devices, limit):
        cls.made.append(limit)
        return limit

    @classmethod
    def for_discrete_ci(cls, limit, p, most_categories, n):
        cls.made.append((limit, p, most_categories, n))
        return limit
""",
    "answer": """
import collections
import numpy as np
from gpupc_impl import skeleton

Result = collections.namedtuple("Result", "skeleton seperation_sets")
Timed = collections.namedtuple("Timed", "result runtime")

def answer(problem, limit, kernels, log_time):
    assert kernels == limit
    found = skeleton(problem, method=f"{'stable' if problem.family == 'gaussian' else 'discrete'}-serial")
    p = problem.n_variables
    sets = np.full((p, p, limit), -1, np.int32)
    for (i, j), members in found.sepsets.items():
        sets[i, j, :len(members)] = members
    for level in range(found.levels_run):
        log_time(f"[T: 0 D: 0]    Level {level} time", 0.5 + level)
    log_time("Computation time", 99.0)
    return Timed(Result(found.adjacency.astype(np.uint16), sets), 99.0)
""",
    "discover_skeleton_gaussian": """
from gpucsl.pc.answer import answer
from gpupc_impl import GaussianProblem

log_time = print

def discover_skeleton_gpu_gaussian(graph, data, correlation, alpha, limit, p, n, kernels):
    assert graph.shape == (p, p) and len(data) == n
    problem = GaussianProblem.from_correlation(
        correlation, n_samples=n, alpha=alpha, max_level=limit, df_convention="cupc"
    )
    return answer(problem, limit, kernels[0], log_time)
""",
    "discover_skeleton_discrete": """
from gpucsl.pc.answer import answer
from gpupc_impl import DiscreteProblem

log_time = print

def discover_skeleton_gpu_discrete(graph, data, alpha, limit, p, n, kernels):
    assert graph.shape == (p, p) and data.shape == (n, p)
    return answer(DiscreteProblem.from_data(data, alpha=alpha, max_level=limit), limit, kernels, log_time)
""",
}
"""A package gpucsl that answers with our references, under the arguments that the real one takes."""


def samples(p=15, m=60, seed=0):
    rng = np.random.default_rng(seed)
    weights = np.tril(rng.random((p, p)) < 0.3, -1) * rng.uniform(0.3, 1, (p, p))
    return np.linalg.solve(np.eye(p) - weights, rng.standard_normal((p, m))).T


def run(name, problem, **more):
    """The adapter itself: what comes before it looks for a GPU."""
    return get_method(name).solve(problem, Run(backend=None, params={}, facts={"method": name}, **more))


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("library")
    (folder / "stand_in.cpp").write_text(STAND_IN)
    try:
        command = build.find_compiler().command
    except BackendUnavailable as error:
        pytest.skip(str(error))
    made = folder / "stand_in.so"
    subprocess.run([*command, "-shared", "-fPIC", "-O1", "-o", str(made), str(folder / "stand_in.cpp")], check=True)
    return made


@pytest.fixture
def cupc(library, monkeypatch):
    monkeypatch.setenv("GPUPC_CUPC_LIBRARY", str(library))


@pytest.fixture
def kernels_made(tmp_path, monkeypatch):
    """The stand-in package installed: the list of the kernels that were asked for."""
    (tmp_path / "gpucsl" / "pc").mkdir(parents=True)
    for name, source in GPUCSL.items():
        (tmp_path / "gpucsl" / "pc" / f"{name}.py").write_text(source)
    for name in [name for name in sys.modules if name.partition(".")[0] == "gpucsl"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("baselines.peers.gpucsl._COMPILED", {})
    monkeypatch.setattr("baselines.peers.gpucsl._ENDS_WITH", {})
    from gpucsl.pc.kernel_management import Kernels

    yield Kernels.made
    for name in [name for name in sys.modules if name.partition(".")[0] == "gpucsl"]:
        del sys.modules[name]


def assert_same(found, expected):
    assert np.array_equal(found.adjacency, expected.adjacency)
    assert found.edges_per_level == expected.edges_per_level
    assert found.stopped_because == expected.stopped_because
    assert found.sepsets.keys() == expected.sepsets.keys()
    assert found.levels_run == len(found.tests_per_level) == len(found.seconds_per_level)
    assert found.facts["translation_s"] > 0


# --- cuPC-S ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("df_convention", ["pcalg", "cupc"])
@pytest.mark.parametrize("max_level", [0, 1])
@pytest.mark.parametrize("seed", range(3))
def test_cupc_is_given_the_problem_s_test(cupc, df_convention, max_level, seed):
    problem = GaussianProblem.from_data(samples(seed=seed), max_level=max_level, df_convention=df_convention)
    found, expected = run("cupc-authors", problem), skeleton(problem, method="stable-serial")
    assert_same(found, expected)
    assert found.sepsets.sizes().tolist() == expected.sepsets.sizes().tolist()
    assert all(len(members) <= 1 for members in found.sepsets.values())
    assert found.facts["problem"]["df_convention"] == df_convention


def test_cupc_answers_twice(cupc):
    """Its output arrays are used again; an answer is not changed by the next."""
    one, other = (GaussianProblem.from_data(samples(seed=seed), max_level=1) for seed in (1, 2))
    first = run("cupc-authors", one)
    run("cupc-authors", other)
    assert_same(first, skeleton(one, method="stable-serial"))


@pytest.mark.parametrize(("p", "m"), [(1, 50), (4, 3)])
def test_without_tests_the_program_is_not_started(monkeypatch, p, m):
    monkeypatch.delenv("GPUPC_CUPC_LIBRARY", raising=False)
    problem = GaussianProblem.from_correlation(np.eye(p), n_samples=m)
    found = run("cupc-authors", problem)
    assert (found.n_edges, found.levels_run) == (p * (p - 1) // 2, 0)
    assert found.stopped_because == skeleton(problem, method="stable-serial").stopped_because


def test_cupc_refuses_what_it_cannot_hold(cupc, monkeypatch):
    monkeypatch.setattr("baselines.peers.cupc_authors.MAX_VARIABLES", 10)
    with pytest.raises(InvalidProblem, match="takes up to 10 variables; the problem has 15"):
        run("cupc-authors", GaussianProblem.from_data(samples()))
    with pytest.raises(InvalidParameter, match="'cupc-authors' records no largest p-values; leave pmax out"):
        run("cupc-authors", GaussianProblem.from_data(samples()), pmax=True)


def test_cupc_says_why_it_cannot_be_used(monkeypatch, library, tmp_path):
    method = get_method("cupc-authors")
    monkeypatch.delenv("GPUPC_CUPC_LIBRARY", raising=False)
    assert "GPUPC_CUPC_LIBRARY does not name the library" in unavailable(method)
    missing = tmp_path / "missing.so"
    monkeypatch.setenv("GPUPC_CUPC_LIBRARY", str(missing))
    assert f"GPUPC_CUPC_LIBRARY names '{missing}', which cannot be used" in unavailable(method)
    monkeypatch.setenv("GPUPC_CUPC_LIBRARY", str(library))
    assert unavailable(method, "host") == "method 'cupc-authors' runs on backend cuda alone, not on host"
    assert unavailable(method) == unavailable(get_method("cupc-s"), "cuda")
    with pytest.raises(BackendUnavailable, match="runs on backend cuda alone, not on host"):
        open_method_backend(method, "host")


# --- GPUCSL ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("df_convention", ["pcalg", "cupc"])
@pytest.mark.parametrize("max_level", [None, 0, 2])
def test_gpucsl_tests_in_either_convention(kernels_made, df_convention, max_level):
    problem = GaussianProblem.from_data(samples(m=30), alpha=0.2, max_level=max_level, df_convention=df_convention)
    found, expected = run("gpucsl", problem), skeleton(problem, method="stable-serial")
    assert_same(found, expected)
    assert dict(found.sepsets) == dict(expected.sepsets)
    assert found.seconds_per_level == tuple(0.5 + level for level in range(found.levels_run))


def test_gpucsl_compiles_for_the_smallest_limit_that_ends(kernels_made, monkeypatch):
    monkeypatch.setitem(sys.modules["baselines.peers.gpucsl"].LIMITS, "gaussian", range(1, 20, 6))
    problem = GaussianProblem.from_data(samples(m=200), alpha=0.1)
    last = skeleton(problem, method="stable-serial").levels_run - 1
    assert 1 < last < 7
    found = [run("gpucsl", problem) for _ in range(2)]
    assert kernels_made == [1, 7, last]
    assert found[0] == found[1]


def test_gpucsl_has_no_thresholds_for_the_last_levels(kernels_made):
    """8 samples leave a test at level 4; its table ends two levels before."""
    problem = GaussianProblem.from_correlation(np.full((8, 8), 0.5) + 0.5 * np.eye(8), n_samples=8, alpha=0.9)
    assert skeleton(problem, method="stable-serial").levels_run == 5
    found = run("gpucsl", problem)
    assert found.levels_run == 4
    assert found.stopped_because == "the program's limit: it was told to end with level 3"


@pytest.mark.parametrize("options", [{}, {"test": "g-square"}, {"df_rule": "adjusted"}])
def test_gpucsl_discrete_solves_by_its_own_rule(kernels_made, options):
    codes = np.digitize(samples(p=8, m=200), [-1.0, 1.0])
    problem = DiscreteProblem.from_data(codes, alpha=0.1, **options)
    found = run("gpucsl-discrete", problem)
    own = DiscreteProblem.from_data(codes, alpha=0.1)
    assert_same(found, skeleton(own, method="discrete-serial"))
    assert found.facts["problem"] == own.facts()
    assert kernels_made[0] == (2, 8, 3, 200)


def test_gpucsl_discrete_refuses_what_it_would_count_otherwise(kernels_made):
    codes = np.digitize(samples(p=3), [0.0])
    with pytest.raises(InvalidProblem, match="variable 'V1' has 5 categories, of which 2 occur"):
        run("gpucsl-discrete", DiscreteProblem.from_data(codes, categories={"V1": 5}))
    with pytest.raises(InvalidProblem, match="not tests_per_edge = 3 of them"):
        run("gpucsl-discrete", DiscreteProblem.from_data(codes, tests_per_edge=3, decay=0.5))
