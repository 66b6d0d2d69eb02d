"""Speed of the Gaussian methods: `make benchmark`. Under `make test` each case runs once, as a smoke test.

Beside pytest-benchmark's table, each case prints its tests per second at every level.
"""

import pytest

import datasets
from gpupc_impl import GaussianProblem, methods
from gpupc_impl.core.solve import open_method_backend, solve, unavailable

SETS = [
    "dag-p200-m1000-d0.025",
    pytest.param("nci-60", marks=pytest.mark.slow),
    pytest.param("mcc", marks=pytest.mark.slow),
]
METHODS = [name for name in methods("gaussian") if name != "causal-learn"]


@pytest.fixture(scope="module", params=SETS)
def problem(request):
    reason = datasets.available(request.param)
    if reason is not None:
        pytest.skip(reason)
    data = datasets.load(request.param)
    return GaussianProblem.from_data(data.values, names=data.names)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("separating_sets", ["canonical", "first-come"])
def test_skeleton_speed(benchmark, problem, name, separating_sets):
    method = methods()[name]
    reason = unavailable(method)
    if reason is not None:
        pytest.skip(reason)
    if separating_sets == "first-come" and method.reference:
        pytest.skip("a serial search has no first-come rule")
    backend = open_method_backend(method, "auto")
    result = benchmark.pedantic(
        solve,
        args=(problem, method, backend),
        kwargs={"separating_sets": separating_sets},
        rounds=3,
        warmup_rounds=1,
    )
    levels = zip(result.tests_per_level, result.seconds_per_level, strict=True)
    rates = [f"level {level}: {tests / seconds:.3g}" for level, (tests, seconds) in enumerate(levels)]
    benchmark.extra_info["tests_per_second"] = rates
    print(f"\n{name} on {'cpu' if backend is None else backend.name}, tests per second: " + ", ".join(rates))
    assert result.n_edges > 0
