"""The nonlinear family's problem: transforms, thresholds, files and errors."""

import dataclasses

import numpy as np
import pandas
import pytest
from scipy import special, stats

from gpupc_impl.core.family import load_problem
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.nonlinear.problem import PSI_BITS, NonlinearProblem


@pytest.fixture
def data():
    rng = np.random.default_rng(3)
    return np.column_stack([rng.normal(size=(40, 3)), rng.integers(0, 4, 40)])


def test_ranks_keep_the_order_and_break_ties_by_the_seed(data):
    problem = NonlinearProblem.from_data(data, seed=1)
    assert problem.values.dtype == np.float32
    assert problem.values.flags.c_contiguous
    assert not problem.values.flags.writeable
    for column, ranks in zip(data.T, problem.values, strict=True):
        assert sorted(ranks) == list(range(40))
        assert (np.diff(column[np.argsort(ranks)]) >= 0).all()
    other = NonlinearProblem.from_data(data, seed=2)
    assert np.array_equal(problem.values[:3], other.values[:3])
    assert not np.array_equal(problem.values[3], other.values[3])
    again = NonlinearProblem.from_data(data, seed=1)
    assert np.array_equal(problem.values, again.values)


def test_ties_are_broken_apart_for_each_variable():
    twice = np.repeat(np.arange(20.0) // 10, 1)[:, None].repeat(2, axis=1)
    first, second = NonlinearProblem.from_data(twice, k_perm=5).values
    assert not np.array_equal(first, second)
    assert abs(stats.spearmanr(first[:10], second[:10])[0]) < 0.9


def test_standardize_and_none(data):
    values = NonlinearProblem.from_data(data, transform="standardize", precision="float64").values
    assert np.allclose(values.mean(axis=1), 0, atol=1e-12)
    assert np.allclose(values.var(axis=1), 1)
    assert np.allclose(np.corrcoef(values), np.corrcoef(data.T))
    assert np.array_equal(NonlinearProblem.from_data(data, transform="none", precision="float64").values, data.T)
    huge = NonlinearProblem.from_data(data * 1e200, transform="standardize", precision="float64").values
    assert np.allclose(huge, values)


@pytest.mark.parametrize("transform", ["ranks", "standardize", "none"])
def test_a_constant_variable_stays_constant_and_is_named(data, transform):
    frame = pandas.DataFrame(data, columns=list("abcd"))
    frame["still"] = 0.1
    with pytest.warns(UserWarning, match=r"1 constant variable\(s\) \(still\)"):
        problem = NonlinearProblem.from_data(frame, transform=transform)
    assert problem.names == ("a", "b", "c", "d", "still")
    assert problem.constant == ("still",)
    assert (problem.values[4] == 0).all()


def test_a_fraction_of_the_samples_as_k(data):
    assert NonlinearProblem.from_data(data, k_cmi=0.2).facts()["k_cmi"] == 8
    assert NonlinearProblem.from_data(data, k_cmi=0.001).k_cmi == 1
    assert NonlinearProblem.from_data(data, k_cmi=39).k_cmi == 39
    assert NonlinearProblem.from_data(data, k_cmi=np.float64(5.0)).k_cmi == 5


@pytest.mark.parametrize("permutations", [1, 7, 100, 1000])
@pytest.mark.parametrize("alpha", [0.001, 0.01, 0.05, 1 / 7, 0.29, 0.999])
def test_the_critical_count_is_the_first_that_separates(data, permutations, alpha):
    problem = NonlinearProblem.from_data(data, permutations=permutations, alpha=alpha)
    critical = problem.critical_count
    assert 1 <= critical <= permutations
    assert problem.p_value(critical) >= alpha
    assert problem.p_value(critical - 1) < alpha


def test_psi_is_digamma_to_the_last_unit(data):
    problem = NonlinearProblem.from_data(data)
    assert problem.psi.dtype == np.int64
    assert len(problem.psi) == 41
    assert np.abs(problem.psi[1:] / 2.0**PSI_BITS - special.digamma(np.arange(1, 41))).max() <= 2.0 ** -(PSI_BITS + 1)
    assert problem.cmi(0) == special.digamma(7)


def test_facts_and_fingerprint_tell_everything_that_matters(data):
    problem = NonlinearProblem.from_data(data)
    facts = problem.facts()
    assert {name: facts[name] for name in problem.PARAMETERS} == dict(problem.PARAMETERS)
    assert facts["n_samples"] == 40
    changes = {"transform": "none", "permutations": 50, "k_cmi": 6, "k_perm": 14, "seed": 1, "precision": "float64"}
    others = [NonlinearProblem.from_data(data, **{name: value}) for name, value in changes.items()]
    others += [NonlinearProblem.from_data(data, alpha=0.01), NonlinearProblem.from_data(data, max_level=2)]
    others += [NonlinearProblem.from_data(data[::-1])]
    prints = {problem.fingerprint, *(other.fingerprint for other in others)}
    assert len(prints) == len(others) + 1
    assert NonlinearProblem.from_data(data, names=list("wxyz")).fingerprint == problem.fingerprint


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_files_hold_every_bit(data, tmp_path, precision):
    data = np.column_stack([data, np.ones(40)])
    options = {"transform": "standardize", "precision": precision, "max_level": 1, "alpha": 0.01}
    with pytest.warns(UserWarning, match="constant"):
        problem = NonlinearProblem.from_data(data, seed=2**64 - 1, **options)
    problem.save(tmp_path / "problem.npz")
    loaded = load_problem(tmp_path / "problem.npz")
    assert isinstance(loaded, NonlinearProblem)
    assert loaded.fingerprint == problem.fingerprint
    for field in dataclasses.fields(problem):
        ours, theirs = getattr(problem, field.name), getattr(loaded, field.name)
        assert np.array_equal(ours, theirs), field.name
        assert type(ours) is type(theirs), field.name


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k_cmi": 40}, r"k_cmi is 40, but each of the 40 samples has only 39 neighbours; set k_cmi to at most 39"),
        ({"k_cmi": 0}, r"k_cmi is 0; it must be a whole number"),
        ({"seed": -1}, r"seed is -1; it must be a whole number from 0"),
        ({"transform": "log"}, r"transform is 'log'; choose one of: ranks, standardize, none"),
        ({"precision": "float16"}, r"precision is 'float16'; choose one of: float32, float64"),
    ],
)
def test_errors_name_the_value_and_the_limit(data, options, message):
    with pytest.raises(InvalidProblem, match=message):
        NonlinearProblem.from_data(data, **options)


def test_errors_in_the_data(data):
    with pytest.raises(InvalidProblem, match="row 2, column 'V1'"):
        NonlinearProblem.from_data(np.where(np.arange(160).reshape(40, 4) == 9, np.nan, data))
    with pytest.raises(InvalidProblem, match=r"1 sample\(s\)"):
        NonlinearProblem.from_data(data[:1])
    with pytest.raises(InvalidProblem, match="'V0' spreads too far for float32"):
        NonlinearProblem.from_data(data * 1e300, transform="none")
    with pytest.raises(InvalidProblem, match="k_perm is 15, but each of the 10 samples"):
        NonlinearProblem.from_data(data[:10])
