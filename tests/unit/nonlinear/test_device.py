"""The CMIknn test on a device: launches, memory, and which selection serves which values."""

import numpy as np
import pytest

from gpupc_impl.backends import DeviceMemoryError, open_backend
from gpupc_impl.core.registry import InvalidParameter
from gpupc_impl.nonlinear import selections
from gpupc_impl.nonlinear.cmi_estimator import CmiEstimator, ci_test
from gpupc_impl.nonlinear.retest import Retest
from gpupc_impl.nonlinear.tuning import DEFAULTS
from tests.unit.nonlinear.conftest import SELECTIONS, run_test, sample_problem, tuned, whole_problem


@pytest.mark.parametrize(("members", "transform"), [([], "ranks"), ([3], "standardize"), ([0, 3], "ranks")])
def test_launch_parameters_change_nothing(backend, members, transform):
    problem = sample_problem(np.random.default_rng(4), 50, permutations=34, k_cmi=9, transform=transform)
    expected = Retest(problem).partials(1, 2, members)
    for selection in SELECTIONS:
        for beta, gamma in ((1, 1), (5, 3), (32, 64), (1024, 512)):
            found = run_test(problem, backend, 1, 2, members, selection=selection, beta=beta, gamma=gamma)[1]
            assert np.array_equal(found, expected), (selection, beta, gamma)


@pytest.mark.parametrize(("members", "precision"), [([], "float64"), ([3], "float32"), ([0, 3], "float64")])
def test_scratch_takes_the_place_of_shared_memory(backend, members, precision, monkeypatch):
    rng = np.random.default_rng(6)
    problem = sample_problem(rng, 60, k_perm=20, k_cmi=40, transform="standardize", precision=precision)
    expected = Retest(problem).partials(1, 2, members)
    for limit in (8448 + 3000, 8448 + 500, 8448 + 64):  # 500: of permutations the owners alone
        monkeypatch.setattr(backend, "max_shared_bytes", limit, raising=False)
        for selection in SELECTIONS:
            assert np.array_equal(run_test(problem, backend, 1, 2, members, selection=selection)[1], expected)


def test_memory_is_forecast_and_kept():
    problem = sample_problem(np.random.default_rng(9), 64, p=8, permutations=30)
    sets = np.array([[0, s] for s in range(1, 7)])
    tests = np.array([[number, 7] for number in range(6)])
    expected = np.array([Retest(problem).partials(0, 7, [s]) for s in range(1, 7)])
    for selection in SELECTIONS:
        params = DEFAULTS | {"selection": selection}
        fits = []
        for limit in (8_000, 30_000, 60_000, 90_000, 1 << 20):
            backend = open_backend("host", device_memory_limit=limit)
            try:
                estimator = CmiEstimator(problem, backend, params)
                room = estimator.fitting(1, 6, 1)
            except DeviceMemoryError:
                fits.append(0)
                continue
            fits.append(room)
            found = [
                estimator.partials(1, sets[start : start + room], tests[: len(sets[start : start + room])])
                for start in range(0, 6, room)
            ]
            assert np.array_equal(np.concatenate(found), expected)
            assert backend.memory_peak <= limit
        assert fits[0] == 0
        assert fits[-1] == 6
        assert fits == sorted(fits)
        assert len(set(fits)) >= 3


@pytest.mark.parametrize("members", [[], [3]])
@pytest.mark.parametrize(("selection", "transform"), [("buckets", "standardize"), ("registers", "ranks")])
def test_lists_of_a_few_samples_at_a_time_give_the_same(selection, transform, members):
    """Lists that do not fit at once are made for a part of the tests, or of the samples of one, at a time."""
    problem = sample_problem(np.random.default_rng(9), 64, transform=transform, permutations=9)
    params = DEFAULTS | {"selection": selection}
    level, sets, tests = len(members), np.array([[0, *members]] * 2), np.array([[0, 1], [1, 2], [0, 4]])
    expected = [Retest(problem).partials(0, j, members) for _, j in tests]
    peaks = []
    sizes = (1, 30_000, 100_000, 1 << 30) if selection == "buckets" else (1, 15_000, 50_000, 1 << 30)
    for list_bytes in sizes:  # some samples of one test, one or two tests, all
        backend = open_backend("host")
        estimator = CmiEstimator(problem, backend, params, tuning=tuned(list_bytes=list_bytes, registers_blocks=5))
        estimator.fitting(level, 2, 2)
        before = backend.memory_used
        backend.reset_peak()
        assert np.array_equal(estimator.partials(level, sets, tests), expected)
        peaks.append(backend.memory_peak - before)
    assert peaks == sorted(peaks)
    assert peaks[0] < peaks[-1] / 20


def selection_of(problem, backend, params=DEFAULTS, **tuning):
    return CmiEstimator(problem, backend, params, tuning=tuned(**tuning)).selection.name


def test_what_serves_which_values(backend, monkeypatch):
    rng, registers = np.random.default_rng(8), DEFAULTS | {"selection": "registers"}
    fits, wide = (whole_problem(rng, 60, most, k_cmi=50) for most in (2047, 2048))
    floats = sample_problem(rng, 60, transform="standardize")
    most, many = (whole_problem(rng, n, 2047, k_cmi=50) for n in (2048, 2049))  # counts of samples have 16 bits as well
    problems = {"fits": fits, "most": most, "wide": wide, "many": many, "floats": floats}
    chosen = {name: selection_of(problem, backend, registers) for name, problem in problems.items()}
    assert chosen == dict.fromkeys(problems, "buckets") | {"fits": "registers", "most": "registers"}
    few = sample_problem(rng, 60, k_cmi=39)
    auto = {"selection": "buckets", "registers_from": 40}
    assert [selection_of(each, backend, **auto) for each in (fits, wide, few)] == ["registers", "buckets", "buckets"]
    for most_counted, name in ((60, "buckets"), (59, "counting")):
        monkeypatch.setattr(selections, "MOST_COUNTED", most_counted)
        assert selection_of(floats, backend, selection="buckets") == name
    monkeypatch.undo()
    # Beside the static 8448 bytes, registers take 24 bytes for each sample and one more, and buckets 2048 bytes.
    served = {24 * 61: ["registers", "counting"], 24 * 61 - 1: ["counting"] * 2, 2048: ["registers", "buckets"]}
    for dynamic_bytes, names in served.items():
        monkeypatch.setattr(backend, "max_shared_bytes", 8448 + dynamic_bytes, raising=False)
        preferred = (registers, DEFAULTS | {"selection": "buckets"})
        assert [selection_of(fits, backend, params) for params in preferred] == names, dynamic_bytes


def test_ci_test_refuses_what_is_no_test(backend):
    problem = sample_problem(np.random.default_rng(1), 20)
    for i, j, members in ((0, 0, []), (0, 1, [1]), (0, 1, [2, 2]), (0, 5, []), (-1, 0, [])):
        with pytest.raises(ValueError, match="must be different variables from 0 to 4"):
            ci_test(problem, i, j, members, backend)
    with pytest.raises(InvalidParameter, match="selection"):
        ci_test(problem, 0, 1, [], backend, selection="sorting")
    with pytest.raises(InvalidParameter, match="gamma is 513"):
        ci_test(problem, 0, 1, [], backend, gamma=513)
