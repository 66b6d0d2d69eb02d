"""Gaussian problems: input that is refused and the messages, correlations, thresholds, and files."""

import itertools
import math
import platform
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from mpmath import mp
from scipy import special, stats

from gpupc_impl import GaussianProblem, InvalidProblem
from gpupc_impl.core.family import load_problem
from gpupc_impl.gaussian.matrix import correlation_fault, correlation_matrix
from gpupc_impl.gaussian.problem import QUANTILES


@pytest.fixture
def values():
    return np.random.default_rng(0).normal(size=(20, 3))


def problem(**changes):
    return GaussianProblem.from_correlation(**{"correlation": np.eye(3), "n_samples": 20, "alpha": 0.05, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"alpha": 0.0}, r"alpha is 0\.0; it must be a number strictly between 0 and 1"),
        ({"max_level": -1}, "max_level is -1; it must be a whole number of at least 0, or None"),
        ({"df_convention": "cuPC"}, "df_convention is 'cuPC'; choose one of: pcalg, cupc"),
        ({"n_samples": 0}, "n_samples is 0; it must be a whole number of at least 1"),
        ({"names": ["a", "b"]}, "2 names for 3 variables"),
        ({"correlation": np.ones((2, 3))}, r"correlation has shape \(2, 3\); it must be square"),
        ({"correlation": [[1, math.nan], [math.nan, 1]]}, "not finite; give constant variables zeros"),
        ({"correlation": [[1, 0.5], [0.4, 1]]}, r"not symmetric: it differs from its transpose by 0\.1"),
        ({"correlation": [[2, 0.5], [0.5, 1]]}, "its diagonal differs from one by 1; a covariance matrix must be"),
        ({"correlation": [[1, 1.5], [1.5, 1]]}, r"an entry of size 1\.5; entries must lie in \[-1, 1\]"),
    ],
)
def test_refuses(changes, message):
    with pytest.raises(InvalidProblem, match=message):
        problem(**changes)


def test_refuses_values_that_are_missing_or_infinite(values):
    values[4, 1], values[7, 2] = math.nan, math.inf
    frame = pd.DataFrame(values, columns=["a", "b", "c"])
    with pytest.raises(InvalidProblem, match=r"2 missing or infinite value\(s\), the first in row 4, column 'b'; drop"):
        GaussianProblem.from_data(frame)


def test_refuses_text_and_names_its_column():
    with pytest.raises(InvalidProblem, match=r"not a matrix of numbers: column 'b': .*'low'"):
        GaussianProblem.from_data(pd.DataFrame({"a": [1.0, 2.0], "b": ["low", "high"]}))
    for rows in ([["low", "high"], ["1", "2"]], [[1, 2], [3]]):
        with pytest.raises(InvalidProblem, match="not a matrix of numbers"):
            GaussianProblem.from_data(rows)


@pytest.mark.parametrize("m", [0, 1])
def test_refuses_too_few_samples(m):
    with pytest.raises(InvalidProblem, match=rf"{m} sample\(s\); a correlation needs at least 2"):
        GaussianProblem.from_data(np.ones((m, 3)))


@pytest.mark.parametrize("panel", [1, 3, 10, 11])
def test_correlations_panel_by_panel(monkeypatch, panel):
    values = np.random.default_rng(0).normal(size=(40, 10))
    values[:, 4] = 2.0
    whole, _ = correlation_matrix(values)
    monkeypatch.setattr("gpupc_impl.gaussian.matrix.PANEL", panel)
    correlation, constant = correlation_matrix(values)
    np.testing.assert_allclose(correlation, whole, rtol=0, atol=1e-15)
    assert np.array_equal(correlation, correlation.T)
    assert constant.nonzero()[0].tolist() == [4]


@pytest.mark.slow
def test_correlations_of_many_variables_and_samples():
    """One product of all of them ended the process with a segmentation fault (OpenBLAS 0.3.31, two threads)."""
    script = """
import numpy as np
from gpupc_impl.gaussian.matrix import correlation_matrix
values = np.random.default_rng(0).normal(size=(1000, 16000))
correlation, _ = correlation_matrix(values)
np.testing.assert_allclose(correlation[-1], [np.corrcoef(values[:, -1], other)[0, 1] for other in values.T], atol=1e-13)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=600)


@pytest.mark.parametrize("constant", [0.0, 0.1, -3e250])
def test_a_constant_column_is_independent_of_all(values, constant):
    values[:, 1] = constant
    with pytest.warns(UserWarning, match=r"1 constant variable\(s\) \(V1\) are independent of all others"):
        made = GaussianProblem.from_data(values)
    assert made.constant == ("V1",)
    assert np.array_equal(made.correlation[1], [0, 1, 0])
    assert np.array_equal(made.correlation[:, 1], [0, 1, 0])
    assert made.correlation[0, 2] != 0


def test_a_problem_is_exactly_symmetric_and_cannot_be_changed():
    skewed = np.array([[1, 0.5 + 1e-10, 0], [0.5, 1 - 1e-12, 0], [0, 0, 1]])
    made = problem(correlation=skewed)
    assert np.array_equal(made.correlation, made.correlation.T)
    assert np.array_equal(np.diagonal(made.correlation), np.ones(3))
    with pytest.raises(ValueError, match="read-only"):
        made.correlation[0, 1] = 0
    assert skewed[1, 0] == 0.5


def test_names(values):
    assert GaussianProblem.from_data(values).names == ("V0", "V1", "V2")
    assert GaussianProblem.from_data(pd.DataFrame(values, columns=["x", 1, "z"])).names == ("x", "1", "z")
    assert GaussianProblem.from_data(pd.DataFrame(values), names=["a", "b", "c"]).names == ("a", "b", "c")


@pytest.mark.parametrize("alpha", QUANTILES)
def test_quantiles_of_usual_levels_are_scipys(alpha):
    np.testing.assert_array_max_ulp(QUANTILES[alpha], -special.ndtri(alpha / 2), maxulp=platform.machine() != "x86_64")


@pytest.mark.parametrize("alpha", [1e-12, 0.01, 0.05, 0.5, 0.999])
@pytest.mark.parametrize("level", [0, 1, 9])
def test_threshold_and_p_value_are_scipys(alpha, level):
    made = problem(alpha=alpha, n_samples=50)
    tau = made.threshold(level)
    assert tau * math.sqrt(50 - level - 3) == pytest.approx(
        stats.norm.ppf(1 - alpha / 2), rel=1e-4 if alpha < 1e-9 else 1e-9
    )
    assert made.critical_r_squared(level) == pytest.approx(math.tanh(tau) ** 2, rel=1e-15)
    assert made.p_value(made.critical_r_squared(level), level) == pytest.approx(alpha, rel=1e-9)
    r = np.array([0.0, 0.3, -0.7])
    expected = 2 * (1 - stats.norm.cdf(np.abs(np.arctanh(r)) * math.sqrt(50 - level - 3)))
    np.testing.assert_allclose(made.p_value(r**2, level), expected, rtol=1e-7)


@pytest.mark.parametrize("alpha", [5e-324, 4e-320, 1e-307, 1e-300, 1e-100, 0.05, 0.999])
def test_threshold_and_p_value_in_40_digits(alpha):
    """p-values around 1e-300 are right, and the smallest alpha can be used."""
    made = problem(alpha=alpha, n_samples=10**6)
    with mp.workdps(40):
        z = mp.mpf(made.threshold(0)) * mp.sqrt(10**6 - 3)
        assert abs(mp.log(mp.erfc(z / mp.sqrt(2))) / mp.log(mp.mpf(alpha)) - 1) < 1e-12
        r = mp.tanh(made.threshold(0))
        assert made.critical_r_squared(0) == pytest.approx(float(r**2), rel=1e-14)
    if alpha > 1e-305:
        assert made.p_value(made.critical_r_squared(0), 0) == pytest.approx(alpha, rel=1e-10)


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6, -1e10, 1e14])
@pytest.mark.parametrize("scale", [1e-300, 1e-200, 1.0, 1e200, 1e290])
def test_correlations_of_columns_far_from_zero(offset, scale):
    """The reference are the float64 values in exact fractions."""
    rng = np.random.default_rng(0)
    values = (rng.standard_normal((40, 3)) + rng.standard_normal((40, 1)) + [offset, 0, -offset]) * scale
    correlation, constant = correlation_matrix(values)
    columns = [[Fraction(value) for value in column] for column in values.T.tolist()]
    centred = [[value - sum(column) / 40 for value in column] for column in columns]
    for i, j in itertools.combinations(range(3), 2):
        ends = ((i, j), (i, i), (j, j))
        products = [sum(a * b for a, b in zip(centred[x], centred[y], strict=True)) for x, y in ends]
        square = float(products[0] ** 2 / (products[1] * products[2]))
        assert correlation[i, j] ** 2 == pytest.approx(square, rel=0, abs=1e-14)
    assert not constant.any()


@pytest.mark.parametrize("level", [0, 1, 5])
def test_the_cupc_convention_is_that_of_the_next_level(level):
    assert problem(df_convention="cupc").threshold(level) == problem().threshold(level + 1)
    assert problem(df_convention="cupc").degrees_of_freedom(level) == 20 - (level + 1) - 3


@pytest.mark.parametrize(("convention", "last"), [("pcalg", 16), ("cupc", 15)])
def test_levels_end_with_the_degrees_of_freedom(convention, last):
    made = problem(df_convention=convention)
    assert made.obstacle(last) is None
    assert made.obstacle(last + 1) == (
        f"no degrees of freedom: 20 samples leave m - |S| - 3 = 0 at level {last + 1} (df_convention {convention!r})"
    )


def test_fingerprint_is_of_all_that_changes_the_answer():
    changes = [{}, {"alpha": 0.01}, {"n_samples": 21}, {"max_level": 2}, {"df_convention": "cupc"}]
    changes += [{"residual_tolerance": 0}, {"pseudo_inverse": "always"}, {"correlation": [[1, 0.5], [0.5, 1]]}]
    prints = [problem(**change).fingerprint for change in changes]
    assert len(set(prints)) == len(changes)
    assert problem(names=["x", "y", "z"]).fingerprint == prints[0]


@pytest.mark.parametrize("max_level", [None, 0, 3])
def test_save_and_load_keep_every_bit(values, tmp_path, max_level):
    values[:, 1] = 7
    options = {"alpha": 0.1 + 0.2, "max_level": max_level, "df_convention": "cupc", "names": ["a", "β", "c d"]}
    with pytest.warns(UserWarning, match="constant"):
        made = GaussianProblem.from_data(values, residual_tolerance=0, pseudo_inverse="always", **options)
    path = tmp_path / "problem.npz"
    made.save(path)
    loaded = load_problem(path)
    assert loaded.correlation.tobytes() == made.correlation.tobytes()
    assert not loaded.correlation.flags.writeable
    plain = ("names", "alpha", "max_level", "n_samples", "df_convention", "residual_tolerance", "constant")
    for name in (*plain, "fingerprint"):
        assert getattr(loaded, name) == getattr(made, name)
        assert type(getattr(loaded, name)) is type(getattr(made, name))


@pytest.mark.parametrize(("m", "p"), [(2, 1), (3, 2), (5, 7), (30, 64), (63, 501), (1000, 17)])
def test_correlations_of_data_are_exact_as_they_are_made(m, p):
    """`from_data` relies on products that are symmetric to the bit, and does not check it."""
    data = np.random.default_rng(p).normal(size=(m, p))
    data[:, p // 2] = -3 * data[:, 0]
    made = GaussianProblem.from_data(data).correlation
    assert correlation_fault(made) is None
    assert np.array_equal(made, GaussianProblem.from_correlation(made, n_samples=m).correlation)
    assert not made.flags.writeable


def test_samples_are_kept_where_a_device_makes_the_correlations(values, tmp_path):
    values[:, 1] = 4.0
    with pytest.warns(UserWarning, match="V1"):
        made = GaussianProblem.from_data(values, correlations="device", max_level=2)
    with pytest.warns(UserWarning, match="V1"):
        host = GaussianProblem.from_data(values, max_level=2)
    assert "correlation" not in vars(made)
    assert not made.samples.flags.writeable
    assert made.constant == host.constant
    assert made.facts()["correlations"] == "device"
    assert host.facts()["correlations"] == "host"
    assert made.fingerprint != host.fingerprint
    made.save(tmp_path / "problem.npz")
    loaded = load_problem(tmp_path / "problem.npz")
    assert "correlation" not in vars(loaded)
    assert loaded.samples.tobytes() == values.tobytes()
    assert (loaded.fingerprint, loaded.constant, loaded.correlations) == (made.fingerprint, made.constant, "device")
    assert loaded.correlation.tobytes() == host.correlation.tobytes()  # for methods that run on no device
    assert vars(loaded)["correlation"] is loaded.correlation
