"""Every GPU method on a device finds what it finds on the host backend, with any launch parameters, every time."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from gpupc_impl import GaussianProblem, KernelProblem, Skeleton, methods
from gpupc_impl.backends import DeviceMemoryError, open_backend
from gpupc_impl.backends.host import HostBackend
from gpupc_impl.core.registry import Method
from gpupc_impl.gaussian import imputed as multiple
from gpupc_impl.gaussian import pair_block, pairwise
from gpupc_impl.gaussian.imputed import ImputedProblem
from gpupc_impl.gaussian.pairwise import PairwiseProblem
from gpupc_impl.nonlinear.cmi_estimator import ci_test
from gpupc_impl.nonlinear.problem import NonlinearProblem
from gpupc_impl.out_of_core.square_blocks import PairResults
from tests import bounds
from tests.graphs import linear_samples
from tests.launches import solve
from tests.wide import assert_same

pytestmark = pytest.mark.gpu

GOLDEN = Path(__file__).parents[1] / "golden" / "data"
METHODS = [each for each in methods("gaussian").values() if "cuda" in each.backends and each.canonical]
METHODS = [method for method in METHODS if not method.cluster]
RUNS = 20


def random_problem(p: int, m: int, density: float, alpha: float, seed: int, copies: int = 0) -> GaussianProblem:
    """A linear model over a random graph, some of its variables repeated with next to no noise."""
    rng = np.random.default_rng(seed)
    data = linear_samples(p, m, density, rng, least=0.1)
    for scale in (0.0, 1e-7, 1e-4)[:copies]:
        data = np.column_stack([data, data[:, rng.integers(p)] + scale * rng.standard_normal(m)])
    return GaussianProblem.from_data(data[:, rng.permutation(data.shape[1])], alpha=alpha)


def generated_p200() -> GaussianProblem:
    return GaussianProblem.from_data(np.loadtxt(GOLDEN / "generated-p200.csv.gz", delimiter=","), alpha=0.01)


PROBLEMS = {
    "two": lambda: random_problem(2, 20, 0.5, 0.05, 0),
    "small": lambda: random_problem(7, 30, 0.5, 0.2, 1),
    "dense": lambda: random_problem(14, 500, 0.9, 0.3, 2),
    "wide": lambda: random_problem(300, 60, 0.02, 0.05, 3),
    "deep": lambda: random_problem(60, 400, 0.15, 0.05, 4),
    "copies": lambda: random_problem(25, 80, 0.2, 0.05, 5, copies=3),
    "golden": generated_p200,
}


@pytest.fixture(scope="module", params=PROBLEMS)
def problem(request) -> GaussianProblem:
    return PROBLEMS[request.param]()


@pytest.fixture(scope="module")
def expected(problem) -> Skeleton:
    reason = HostBackend.unavailable()
    if reason is not None:
        pytest.skip(reason)
    return solve(problem, METHODS[0], HostBackend())


def other_parameters(method: Method) -> list[dict]:
    """The smallest value and twice the default, or every choice, one at a time; other launches of pair-scan."""
    if method.name == "pair-scan":
        return [{name: choice} for name in ("tiles", "fused_levels") for choice in ("always", "never")]
    chosen = []
    for name, parameter in method.params.items():
        values = set(parameter.choices or ())
        if parameter.maximum is not None:
            values |= {parameter.minimum, min(2 * parameter.default, parameter.maximum)}
        chosen.extend({name: value} for value in sorted(values - {parameter.default}))
    return chosen


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_device_and_host_agree(method, problem, expected):
    found = solve(problem, method, open_backend("cuda"), pmax=True)
    assert_same(found, expected)
    assert found.facts["backend"] == "cuda"
    on_host = solve(problem, method, HostBackend(), pmax=True)
    np.testing.assert_array_equal(found.pmax[~found.adjacency], on_host.pmax[~found.adjacency])


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_launch_parameters_change_nothing(method, problem, expected):
    for params in other_parameters(method):
        assert_same(solve(problem, method, open_backend("cuda"), params), expected)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_every_run_gives_the_same(method):
    """On a problem where many separating sets compete for an edge."""
    problem, backend = random_problem(80, 100, 0.1, 0.01, 6), open_backend("cuda")
    first, *others = (solve(problem, method, backend) for _ in range(RUNS))
    assert first.levels_run >= 3
    for found in others:
        assert_same(found, first)
        assert found.undefined_tests == first.undefined_tests


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_first_come_sets_leave_the_same_edges(method, problem, expected):
    found = solve(problem, method, open_backend("cuda"), separating_sets="first-come")
    assert np.array_equal(found.adjacency, expected.adjacency)


def test_golden_skeleton():
    edges = np.loadtxt(GOLDEN / "generated-p200_pcalg.edges", dtype=int)
    for method in METHODS:
        np.testing.assert_array_equal(solve(generated_p200(), method, open_backend("cuda")).edges, edges)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_memory_is_given_back(method):
    backend = open_backend("cuda")
    solve(random_problem(50, 60, 0.1, 0.05, 7), method, backend)
    assert backend.memory_peak > 0
    assert backend.memory_used == 0


def test_a_device_too_small_for_managed_memory_is_refused_before_a_kernel_fails():
    problem, method = random_problem(20, 60, 0.1, 0.05, 7), methods()["out-of-core-um"]
    for megabytes in (1, 7):
        with pytest.raises(DeviceMemoryError, match="device_mb=8"):
            solve(problem, method, open_backend("cuda"), {"device_mb": megabytes})
    assert_same(
        solve(problem, method, open_backend("cuda"), {"device_mb": 8}), solve(problem, method, open_backend("cuda"))
    )


@pytest.mark.parametrize("test", ["rcit", "rcot", "kci"])
def test_kernel_tests_keep_any_budget_or_name_it(test):
    """Libraries that CuPy calls may hide which exception the allocator raised."""
    problem = KernelProblem.from_data(np.random.default_rng(6).normal(size=(60, 5)), test=test)
    expected = solve(problem, methods()["kernel-batched"], open_backend("cuda"))
    for limit in 1 << np.arange(10, 25):
        try:
            found = solve(problem, methods()["kernel-batched"], open_backend("cuda", device_memory_limit=int(limit)))
        except DeviceMemoryError:
            continue
        assert_same(found, expected)


@pytest.mark.parametrize("alpha", [1 - 2**-53, 0.5], ids=["all are left", "some are separated"])
def test_panels_test_pairs_in_tiles(alpha, monkeypatch):
    """What nothing separates is tested in tiles; here what is separated, too."""
    monkeypatch.setattr(pair_block, "GAIN", 1e9)
    tiled = []
    test = PairResults.test

    def noted(self, *args, **named):
        tiled.append(self)
        test(self, *args, **named)

    monkeypatch.setattr(PairResults, "test", noted)
    problem = dataclasses.replace(random_problem(300, 60, 0.02, alpha, 3, copies=3), max_level=1)
    small = open_backend("cuda", device_memory_limit=1 << 20)
    found = solve(problem, methods()["out-of-core-block"], small, {"block_size": 40})
    assert tiled
    assert_same(found, solve(problem, METHODS[0], open_backend("cuda")))


@pytest.mark.parametrize(("critical", "tolerance"), bounds.CASES)
def test_no_test_that_separates_is_ruled_out_in_single_precision(critical, tolerance):
    bounds.check(open_backend("cuda"), critical, tolerance)


@pytest.mark.parametrize("tiles", ["auto", "always"])
@pytest.mark.parametrize("alpha", [1 - 2**-53, 0.3], ids=["all are left", "some are separated"])
def test_level_one_in_tiles(alpha, tiles, monkeypatch):
    monkeypatch.setattr(pair_block, "TILED_FROM", 0)
    problem = random_problem(300, 60, 0.02, alpha, 3, copies=3)
    problem = dataclasses.replace(problem, max_level=1 if alpha > 0.9 else 3)
    found = solve(problem, methods()["pair-scan"], open_backend("cuda"), {"tiles": tiles})
    assert_same(found, solve(problem, METHODS[0], open_backend("cuda")))


def test_quotients_are_rounded_as_a_division_rounds_them():
    """Of terms of chi-square, and of any numbers of such sizes."""
    backend, rng = open_backend("cuda"), np.random.default_rng(11)
    kernel = backend.kernel(Path(__file__).parent / "kernels" / "quotients.cu", "quotients")
    total = rng.integers(1, 2 ** rng.integers(1, 31, 1 << 22)).astype(np.float64)
    row, column = (np.ceil(rng.random(total.size) * total) for _ in range(2))
    expected = row * column / total
    difference = np.floor(rng.random(total.size) * (np.minimum(row, column) + 1)) - expected
    wide = [rng.random(total.size) * 2.0 ** rng.integers(-60, 60, total.size) + 1e-30 for _ in range(2)]
    for x, y in ((row * column, total), (difference**2, expected), wide):
        found = backend.empty(x.size, np.float64)
        arguments = [backend.upload(x), backend.upload(y), np.int32(x.size), found]
        kernel((512,), (256,), arguments)
        np.testing.assert_array_equal(backend.download(found), x / y)


@pytest.mark.parametrize("members", [[], [3], [0, 3]])
@pytest.mark.parametrize(("n", "k"), [(600, 599), (1000, 200), (2048, 40), (2048, 2047)])
def test_numbers_of_16_bits_count_exactly(n, k, members):
    """Distances and counts up to 2,047 are whole numbers in floating point of 16 bits (registers.cu)."""
    rng = np.random.default_rng(k)
    data = rng.normal(size=(n, 5))
    data[:, 1] += data[:, 0]
    problem = NonlinearProblem.from_data(data, permutations=20, k_cmi=k)
    found = [
        ci_test(problem, 1, 2, members, open_backend("cuda"), selection=selection)
        for selection in ("registers", "buckets", "counting")
    ]
    for count, cmi, permuted in found[1:]:
        assert (count, cmi) == found[0][:2]
        assert np.array_equal(permuted, found[0][2])


@pytest.mark.parametrize("sample_size", ["smallest", "harmonic-mean"])
def test_array_code_decides_alike_on_a_gpu(sample_size):
    """CuPy and NumPy: correlations up to rounding, and the same bits from the same correlations."""
    backend, rng = open_backend("cuda"), np.random.default_rng(5)
    data = rng.normal(size=(200, 60)) @ (np.eye(60) + np.triu(rng.random((60, 60)) < 0.1))
    data[:, 7] = data[:, 6]
    holes = np.where(rng.random(data.shape) < 0.1, np.nan, data)
    problem = PairwiseProblem.from_data(holes, sample_size=sample_size)
    on_gpu = PairwiseProblem.from_data(holes, sample_size=sample_size, backend=backend)
    assert np.array_equal(problem.sizes, on_gpu.sizes)
    np.testing.assert_allclose(problem.correlation, on_gpu.correlation, atol=1e-12)
    imputed = ImputedProblem.from_data([data + 0.1 * rng.normal(size=data.shape) for _ in range(3)])
    for method, each in ((pairwise.METHOD, problem), (multiple.METHOD, imputed)):
        expected, found = (solve(each, method, place, pmax=True) for place in (None, backend))
        assert found == expected
        assert found.sepsets == expected.sepsets
        assert np.array_equal(found.pmax, expected.pmax, equal_nan=True)
