"""Speed of the nonlinear methods beside tigramite: `make benchmark`. Under `make test` the smallest cases run once.

Two measurements, at k_cmi = 7, 20 and 200 (0.2 n, if that is less): one CI test given one variable, and a whole search.
Each prints its median time and how many times faster than tigramite with one worker it is. A tigramite of several
workers takes its processes' start with it in a search, and shares out edges, so that one test is no faster.
"""

import time

import numpy as np
import pytest

from datasets.nonlinear import additive_noise
from gpupc_impl import methods, skeleton
from gpupc_impl.backends import open_backend
from gpupc_impl.backends.machine import available_cores
from gpupc_impl.core.solve import unavailable
from gpupc_impl.nonlinear.problem import NonlinearProblem

NEIGHBOURS = (7, *(pytest.param(k, marks=pytest.mark.slow) for k in (20, 200)))
ROUNDS = 3
SINGLE_TESTS = [pytest.param(100, 20, id="n100"), pytest.param(1000, 100, id="n1000", marks=pytest.mark.slow)]
SEARCHES = [pytest.param(5, 60, 10, id="p5-n60"), pytest.param(8, 1000, 100, id="p8-n1000", marks=pytest.mark.slow)]
IMPLEMENTATIONS = {
    "tigramite, 1 worker": ("tigramite", {"workers": 1}),
    "tigramite, 2 workers": ("tigramite", {"workers": 2}),
    "cmiknn-serial": ("cmiknn-serial", {}),
    "cmiknn-parallel": ("cmiknn-parallel", {"threads": 0}),
    "gpucmiknn-single": ("gpucmiknn-single", {}),
    "gpucmiknn-single, insertion": ("gpucmiknn-single", {"selection": "insertion"}),
    "gpucmiknn-parallel": ("gpucmiknn-parallel", {}),
    "gpucmiknn-parallel, insertion": ("gpucmiknn-parallel", {"selection": "insertion"}),
}


def usable() -> dict[str, tuple[str, dict]]:
    return {name: found for name, found in IMPLEMENTATIONS.items() if unavailable(methods()[found[0]]) is None}


def compare(benchmark, what: str, runs: dict) -> None:
    """Time callables in turn and print medians and ratios; `benchmark` times the last on its own as well."""
    rounds = ROUNDS if benchmark.enabled else 1
    seconds = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    medians = {name: float(np.median(taken)) for name, taken in seconds.items()}
    reference = medians.get("tigramite, 1 worker")
    print(f"\n{what}, {available_cores()} cores, median of {rounds}")
    for name, median in medians.items():
        ratio = "" if reference is None else f"  {reference / median:8.1f} x"
        print(f"  {name:32} {median:10.4f} s{ratio}")
    benchmark.extra_info["medians"] = medians
    benchmark.pedantic(list(runs.values())[-1], rounds=rounds, warmup_rounds=0)


@pytest.mark.parametrize("k_cmi", NEIGHBOURS)
@pytest.mark.parametrize(("n", "permutations"), SINGLE_TESTS)
def test_speed_of_one_test(benchmark, n, permutations, k_cmi):
    from baselines._cmiknn import CmiknnTest
    from gpupc_impl.nonlinear.cmi_estimator import ci_test

    data = additive_noise(3, n, seed=1, density=1.0).values
    problem = NonlinearProblem.from_data(data, permutations=permutations, k_cmi=min(k_cmi, n // 5))
    backend = open_backend("auto")
    runs = {}
    if "tigramite, 1 worker" in usable():
        from baselines.tigramite_searches import TigramiteTest

        tigramite = TigramiteTest(problem)
        runs["tigramite, 1 worker"] = lambda: tigramite.count(0, 2, (1,))
    twin = CmiknnTest(problem)
    runs["cmiknn-serial"] = lambda: twin.counts(0, [2], (1,))[0]
    for selection in ("insertion", "counting", "buckets", "registers"):
        how = {"selection": selection}
        runs[f"gpucmiknn-single, {selection}"] = lambda how=how: ci_test(problem, 0, 2, (1,), backend, **how)[0]
    counts = {name: run() for name, run in runs.items()}  # compiles, too
    assert len({count for name, count in counts.items() if "tigramite" not in name}) == 1
    compare(benchmark, f"one test, {n=}, {permutations=}, k_cmi={problem.k_cmi}, {backend.name}", runs)


@pytest.mark.parametrize("k_cmi", NEIGHBOURS)
@pytest.mark.parametrize(("p", "n", "permutations"), SEARCHES)
def test_speed_of_a_search(benchmark, p, n, permutations, k_cmi):
    data = additive_noise(p, n, seed=1, density=0.3).values
    problem = NonlinearProblem.from_data(data, alpha=0.01, permutations=permutations, k_cmi=min(k_cmi, n // 5))
    small = NonlinearProblem.from_data(data[:40, :4], permutations=2, k_cmi=5, alpha=0.9)
    runs = {}
    for name, (method, params) in usable().items():
        if method != "tigramite":
            skeleton(small, method=method, **params)  # compiles
        elif not benchmark.enabled and params["workers"] > 1:
            continue  # tests/golden runs it
        runs[name] = lambda method=method, params=params: skeleton(problem, method=method, **params)
    compare(benchmark, f"search, {p=}, {n=}, {permutations=}, k_cmi={problem.k_cmi}", runs)
