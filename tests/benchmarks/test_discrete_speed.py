"""Speed of the discrete methods: `make benchmark`. Under `make test` the small case runs once, as a smoke test.

Beside pytest-benchmark's table, each case prints its tests per second at every level, and at the end how many times
faster gpupc on this machine's cores is than the references.
"""

import statistics
import warnings

import pytest

from gpupc_impl import methods
from gpupc_impl.core.solve import open_method_backend, solve, unavailable
from gpupc_impl.discrete.problem import DiscreteProblem
from tests.loaded import load

LARGER = ("alarm-5000", "alarm-200000", "link-20000")
SETS = ["asia-5000", *(pytest.param(name, marks=pytest.mark.slow) for name in LARGER)]
METHODS = ("discrete-parallel", "discrete-serial", "causal-learn-discrete", "disc-cupc", "gpupc")
ONCE = {("causal-learn-discrete", "alarm-200000"), ("causal-learn-discrete", "link-20000")}
"""Cases of many minutes."""


@pytest.fixture(scope="module", params=SETS)
def problem(request):
    """By the rule for degrees of freedom that causal-learn knows, so that all make the same search."""
    data = load(request.param)
    categories = dict(zip(data.names, data.labels, strict=True))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # constant variables
        return request.param, DiscreteProblem.from_data(
            data.values, names=data.names, categories=categories, alpha=0.01, df_rule="adjusted"
        )


@pytest.fixture(scope="module")
def seconds(problem):
    """The medians of the methods on one data set; prints ratios when all are done."""
    found = {}
    yield found
    if "gpupc" in found:
        ratios = [f"{found[name] / found['gpupc']:.3g} times {name}" for name in found if name != "gpupc"]
        print(f"\n{problem[0]}: gpupc on cores has the speed of " + ", ".join(ratios))


@pytest.mark.parametrize("name", METHODS)
def test_skeleton_speed(benchmark, problem, seconds, name):
    label, asked = problem
    method = methods()[name]
    if reason := unavailable(method):
        pytest.skip(reason)
    once = (name, label) in ONCE
    backend = open_method_backend(method, "auto" if method.backends == ("cpu",) else "host")
    result = benchmark.pedantic(
        solve, args=(asked, method, backend), rounds=1 if once else 3, warmup_rounds=0 if once else 1
    )
    if benchmark.stats is not None:
        seconds[name] = statistics.median(benchmark.stats.stats.data)
    levels = zip(result.tests_per_level, result.seconds_per_level, strict=True)
    rates = [f"level {level}: {tests / max(spent, 1e-9):.3g}" for level, (tests, spent) in enumerate(levels)]
    benchmark.extra_info["tests_per_second"] = rates
    print(f"\n{name} on {'cpu' if backend is None else backend.name}, tests per second: " + ", ".join(rates))
    assert result.n_edges > 0
