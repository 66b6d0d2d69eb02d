"""The call `pcmci`: forms that give one answer, orders of columns, input and its errors, results and files."""

import dataclasses
import itertools

import numpy as np
import pandas as pd
import pytest
import scipy.special
from hypothesis import given, settings
from hypothesis import strategies as st

from gpupc_impl import TimeSeriesGraph, pcmci
from gpupc_impl.backends import open_backend
from gpupc_impl.cli import main
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.core.result import InvalidSkeleton
from gpupc_impl.tables import DataError
from gpupc_impl.time_series import par_corr, phases
from gpupc_impl.time_series.batches import Batch, Parents
from gpupc_impl.time_series.par_corr import ParCorr, ParCorrOfSamples, akaike, student_p_values
from gpupc_impl.time_series.series import read_series
from tests.time_series_systems import random_series

OPTIONS = [{}, {"pc_alpha": [0.05, 0.3]}, {"max_combinations": None, "max_conds_dim": 3}]
OPTIONS += [{"tau_min": 1, "correction": "fdr_bh"}]
PLUS = [{}, {"pc_alpha": [0.01, 0.1]}, {"collider_rule": "none", "mark_conflicts": False}]
PLUS += [{"collider_rule": "conservative", "reset_lagged_links": True}]
OPTIONS += [{"contemporaneous": True, **more} for more in PLUS]


def assert_same(one, other, atol=1e-10):
    assert one == other
    np.testing.assert_allclose(one.p_values, other.p_values, rtol=0, atol=atol)
    np.testing.assert_allclose(one.strengths, other.strengths, rtol=0, atol=atol)
    assert one.parents == other.parents
    assert one.separations == other.separations
    assert one.ambiguous == other.ambiguous


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(2, 6), tau_max=st.integers(1, 3), options=st.sampled_from(OPTIONS))
def test_batches_give_the_answer_of_the_reference(seed, n, tau_max, options):
    values = random_series(seed, n, tau_max, 200)
    batched, plain = (
        pcmci(values, tau_max=tau_max, alpha=0.05, backend="host", method=method, **options)
        for method in ("batched", "reference")
    )
    assert_same(batched, plain)
    assert batched.facts["implementation"] == "batched"


@settings(max_examples=10, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    order=st.permutations(range(5)),
    plus=st.booleans(),
    rule=st.sampled_from(["majority", "conservative"]),
)
def test_columns_in_another_order_give_the_same_graph(seed, order, plus, rule):
    frame = pd.DataFrame(random_series(seed, 5, 2, 200), columns=list("abcde"))
    options = {"tau_max": 2, "alpha": 0.05, "contemporaneous": plus, "collider_rule": rule, "backend": "host"}
    one, other = pcmci(frame, **options), pcmci(frame.iloc[:, order], **options)
    assert (other.graph == one.graph[np.ix_(order, order)]).all()
    lagged = np.s_[:, :, 1:]
    np.testing.assert_allclose(other.p_values[lagged], one.p_values[np.ix_(order, order)][lagged], rtol=0, atol=1e-10)


def test_cmiknn_finds_what_partial_correlation_cannot():
    rng = np.random.default_rng(1)
    values = rng.normal(size=(200, 2))
    values[1:, 1] = values[:-1, 0] ** 2 + 0.2 * values[1:, 1]
    options = {"tau_max": 1, "alpha": 0.01, "backend": "host"}
    assert pcmci(values, **options).graph[0, 1, 1] == ""
    found = pcmci(values, test="cmiknn", permutations=100, **options)
    assert found.graph[0, 1, 1] == "-->"
    assert found.p_values[0, 1, 1] == 1 / 101


def test_cmiknn_in_batches_is_the_reference_to_the_bit():
    values = random_series(1, 3, 1, 120)
    one, other = (
        pcmci(values, tau_max=1, test="cmiknn", permutations=50, contemporaneous=True, backend="host", method=method)
        for method in ("batched", "reference")
    )
    assert_same(one, other, atol=0)


def test_masked_cmiknn_and_missing_categories():
    values = random_series(2, 3, 1, 200)
    mask = np.zeros(values.shape, bool)
    mask[50:80] = True
    masked = pcmci(values, tau_max=1, test="cmiknn", permutations=50, mask=mask, mask_type="y", backend="host")
    assert masked.p_values.min() == 1 / 51
    words = pd.DataFrame(np.where(values > 0, "high", "low"), columns=["a", "b", "c"]).astype(object)
    words.iloc[30, 1] = None
    words["b"] = words["a"].shift(1).where(words["b"].notna())
    found = pcmci(words.iloc[1:], tau_max=1, test="discrete", backend="host")
    assert found.graph[0, 1, 1] == "-->"


def assert_alike(ours, theirs):
    np.testing.assert_allclose(ours[0], theirs[0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(ours[1], theirs[1], rtol=0, atol=1e-11)


def test_the_matrix_gives_the_partial_correlations_of_the_samples():
    series = read_series(random_series(3, 4, 3, 300), 3)
    test, from_samples = ParCorr(series, open_backend("host")), ParCorrOfSamples(series)
    rng = np.random.default_rng(0)
    for size in (0, 1, 5, 20):
        sets = np.array([rng.permutation(np.arange(4, series.n_columns))[:size] for _ in range(30)], np.int32)
        source, lag, target = (rng.integers(low, 4, 30).astype(np.int32) for low in (0, 1, 0))
        batch = Batch(lag * 4 + source, target, sets.reshape(30, size))
        assert_alike(test.run(batch), from_samples.run(batch))
    assert test.facts["tests_from_samples"] == 0


def test_shared_factors_give_the_partial_correlations_of_the_samples():
    """X may be one of the parents of Y, and a parent of X one of Y."""
    series, rng = read_series(random_series(3, 4, 2, 200), 2), np.random.default_rng(0)
    test, from_samples = ParCorr(series, open_backend("host")), ParCorrOfSamples(series)
    parents = Parents.from_lists([rng.permutation(np.arange(4, 12))[:size].tolist() for size in (0, 3, 5, 8)])
    target, lag, source = (each.ravel().astype(np.int32) for each in np.mgrid[:4, 1:3, :4])
    for of_tests, set_size in (
        (parents, 0),
        (parents, 1),
        (dataclasses.replace(parents, most_of_target=2, most_of_source=0, most_of_lagged_source=1), 1),
        (dataclasses.replace(parents, most_of_target=3, most_of_lagged_source=0, most_of_source=0, others=True), 0),
    ):
        order = rng.permutation(len(target))
        sets = rng.integers(0, 4, (len(target), set_size)).astype(np.int32)
        batch = Batch(lag * 4 + source, target, sets)[order]
        assert_alike(test.run(batch, of_tests), from_samples.run(batch, of_tests))
    assert test.facts["tests_from_samples"] == 0


@pytest.mark.parametrize("alpha", [1e-9, 0.01, 0.2, 0.5, 0.999])
@pytest.mark.parametrize("freedom", [[1], [7], [200, 201, 230]])
def test_a_level_decides_tests_as_their_p_values_do(alpha, freedom):
    rng = np.random.default_rng(0)
    nu = rng.choice(freedom, 5000)
    t = scipy.special.stdtrit(nu, alpha / 2)
    near = np.abs(t) / np.sqrt(nu + t * t) * (1 + rng.choice([-1, 1], 5000) * 10.0 ** rng.uniform(-16, -3, 5000))
    for values in (near.clip(-1, 1), rng.uniform(-1, 1, 5000), np.repeat([0.0, 1.0, -1.0, np.nan, 0.5], 1000)):
        exact, decided = student_p_values(values, nu), student_p_values(values, nu, alpha)
        assert ((decided <= alpha) == (exact <= alpha)).all()
        assert (np.isnan(decided) == np.isnan(exact)).all()


def test_equally_strong_candidates_keep_their_order():
    rng = np.random.default_rng(0)
    for strengths in (rng.random(60), rng.integers(0, 4, 60) / 4):
        counts = np.array([0, 25, 0, 5, 30])
        parts = np.split(strengths, np.cumsum(counts)[:-1])
        starts = np.cumsum(counts) - counts
        expected = [start + place for start, part in zip(starts, parts, strict=True) for place in by_strength(part)]
        assert phases._strongest_first(strengths, counts).tolist() == expected


def by_strength(strengths):
    return sorted(range(len(strengths)), key=lambda place: -strengths[place])


def test_one_target_a_launch_gives_the_same_bits(monkeypatch):
    values = random_series(4, 8, 3, 120)
    options = {"tau_max": 3, "pc_alpha": 0.9, "backend": "host"}
    whole = pcmci(values, **options)
    assert max(map(len, whole.parents)) > 15  # more than a panel of columns
    monkeypatch.setattr(par_corr, "BYTES_A_BLOCK", 1)
    assert_same(pcmci(values, **options), whole, atol=0)


def test_a_result_has_the_forms_of_its_readers(tmp_path):
    frame = pd.DataFrame(random_series(0, 4, 2, 400), columns=["rain", "soil", "river", "sea"])
    found = pcmci(frame, tau_max=2, contemporaneous=True, backend="host")
    table = found.to_frame()
    assert len(table) == found.n_links > 0
    arcs = found.to_networkx()
    directed = (table["kind"] == "directed").sum()
    assert arcs.number_of_edges() == directed + 2 * (len(table) - directed)
    for source, target, lag, kind, strength, p_value in table.itertuples(index=False):
        at = found.names.index(source), found.names.index(target), lag
        assert {"-->": "directed", "o-o": "undirected", "x-x": "conflict"}[found.graph[at]] == kind
        assert (strength, p_value) == (found.strengths[at], found.p_values[at])
    found.save(tmp_path / "graph.npz")
    again = TimeSeriesGraph.load(tmp_path / "graph.npz")
    assert_same(again, found, atol=0)
    assert again.facts == dict(found.facts)
    found.save(tmp_path / "graph.csv")
    assert pd.read_csv(tmp_path / "graph.csv")["source"].tolist() == table["source"].tolist()
    found.save(tmp_path / "graph.json")
    with pytest.raises(ValueError, match=r"\.npz, \.csv, \.json"):
        found.save(tmp_path / "graph.txt")
    (tmp_path / "other.npz").write_bytes(b"no archive")
    with pytest.raises(InvalidSkeleton, match=r"other\.npz"):
        TimeSeriesGraph.load(tmp_path / "other.npz")
    assert "4 variables" in repr(found)


def test_a_picture_shows_every_variable():
    pytest.importorskip("matplotlib").use("Agg")
    axes = pcmci(random_series(0, 4, 2, 300), tau_max=2, contemporaneous=True, backend="host").plot(title="")
    assert {text.get_text() for text in axes.texts} >= {"V0", "V1", "V2", "V3"}


def test_files_have_dates_and_several_series(tmp_path, capsys):
    frame = pd.DataFrame(random_series(0, 3, 1, 200), columns=["a", "b", "c"])
    dated = frame.set_axis(pd.date_range("2020-01-01", periods=200, name="day"), axis=0)
    dated.to_csv(tmp_path / "dated.csv")
    frame.to_csv(tmp_path / "plain.csv", index=False)
    expected = pcmci(frame, tau_max=1, backend="host")
    for source in (dated, tmp_path / "dated.csv", str(tmp_path / "plain.csv")):
        assert_same(pcmci(source, tau_max=1, backend="host"), expected)
    two = pcmci([frame[:100], frame[100:]], tau_max=1, backend="host")
    paths = [tmp_path / "one.csv", tmp_path / "two.csv"]
    frame[:100].to_csv(paths[0], index=False)
    frame[100:].to_csv(paths[1], index=False)
    out = tmp_path / "graph.npz"
    assert main(["pcmci", *map(str, paths), "--tau-max", "1", "--backend", "host", "--output", str(out)]) == 0
    assert_same(TimeSeriesGraph.load(out), two)
    assert "196 samples" in capsys.readouterr().out
    dated.drop(dated.index[7]).to_csv(tmp_path / "gap.csv")
    assert main(["pcmci", str(tmp_path / "gap.csv"), "--tau-max", "1"]) == 2
    assert "not equally spaced" in capsys.readouterr().err
    assert main(["pcmci", str(tmp_path / "none.csv"), "--tau-max", "1"]) == 2
    (tmp_path / "words.csv").write_text("a,b\nx,1\ny,2\nz,3\n")
    with pytest.raises(DataError, match="'x' is not a number"):
        pcmci(tmp_path / "words.csv", tau_max=1)


SERIES = random_series(0, 3, 1, 60)
DAYS = pd.date_range("2020-01-01", periods=61)


def test_the_first_column_of_a_file_orders_its_rows(tmp_path):
    """Dates, with the day or the month first, and numbers without a name are no variables."""
    frame, dates = pd.DataFrame(SERIES, columns=["a", "b", "c"]), DAYS[:60].strftime("%d.%m.%Y")
    words = (frame > 0).replace({True: "high", False: "low"})
    dated, words = frame.set_axis(dates, axis=0), words.set_axis(dates, axis=0)
    for table, test in ((frame, "parcorr"), (dated, "parcorr"), (words, "discrete")):
        table.to_csv(path := tmp_path / "table.csv")
        assert pcmci(path, tau_max=1, test=test, backend="host").names == ("a", "b", "c")
        table.drop(table.index[7]).to_csv(path)
        with pytest.raises(InvalidProblem, match="not equally spaced"):
            pcmci(path, tau_max=1, test=test)
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(DataError, match="is empty"):
        pcmci(tmp_path / "empty.csv", tau_max=1)


def test_a_frame_has_dates_and_missing_integers():
    frame = pd.DataFrame({"day": DAYS, "a": pd.array([None, *range(60)], dtype="Int64") % 7, "b": DAYS.day % 5})
    assert pcmci(frame, tau_max=1, backend="host").names == ("a", "b")


def test_a_single_variable_has_no_neighbours():
    assert pcmci(SERIES[:, :1], tau_max=2, contemporaneous=True, backend="host").graph.shape == (1, 1, 3)


def test_the_same_parents_in_another_order_have_the_same_criterion():
    series = read_series(random_series(1059, 4, 2, 61), 2)
    assert len({akaike(series, 0, list(order)) for order in itertools.permutations([9, 4, 11])}) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tau_max": 0}, "tau_max is 0"),
        ({"tau_max": 30}, "choose tau_max up to 28"),
        ({"tau_max": 27, "pc_alpha": 0.95}, "needs at least"),
        ({"alpha": 1.0}, "alpha is 1.0"),
        ({"pc_alpha": 2}, "pc_alpha is 2"),
        ({"pc_alpha": []}, "pc_alpha is empty"),
        ({"pc_alpha": 0.1, "contemporaneous": True}, "pass it as alpha"),
        ({"pc_alpha": None, "test": "cmiknn"}, "pass one pc_alpha"),
        ({"tau_min": 1, "contemporaneous": True}, "tau_min is 1"),
        ({"max_combinations": 0}, "max_combinations is 0"),
        ({"max_conds_px": -1}, "max_conds_px is -1"),
        ({"test": "gauss"}, "test is 'gauss'"),
        ({"method": "fast"}, "method is 'fast'"),
        ({"collider_rule": "all"}, "collider_rule is 'all'"),
        ({"permutations": 10}, "no option 'permutations'"),
        ({"alpha_level": 0.01}, "did you mean 'alpha'"),
        ({"test": "cmiknn", "colider_rule": "none"}, "did you mean 'collider_rule'"),
        ({"test": "cmiknn", "knn": 3}, "no option 'knn'"),
        ({"mask": np.zeros((2, 2)), "mask_type": "y"}, "mask has shape"),
        ({"mask": np.zeros(SERIES.shape)}, "go together"),
        ({"mask": np.zeros(SERIES.shape), "mask_type": "w"}, "mask_type is 'w'"),
        ({"mask": np.zeros(SERIES.shape), "mask_type": 1}, "mask_type is 1"),
        ({"mask": np.full(SERIES.shape, "no"), "mask_type": "y"}, "other values than True and False"),
        ({"mask": np.ones(SERIES.shape), "mask_type": "y"}, "leave no sample"),
        ({"names": ["a", "b"]}, "2 names for 3 variables"),
    ],
)
def test_a_parameter_that_cannot_be_used_is_named(options, message):
    with pytest.raises(InvalidProblem, match=message):
        pcmci(SERIES, **{"tau_max": 1, "backend": "host", **options})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.column_stack([SERIES, np.ones(60)]), "'V3' has the same value"),
        (np.column_stack([SERIES, np.full(60, np.nan)]), "'V3' has no value"),
        (np.where(SERIES[3, 1] == SERIES, np.inf, SERIES), "infinite"),
        ([SERIES, SERIES[:, :2]], "3 names for 2 variables"),
        (SERIES[:, 0], r"1 dimension"),
        (np.column_stack([SERIES, np.arange(60)]), "conditions determine one of the two"),
        (pd.DataFrame(SERIES, index=[0, 1, 3, *range(4, 61)]), "1 is followed by 3"),
        (pd.DataFrame(SERIES)[::-1], "not equally spaced"),
        (pd.DataFrame(SERIES, index=DAYS.to_period("D").delete(9)), "2020-01-09 is followed by 2020-01-11"),
        (pd.DataFrame(SERIES, index=DAYS.astype(str).delete(9)), "not equally spaced"),
        (
            [pd.DataFrame(SERIES, columns=list(names)) for names in ("abc", "bac")],
            "different variables: a, b, c, and b",
        ),
        (SERIES[:4], "bring at least 5 steps"),
    ],
)
def test_a_series_that_cannot_be_used_is_refused(values, message):
    with pytest.raises(InvalidProblem, match=message):
        pcmci(values, tau_max=1, backend="host")


def test_dates_of_a_calendar_are_equally_spaced():
    monthly = pd.DataFrame(SERIES, index=pd.date_range("2000-01-01", periods=60, freq="MS"))
    assert pcmci(monthly, tau_max=1, backend="host").facts["n_samples"] == 58


def test_many_neighbours_are_refused_where_all_their_subsets_are_tested():
    rng = np.random.default_rng(0)
    common = rng.normal(size=(60, 1))
    values = common + 0.5 * rng.normal(size=(60, 30))
    with pytest.raises(InvalidProblem, match="all their subsets"):
        pcmci(values, tau_max=1, alpha=0.2, contemporaneous=True, max_conds_dim=0, max_conds_py=0, max_conds_px=0)
