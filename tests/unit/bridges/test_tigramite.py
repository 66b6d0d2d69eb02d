"""tigramite on our tests: where the test is the same, so is the answer."""

import numpy as np
import pytest

cmiknn = pytest.importorskip("tigramite.independence_tests.cmiknn")
parcorr = pytest.importorskip("tigramite.independence_tests.parcorr")
from tigramite.data_processing import DataFrame  # noqa: E402
from tigramite.pcmci import PCMCI  # noqa: E402

from gpupc_impl import GaussianProblem, InvalidProblem, KernelProblem  # noqa: E402
from gpupc_impl.backends import open_backend  # noqa: E402
from gpupc_impl.bridges.tigramite import GpupcCMIknn, GpupcKernel, GpupcParCorr  # noqa: E402
from gpupc_impl.kernel.kernel_batched import ci_test  # noqa: E402


@pytest.fixture(scope="module")
def series():
    """(T, 4): an autoregressive process with two links."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(150, 4))
    for t in range(2, len(values)):
        values[t] += 0.5 * values[t - 1]
        values[t, 1] += 0.6 * values[t - 1, 0]
        values[t, 3] += 0.5 * values[t - 2, 2]
    return values


@pytest.mark.parametrize("search", ["run_pcmci", "run_pcmciplus"])
def test_pcmci_finds_what_it_finds_with_parcorr(series, search):
    theirs, ours = (
        getattr(PCMCI(DataFrame(series), test), search)(tau_max=2, pc_alpha=0.05)
        for test in (parcorr.ParCorr(), GpupcParCorr())
    )
    assert np.array_equal(theirs["graph"], ours["graph"])
    for matrix in ("p_matrix", "val_matrix"):
        assert np.allclose(theirs[matrix], ours[matrix], rtol=0, atol=1e-10)


def both(frame, *args, ours=None, **options):
    """The answers of both tests to one question."""
    answers = []
    for test in (parcorr.ParCorr(), ours or GpupcParCorr()):
        test.set_dataframe(frame)
        answers.append(test.run_test(*args, **options))
    return answers


@pytest.mark.parametrize(
    ("X", "Y", "Z"),
    [
        ([(0, -1)], [(1, 0)], [(1, -1), (2, -1), (1, -1), (0, -1)]),  # a condition twice, and one that is X
        ([(0, 0)], [(1, 0)], []),
        ([(0, 0)], [(3, 0)], [(1, 0), (2, -4)]),
    ],
)
def test_single_tests(series, X, Y, Z):
    theirs, ours = both(DataFrame(series), X, Y, Z, tau_max=2, alpha_or_thres=0.05)
    assert ours[:2] == pytest.approx(theirs[:2], abs=1e-10)
    assert ours[2] == theirs[2]


def test_constant_variables(series):
    flat = series.copy()
    flat[:, 2] = 1.5
    for X, Z in (([(2, 0)], []), ([(0, 0)], [(2, -1)])):
        theirs, ours = both(DataFrame(flat), X, [(1, 0)], Z, tau_max=1, alpha_or_thres=0.05)
        assert ours == pytest.approx(theirs, abs=1e-10)


def test_what_is_not_plain_is_tigramites(series):
    twins = np.column_stack([series, series[:, 0] * 2])
    theirs, ours = both(DataFrame(twins), [(1, 0)], [(2, 0)], [(0, 0), (4, 0)], tau_max=1)
    assert ours == pytest.approx(theirs, abs=1e-10)  # collinear conditions
    gaps = series.copy()
    gaps[7, 1] = 999.0
    theirs, ours = both(DataFrame(gaps, missing_flag=999.0), [(0, -1)], [(1, 0)], [(1, -1)], tau_max=2)
    assert ours == pytest.approx(theirs, abs=1e-10)
    theirs, ours = both(DataFrame(series), [(0, -1)], [(1, 0)], [(1, -1)], tau_max=2, cut_off="max_lag")
    assert ours == pytest.approx(theirs, abs=1e-10)


def test_other_data_start_anew(series):
    test = GpupcParCorr()
    for part in (series[:100], series[50:]):
        test.set_dataframe(DataFrame(part))
        theirs, _ = both(DataFrame(part), [(0, 0)], [(1, 0)], [], tau_max=1)
        assert test.run_test([(0, 0)], [(1, 0)], [], tau_max=1) == pytest.approx(theirs, abs=1e-10)


def test_fishers_z_is_the_gaussian_familys(series):
    test = GpupcParCorr(distribution="fisher-z")
    test.set_dataframe(DataFrame(series))
    value, p_value = test.run_test([(0, 0)], [(1, 0)], [(2, 0)])
    assert p_value == pytest.approx(GaussianProblem.from_data(series).p_value(value**2, 1))
    with pytest.raises(ValueError, match="distribution is 'normal'; choose one of: t, fisher-z"):
        GpupcParCorr(distribution="normal")


@pytest.mark.parametrize("transform", ["ranks", "standardize", False])
def test_cmi_is_tigramites_and_so_nearly_are_its_p_values(transform):
    rng = np.random.default_rng(1)
    options = {"knn": 5, "shuffle_neighbors": 8, "sig_samples": 200, "transform": transform}
    theirs, ours = cmiknn.CMIknn(workers=1, **options), GpupcCMIknn(backend="host", **options)
    for conditions, linked in ((1, False), (2, True)):
        array, roles = rng.normal(size=(2 + conditions, 100)), np.array([0, 1] + [2] * conditions)
        array[0] += array[2] + linked * array[1]
        value = ours.get_dependence_measure(array, roles)
        assert value == pytest.approx(theirs.get_dependence_measure(array, roles), abs=1e-3 if not transform else 1e-9)
        expected = theirs.get_shuffle_significance(array, roles, value)
        p_value, null = ours.get_shuffle_significance(array, roles, value, return_null_dist=True)
        assert p_value == (np.count_nonzero(null >= value) + 1) / 201
        assert abs(p_value - expected) < 4 * np.sqrt(2 * 0.25 / 200)
        assert p_value == GpupcCMIknn(backend="host", **options).get_shuffle_significance(array, roles, value)


def test_pcmci_runs_on_cmiknn(series):
    options = {"knn": 5, "shuffle_neighbors": 5, "sig_samples": 20, "sig_blocklength": 1, "backend": "host"}
    found = PCMCI(DataFrame(series[:60, :2]), GpupcCMIknn(**options)).run_pcmci(tau_max=1, pc_alpha=0.2)
    assert found["graph"].shape == (2, 2, 2)
    with pytest.raises(ValueError, match="transform is 'uniform'; choose one of: 'ranks', 'standardize', False"):
        GpupcCMIknn(transform="uniform")


@pytest.mark.parametrize("test", ["rcit", "kci"])
def test_pcmci_runs_on_kernel_tests(test):
    """A lagged square, which no correlation shows."""
    rng = np.random.default_rng(2)
    series = rng.standard_normal((120, 2))
    series[1:, 1] += 2 * (series[:-1, 0] ** 2 - 1)
    found = PCMCI(DataFrame(series), GpupcKernel(test, "host")).run_pcmci(tau_max=1, pc_alpha=0.05, alpha_level=0.01)
    assert found["graph"][0, 1, 1] == "-->"
    assert np.count_nonzero(found["graph"]) == 1
    ours = GpupcKernel(test, "host")
    ours.set_dataframe(DataFrame(series))
    value, p_value = ours.run_test([(0, 0)], [(1, 0)], [(1, -1)], tau_max=1)
    problem = KernelProblem.from_data(np.column_stack([series[2:], series[1:-1, 1]]), test=test, seed=42)
    assert (p_value, value) == ci_test(problem, 0, 1, [2], open_backend("host"))
    with pytest.raises(InvalidProblem, match="X or Y has several variables"):
        ours.get_dependence_measure(series.T, np.array([0, 0]))
