"""PCMCI and PCMCI+ give the graphs, p-values, strengths, separating sets and ambiguous triples of tigramite."""

import numpy as np
import pytest

from gpupc_impl import pcmci
from tests.time_series_systems import random_series

tigramite = pytest.importorskip("tigramite.pcmci")
from tigramite.data_processing import DataFrame  # noqa: E402
from tigramite.independence_tests.cmiknn import CMIknn  # noqa: E402
from tigramite.independence_tests.gsquared import Gsquared  # noqa: E402
from tigramite.independence_tests.parcorr import ParCorr  # noqa: E402
from tigramite.toymodels.structural_causal_processes import structural_causal_process  # noqa: E402

PCMCI_KINDS = {
    "default": ({}, {}),
    "chosen": ({"pc_alpha": None}, {"pc_alpha": None}),
    "limits": ({"max_combinations": 3, "max_conds_px": 2, "max_conds_py": 3},) * 2,
    "corrected": ({"fdr_method": "fdr_bh"}, {"correction": "fdr_bh"}),
    "later": ({"tau_min": 1, "max_conds_dim": 2},) * 2,
}
PLUS_KINDS = {
    "majority": ({}, {}),
    "conservative": ({"contemp_collider_rule": "conservative"}, {"collider_rule": "conservative"}),
    "none": ({"contemp_collider_rule": "none"}, {"collider_rule": "none"}),
    "reset": (
        {"reset_lagged_links": True, "fdr_method": "fdr_bh"},
        {"reset_lagged_links": True, "correction": "fdr_bh"},
    ),
    "first": ({"conflict_resolution": False}, {"mark_conflicts": False}),
    "limits": ({"max_conds_px": 2, "max_conds_px_lagged": 1, "max_conds_dim": 1},) * 2,
    "chosen": ({"pc_alpha": None}, {"pc_alpha": None}),
}


def assert_equal(theirs, ours):
    assert (theirs["graph"] == ours.graph).all()
    np.testing.assert_allclose(ours.p_values, theirs["p_matrix"], rtol=0, atol=1e-10)
    np.testing.assert_allclose(ours.strengths, theirs["val_matrix"], rtol=0, atol=1e-10)
    if "sepsets" in theirs:
        mine = ours.to_tigramite()
        sets = {key: [tuple(map(int, node)) for node in given] for key, given in theirs["sepsets"].items()}
        assert sets == mine["sepsets"]
        triples = {((int(i), int(lag)), int(k), int(j)) for (i, lag), k, j in theirs["ambiguous_triples"]}
        assert triples == set(mine["ambiguous_triples"])


def assert_kind(values, tau_max, kind, frame=None, test=None, our_test="parcorr", **options):
    """Compare one kind of PCMCI, or of PCMCI+ if its name begins with a plus."""
    search = tigramite.PCMCI(frame or DataFrame(values), test or ParCorr())
    plus = kind.startswith("+")
    their_options, our_options = (PLUS_KINDS if plus else PCMCI_KINDS)[kind.removeprefix("+")]
    if plus:
        theirs = search.run_pcmciplus(tau_max=tau_max, **{"pc_alpha": 0.05, **their_options})
    else:
        theirs = search.run_pcmci(tau_max=tau_max, alpha_level=0.05, **{"pc_alpha": 0.2, **their_options})
    options |= {"tau_max": tau_max, "alpha": 0.05, "contemporaneous": plus, "test": our_test, "backend": "host"}
    ours = pcmci(values, **our_options, **options)
    assert_equal(theirs, ours)
    return ours


KINDS = [*PCMCI_KINDS, *(f"+{kind}" for kind in PLUS_KINDS)]


@pytest.mark.parametrize("kind", KINDS)
def test_random_systems(kind):
    for seed, (n, tau_max, steps) in enumerate([(2, 3, 150), (5, 2, 300), (6, 1, 200)]):
        assert_kind(random_series(seed, n, tau_max, steps), tau_max, kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["default", "+majority", "+conservative", "+none"])
def test_two_hundred_random_systems(kind):
    rng = np.random.default_rng(0)
    for seed in range(200):
        n, tau_max, steps = int(rng.integers(2, 11)), int(rng.integers(1, 6)), int(rng.integers(100, 1001))
        assert_kind(random_series(seed, n, tau_max, steps), tau_max, kind)


def test_a_system_of_tigramites_tutorials():
    """The causal discovery tutorial's ``var_process`` of four variables."""
    links = {
        0: [((0, -1), 0.7, linear), ((1, -1), -0.8, linear)],
        1: [((1, -1), 0.8, linear), ((3, -1), 0.8, linear)],
        2: [((2, -1), 0.5, linear), ((1, -2), 0.5, linear), ((3, -3), 0.6, linear)],
        3: [((3, -1), 0.4, linear)],
    }
    values = structural_causal_process(links, T=500, seed=7)[0].astype(np.float64)
    found = assert_kind(values, 8, "default")
    assert {(1, 0, 1), (3, 1, 1), (1, 2, 2), (3, 2, 3)} <= set(map(tuple, np.argwhere(found.graph == "-->").tolist()))
    assert_kind(values, 3, "+majority")


def linear(x):
    return x


def test_nearly_collinear_series_take_the_samples():
    rng = np.random.default_rng(1)
    values = np.cumsum(rng.normal(size=(400, 3)), axis=0)
    values = np.column_stack([values, values[:, 0] + 0.01 * rng.normal(size=400)])
    found = assert_kind(values, 2, "+majority")
    assert found.facts["tests_from_samples"] > 0


@pytest.mark.parametrize("mask_type", ["x", "y", "z", "xyz"])
@pytest.mark.parametrize("kind", ["default", "chosen", "+majority"])
def test_masks(mask_type, kind):
    values = random_series(3, 4, 2, 250)
    mask = np.random.default_rng(0).random(values.shape) < 0.15
    frame = DataFrame(values, mask=mask)
    assert_kind(values, 2, kind, frame, ParCorr(mask_type=mask_type), mask=mask, mask_type=mask_type)


@pytest.mark.parametrize("reaches", [False, True])
@pytest.mark.parametrize("kind", ["default", "+majority"])
def test_missing_values(reaches, kind):
    values = random_series(4, 4, 2, 250)
    values[[40, 90, 91, 200], [1, 2, 0, 3]] = np.nan
    frame = DataFrame(np.where(np.isnan(values), 999.0, values), missing_flag=999.0, remove_missing_upto_maxlag=reaches)
    assert_kind(values, 2, kind, frame, remove_missing_upto_maxlag=reaches)


@pytest.mark.parametrize("kind", ["default", "+majority"])
def test_several_series(kind):
    values = [random_series(5, 4, 2, steps) for steps in (200, 120, 80)]
    assert_kind(values, 2, kind, DataFrame(dict(enumerate(values)), analysis_mode="multiple"))


@pytest.mark.parametrize("kind", ["later", "+limits"])
def test_categories(kind):
    values = random_series(6, 3, 1, 300)
    codes = (values > np.quantile(values, 0.3, axis=0)).astype(int) + (values > np.quantile(values, 0.7, axis=0))
    assert_kind(codes, 1, kind, DataFrame(codes), Gsquared(), our_test="discrete")


@pytest.mark.slow
def test_cmiknn_p_values_have_tigramites_distribution():
    """200 null and 200 dependent triples: Kolmogorov and Smirnov's test of two samples finds no difference."""
    from scipy import stats

    theirs, ours = {0.0: [], 0.45: []}, {0.0: [], 0.45: []}
    for link, found in theirs.items():
        for seed in range(200):
            rng = np.random.default_rng(seed)
            z = rng.normal(size=(103, 1))
            series = np.hstack([z, z, z]) * 0.5 + rng.normal(size=(103, 3))
            series[1:, 1] += link * series[:-1, 0]
            test = CMIknn(sig_samples=100, sig_blocklength=1, seed=seed)
            search = tigramite.PCMCI(DataFrame(series), test)
            results = search.run_mci(tau_max=1, tau_min=1, parents={j: [(2, -1)] for j in range(3)})
            found.append(results["p_matrix"][0, 1, 1])
            ours[link].append(one_p_value(series, seed))
    for link in theirs:
        assert stats.ks_2samp(theirs[link], ours[link]).pvalue > 0.001


def one_p_value(series, seed):
    """Return the p-value of the first variable and, a step later, the second, given the third at lags 1 and 2."""
    from gpupc_impl.backends import open_backend
    from gpupc_impl.time_series.batches import Batch
    from gpupc_impl.time_series.other_tests import CMIknn as OurTest
    from gpupc_impl.time_series.series import read_series

    data = read_series(series, 1)
    test = OurTest(data, open_backend("host"), {"permutations": 100, "seed": seed})
    one = (np.array([number], np.int32) for number in (3, 1))
    return test.run(Batch(*one, np.array([[5, 8]], np.int32)))[1][0]
