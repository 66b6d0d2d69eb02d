"""The adapters to the authors' own programs, with stand-ins for the programs: no GPU, and none of their code."""

import functools
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

from baselines.peers import build as peer_libraries
from baselines.peers import gpucmiknn_authors
from gpupc_impl import DiscreteProblem, GaussianProblem, InvalidParameter, InvalidProblem, NonlinearProblem, skeleton
from gpupc_impl.backends import BackendUnavailable, DeviceMemoryError, KernelLaunchError
from gpupc_impl.backends.simt import build
from gpupc_impl.core.registry import Run, get_method
from gpupc_impl.core.solve import open_method_backend, unavailable
from tests.graphs import linear_samples

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

TESTS_STAND_IN = r"""
#include <cmath>
#include <cstddef>

// Tests of at most one member with p-values that are multiples of 1 / permutations: of the partial correlation. A
// permutation moves nothing. Arguments that a problem with k_cmi = 6 does not have are an error (1), as of CUDA; so are
// 7 permutations (out of memory) and 11.
static double correlation(const float* data, size_t n, int i, int j) {
    double ii = 0, jj = 0, ij = 0;
    for (size_t s = 0; s < n; ++s) {
        ii += double(data[i * n + s]) * data[i * n + s];
        jj += double(data[j * n + s]) * data[j * n + s];
        ij += double(data[i * n + s]) * data[j * n + s];
    }
    return ij / std::sqrt(ii * jj);
}

static float p_value(const float* data, size_t n, size_t permutations, int x, int y, int member) {
    double r = correlation(data, n, x, y);
    if (member >= 0) {
        const double a = correlation(data, n, x, member), b = correlation(data, n, y, member);
        r = (r - a * b) / std::sqrt((1 - a * a) * (1 - b * b));
    }
    return std::floor((1 - std::fabs(r)) * (1 - std::fabs(r)) * permutations) / permutations;
}

static int code(size_t permutations, bool good) {
    return permutations == 7 ? 2 : permutations == 11 ? 700 : good ? 0 : 1;
}

extern "C" {
size_t gpucmiknn_free_bytes() { return size_t(6) << 30; }
const char* gpucmiknn_error(int code) { return code == 700 ? "an illegal memory access" : "another error"; }

int gpucmiknn_row_level_0(const float* data, size_t n, size_t, int k, size_t permutations, int x, int* others,
                          size_t count, float* p_values) {
    for (size_t c = 0; c < count; ++c)
        p_values[c] = p_value(data, n, permutations, x, others[c], -1);
    return code(permutations, k == 7);
}

int gpucmiknn_row_permute(const float* data, size_t n, size_t, size_t permutations, int*, size_t level, size_t count,
                          int x, float* permuted) {
    for (size_t c = 0; c < count * permutations * n; ++c)
        permuted[c] = data[x * n + c % n];
    return code(permutations, level == 1);
}

int gpucmiknn_row_level(const float* data, const float* permuted, size_t n, size_t p, int k, int k_perm,
                        size_t permutations, int x, int level, int* sets, size_t count, float alpha, int* others,
                        size_t* left, size_t degree, bool split, int* found, float* p_values) {
    bool good = k == 7 && k_perm == 16 && level == 1 && degree >= *left && split == (count < degree);
    good = good && permuted[count * permutations * n - 1] == data[x * n + n - 1];
    size_t kept = 0;
    for (size_t c = 0; c < *left; ++c) {
        const int y = others[c];
        for (size_t s = 0; s < count && p_values[y] <= alpha; ++s)
            if (sets[s] != y) {
                p_values[y] = std::fmax(p_values[y], p_value(data, n, permutations, x, y, sets[s]));
                found[y] = p_values[y] > alpha ? sets[s] : -1;
            }
        if (p_values[y] <= alpha)
            others[kept++] = y;
    }
    *left = kept;
    return code(permutations, good && p > 0);
}

int gpucmiknn_single_level_0(const float* data, size_t n, int k, size_t permutations, float* p) {
    *p = p_value(data, n, permutations, 0, 1, -1);
    return code(permutations, k == 7);
}

int gpucmiknn_single_permute(const float*, size_t n, size_t level, size_t permutations, int* order) {
    for (size_t c = 0; c < permutations * n; ++c)
        order[c] = c % n;
    return code(permutations, level == 1);
}

int gpucmiknn_single_level(const float* data, const float* permuted, size_t n, size_t variables, int k, int k_perm,
                           size_t permutations, float* p) {
    *p = p_value(data, n, permutations, 0, 1, 2);
    return code(permutations, k == 7 && k_perm == 16 && variables == 3 && permuted[n + 1] == data[1]);
}
}
"""

FASTPGM_STAND_IN = r"""
#include <cstddef>

// A chain of three variables, whose ends it separates by the middle if a level is left. Other arguments leave no edge.
extern "C" double fastpgm_skeleton(const int* codes, const int* categories, int p, int n, double alpha, int deepest,
                                   int threads, int* edges, const int** sets, size_t* length) {
    static const int found[] = {0, 2, 1, 1};
    const bool good = p == 3 && categories[1] == 3 && codes[2 * n - 1] == 2 && alpha < 0.1 && threads == 2;
    edges[1] = edges[5] = good;
    edges[2] = good && deepest == 0;
    *sets = found;
    *length = deepest ? 4 : 0;
    return 1e-9;
}
"""

GPUCSL = {
    "kernel_management": """
from pathlib import Path

cuda_dir = Path(__file__).parent
cuda_helpers_dir = cuda_dir / "helpers"

def get_module(*arguments, **options):
    raise AssertionError("by Jitify")

class Kernels:
    made = []

    @classmethod
    def for_gaussian_ci(cls, p, devices, limit):
        get_module("ci.cu", [f"ci<{limit}>"], is_debug=False, should_log=False)
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


class CompiledModule:
    """What CuPy compiles, instead of it."""

    made: ClassVar[list] = []

    def __init__(self, code, options, name_expressions):
        self.asked = code, options, name_expressions

    def compile(self):
        folders = [Path(option.removeprefix("-I")) for option in self.asked[1] if option.startswith("-I")]
        self.headers = {path.name: path.read_text() for path in folders[-1].iterdir()}
        self.made.append(self)


def samples(p=15, m=60, seed=0):
    return linear_samples(p, m, seed=seed)


def run(name, problem, params=None, **more):
    """The adapter itself: what comes before it looks for a GPU."""
    return get_method(name).solve(problem, Run(backend=None, params=params or {}, facts={"method": name}, **more))


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    """``compiled(source)``: a stand-in as a shared library."""

    @functools.cache
    def compile_it(source):
        folder = tmp_path_factory.mktemp("library")
        (folder / "stand_in.cpp").write_text(source)
        try:
            command = build.find_compiler().command
        except BackendUnavailable as error:
            pytest.skip(str(error))
        made = folder / "stand_in.so"
        subprocess.run([*command, "-shared", "-fPIC", "-O1", "-o", str(made), str(folder / "stand_in.cpp")], check=True)
        return made

    return compile_it


@pytest.fixture
def cupc(compiled, monkeypatch):
    monkeypatch.setenv("GPUPC_CUPC_LIBRARY", str(compiled(STAND_IN)))


@pytest.fixture
def kernels_made(tmp_path, monkeypatch):
    """The stand-in package installed: the list of the kernels that were asked for."""
    (tmp_path / "gpucsl" / "pc").mkdir(parents=True)
    for name, source in GPUCSL.items():
        (tmp_path / "gpucsl" / "pc" / f"{name}.py").write_text(source)
    for name in [name for name in sys.modules if name.partition(".")[0] == "gpucsl"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "gpucsl" / "pc" / "ci.cu").write_text("the kernels")
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(RawModule=CompiledModule))
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


@pytest.mark.parametrize("name", ["cupc-authors", "gpucmiknn-authors", "fastpgm"])
def test_a_program_says_why_it_cannot_be_used(monkeypatch, name, tmp_path):
    method, variable = get_method(name), f"GPUPC_{name.partition('-')[0].upper()}_LIBRARY"
    monkeypatch.delenv(variable, raising=False)
    assert f"{variable} does not name the library" in unavailable(method)
    missing = tmp_path / "missing.so"
    monkeypatch.setenv(variable, str(missing))
    assert f"{variable} names '{missing}', which cannot be used" in unavailable(method)


def test_a_program_for_gpus_runs_on_them_alone(cupc):
    method = get_method("cupc-authors")
    assert unavailable(method, "host") == "method 'cupc-authors' runs on backend cuda alone, not on host"
    assert unavailable(method) == unavailable(get_method("cupc-s"), "cuda")
    with pytest.raises(BackendUnavailable, match="runs on backend cuda alone, not on host"):
        open_method_backend(method, "host")


@pytest.fixture
def gpucmiknn(compiled, monkeypatch):
    monkeypatch.setenv("GPUPC_GPUCMIKNN_LIBRARY", str(compiled(TESTS_STAND_IN)))


def nonlinear(seed=0, **options):
    options = {"alpha": 0.25, "permutations": 20, "k_cmi": 6, "k_perm": 15, "max_level": 1, **options}
    return NonlinearProblem.from_data(samples(p=12, seed=seed), transform="standardize", **options)


def by_hand(problem):
    """PC-stable up to level 1 with the stand-in's test, where p >= alpha separates."""
    r = np.corrcoef(problem.values.astype(float))
    p, alpha = len(r), problem.alpha

    def separates(value):
        return np.floor((1 - abs(value)) ** 2 * problem.permutations) / problem.permutations >= alpha

    adjacent = ~np.eye(p, dtype=bool) & ~separates(r)
    after = adjacent.copy()
    for i, j in np.argwhere(np.triu(adjacent)):
        for k in np.flatnonzero(adjacent[i] | adjacent[j]):
            if k not in (i, j) and separates(
                (r[i, j] - r[i, k] * r[j, k]) / np.sqrt((1 - r[i, k] ** 2) * (1 - r[j, k] ** 2))
            ):
                after[i, j] = after[j, i] = False
    return [int(each.sum()) // 2 for each in (adjacent, after)], after


@pytest.mark.parametrize("search", ["parallel", "single"])
@pytest.mark.parametrize("seed", range(3))
def test_gpucmiknn_decides_as_the_problem_does(gpucmiknn, search, seed):
    """p-values are multiples of 1 / 20 and alpha is one of them: the program's p > alpha becomes p >= alpha."""
    problem = nonlinear(seed)
    found = run("gpucmiknn-authors", problem, {"search": search})
    edges, expected = by_hand(problem)
    assert np.array_equal(found.adjacency, expected)
    assert edges[0] > edges[1]
    assert list(found.edges_per_level) == edges
    assert all(len(members) <= 1 for members in found.sepsets.values())
    assert len(found.sepsets) == 12 * 11 // 2 - found.n_edges
    assert all(seconds > 0 for seconds in found.seconds_per_level)


def test_gpucmiknn_takes_many_sets_in_several_calls(gpucmiknn, monkeypatch):
    problem = nonlinear()
    whole = run("gpucmiknn-authors", problem, {"search": "parallel"})
    monkeypatch.setattr(gpucmiknn_authors, "HOST_BYTES", 2 * 4 * 60 * 20)  # two sets
    assert run("gpucmiknn-authors", problem, {"search": "parallel"}) == whole


def test_gpucmiknn_makes_single_tests(gpucmiknn):
    problem = nonlinear(permutations=100)
    test, r = gpucmiknn_authors.open_test(problem, None, {}), np.corrcoef(problem.values.astype(float))
    assert test(2, 5, ()) == pytest.approx((1 - abs(r[2, 5])) ** 2, abs=0.0101)
    partial = (r[2, 5] - r[2, 7] * r[5, 7]) / np.sqrt((1 - r[2, 7] ** 2) * (1 - r[5, 7] ** 2))
    assert test(2, 5, (7,)) == pytest.approx((1 - abs(partial)) ** 2, abs=0.0101)


@pytest.mark.parametrize("search", ["parallel", "single"])
def test_gpucmiknn_reports_errors_of_cuda(gpucmiknn, search):
    with pytest.raises(DeviceMemoryError, match=r"'gpucmiknn-authors': .*level_0: another error"):
        run("gpucmiknn-authors", nonlinear(permutations=7), {"search": search})
    with pytest.raises(KernelLaunchError, match="level_0: an illegal memory access"):
        run("gpucmiknn-authors", nonlinear(permutations=11), {"search": search})


def test_gpucmiknn_refuses_what_its_kernels_cannot(gpucmiknn):
    for make in (lambda problem: run("gpucmiknn-authors", problem), lambda p: gpucmiknn_authors.open_test(p, None, {})):
        with pytest.raises(InvalidProblem, match=r"k_perm is 5; .* set k_perm to 15"):
            make(nonlinear(k_perm=5))
    data = samples(p=3, m=300)
    with pytest.raises(InvalidProblem, match=r"k_cmi is 201; .* at most 200"):
        run("gpucmiknn-authors", NonlinearProblem.from_data(data, k_cmi=201, k_perm=15))


def chain(**options):
    rng, middle = np.random.default_rng(0), np.arange(600) % 3
    first, last = (np.where(rng.random(600) < 0.2, rng.integers(3, size=600), middle) for _ in range(2))
    return DiscreteProblem.from_data(np.stack([first, middle, last], axis=1), **options)


@pytest.mark.parametrize("max_level", [0, None])
def test_fastpgm_solves_by_its_own_rule(compiled, monkeypatch, max_level):
    monkeypatch.setenv("GPUPC_FASTPGM_LIBRARY", str(compiled(FASTPGM_STAND_IN)))
    found = run("fastpgm", chain(max_level=max_level), {"threads": 2})
    own = chain(max_level=max_level, test="g-square", df_rule="adjusted")
    assert_same(found, skeleton(own, method="discrete-serial"))
    assert found.facts["problem"] == own.facts()
    many = run("fastpgm", chain(max_level=max_level, categories={"V0": 30_000, "V2": 30_000}), {"threads": 2})
    assert many.levels_run == 1  # A table of level 1 has 2.7e9 cells.


@pytest.mark.parametrize("name", peer_libraries.PROGRAMS)
def test_a_library_is_built_from_the_version_that_is_known(name, tmp_path, capsys, monkeypatch):
    program = peer_libraries.PROGRAMS[name]
    with pytest.raises(SystemExit):
        peer_libraries.main([name, str(tmp_path)])
    assert f"clone {program.repository} and check out {program.commit}" in capsys.readouterr().err
    for source in program.sources:
        (tmp_path / source).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / source).write_text("another version")
    with pytest.raises(SystemExit):
        peer_libraries.main([name, str(tmp_path)])
    assert f"is not that of commit {program.commit}" in capsys.readouterr().err


@pytest.mark.parametrize("name", peer_libraries.PROGRAMS)
def test_a_library_is_built_with_its_compiler(name, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(peer_libraries.Program, "mismatch", lambda program, clone: None)
    called = []
    done = subprocess.CompletedProcess([], 0)
    monkeypatch.setattr(subprocess, "run", lambda command, check: called.append(command) or done)
    monkeypatch.setattr("shutil.which", lambda _: "nvcc")
    output = tmp_path / "made.so"
    assert peer_libraries.main([name, str(tmp_path), "--output", str(output), "--arch", "sm_80"]) == 0
    program = peer_libraries.PROGRAMS[name]
    assert capsys.readouterr().out == f"export {program.variable}={output}\n"
    (command,) = called
    assert {program.compiler, "--shared", *program.flags} <= set(command)
    assert ("-arch=sm_80" in command) == (program.compiler == "nvcc")
    compiled_files = [each for each in command if each.endswith((".cu", ".cpp"))]
    assert len(compiled_files) == (len(program.compiled) or 1) + (program.adapter is not None)
    assert program.adapter is None or (peer_libraries.HERE / program.adapter).is_file()
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(SystemExit):
        peer_libraries.main([name, str(tmp_path)])
    assert f"{program.compiler} is not on the PATH" in capsys.readouterr().err


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
