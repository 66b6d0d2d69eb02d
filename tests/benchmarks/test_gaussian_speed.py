"""Speed of the Gaussian methods: `make benchmark`. Under `make test` each case runs once, as a smoke test.

Each set prints how many times as long as `pair-scan` the other methods take. A part of it:
`make benchmark ONLY="pair_scan_over and mcc"`.
"""

import statistics
import time
from collections.abc import Callable

import numpy as np
import pytest

from datasets.generate import random_dag_gaussian
from gpupc_impl import GaussianProblem, methods
from gpupc_impl.core.solve import open_method_backend, solve, unavailable
from tests.loaded import load

OTHERS = ("stable-serial", "stable-parallel", "cupc-e", "cupc-s")
ROUNDS, LONG_SECONDS = 7, 20.0
"""Rounds in which the methods take turns, and the run after which a method takes part in no other."""


def of_data_set(name: str) -> Callable[[], tuple[np.ndarray, float]]:
    return lambda: (load(name).values, 0.05)


def generated(p: int, m: int, alpha: float) -> Callable[[], tuple[np.ndarray, float]]:
    return lambda: (random_dag_gaussian(p, m, density=min(1, 5 / p), seed=0).values, alpha)


SAMPLES = {
    **{f"p{p}": generated(p, 1000, 0.01) for p in (50, 100, 200, 500, 1000)},
    **{name: of_data_set(name) for name in ("nci-60", "mcc", "s-aureus")},
    "72-x-7129": generated(7129, 72, 1e-5),
}
FROM_SAMPLES = {"72-x-7129"}
"""Sets of which correlations are timed as well."""


@pytest.mark.parametrize(
    "name", [name if name == "p50" else pytest.param(name, marks=pytest.mark.slow) for name in SAMPLES]
)
def test_pair_scan_over_other_methods(benchmark, name):
    values, alpha = SAMPLES[name]()
    problem = GaussianProblem.from_data(values, alpha=alpha)
    found = {}

    def run(method: str) -> float:
        """Seconds."""
        start = time.perf_counter()
        given = GaussianProblem.from_data(values, alpha=alpha) if name in FROM_SAMPLES else problem
        found[method] = solve(given, methods()[method], backends[method])
        if backends[method] is not None:
            backends[method].synchronize()
        return time.perf_counter() - start

    able = [method for method in ("pair-scan", *OTHERS) if unavailable(methods()[method]) is None]
    backends = {method: open_method_backend(methods()[method], "auto") for method in able}
    seconds = {method: [run(method)] for method in able}  # compiles; counts only where it is long
    for _ in range(ROUNDS if benchmark.enabled else 1):
        for method in able:
            if seconds[method][0] < LONG_SECONDS:
                seconds[method].append(run(method))
    benchmark.pedantic(run, args=("pair-scan",), rounds=1)
    medians = {method: statistics.median(samples[1:] or samples) for method, samples in seconds.items()}
    ratios = {method: medians[method] / medians["pair-scan"] for method in able[1:]}
    benchmark.extra_info |= {"median_s": medians, "ratios": ratios}
    told = ", ".join(f"{method} {ratio:.3g}" for method, ratio in ratios.items())
    took = f"{1e3 * medians['pair-scan']:.3g} ms on {backends['pair-scan'].name}"
    print(f"\n{name}: pair-scan takes {took}; times that: {told}")
    assert all(skeleton == found["pair-scan"] for skeleton in found.values())
