"""Bootstrap: a plain loop over `pc`, in any order, in other processes, and after an interruption."""

import dataclasses
import json
import warnings
from concurrent.futures import ThreadPoolExecutor

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from gpupc_impl import BackgroundKnowledge, Bootstrap, GaussianProblem, bootstrap, pc, resampled_rows
from gpupc_impl.core.orientation import CPDAG
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.core.result import InvalidSkeleton
from gpupc_impl.studies import bootstrap as module

matplotlib.use("Agg")


OPTIONS = {"backend": "host", "method": "cupc-s"}
N = 12


@pytest.fixture(scope="module")
def data():
    """a -> c <- b, c -> d, and e."""
    rng = np.random.default_rng(1)
    a, b, e = rng.normal(size=(3, 80))
    c = a + b + rng.normal(size=80)
    return pd.DataFrame({"a": a, "b <i>": b, "c": c, "d": 0.5 * c + rng.normal(size=80), "=e": e})


@pytest.fixture(scope="module")
def plain(data):
    """Counts of a plain loop."""
    return counts_of([pc(data.iloc[resampled_rows(len(data), 7, k)], 0.05, **OPTIONS) for k in range(N)])


def counts_of(graphs):
    return sum(graph.directed.astype(int) for graph in graphs), sum(graph.undirected.astype(int) for graph in graphs)


def assert_counts(found, counts):
    assert np.array_equal(found.directed, counts[0])
    assert np.array_equal(found.undirected, counts[1])


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_equals_a_plain_loop(data, plain):
    found = bootstrap(data, N, seed=7, **OPTIONS)
    assert_counts(found, plain)
    assert found.names == tuple(data)
    assert found.graph == pc(data, **OPTIONS)
    assert np.allclose(found.edge_frequencies, (plain[0] + plain[0].T + plain[1]) / N)
    assert np.allclose(found.direction_frequencies, plain[0] / N)


def test_arrays_and_labels(data):
    labels = (data > 0).apply(lambda column: column.map({True: "high", False: "low"}))
    found = bootstrap(labels, 3, seed=1, backend="host")
    graphs = [pc(labels.iloc[resampled_rows(len(data), 1, k)], backend="host") for k in range(3)]
    assert found.graph.skeleton.problem.family == "discrete"
    assert_counts(found, counts_of(graphs))
    of_frame = bootstrap(data, 2, **OPTIONS)
    assert_counts(bootstrap(data.to_numpy(), 2, **OPTIONS), (of_frame.directed, of_frame.undirected))


def test_data_as_people_bring_them(data, tmp_path):
    """A file, variables in rows, missing values: the rows that are left are drawn from."""
    holes = data.mask(np.random.default_rng(0).random(data.shape) < 0.02)
    holes.to_csv(tmp_path / "holes.csv", index=False)
    whole = holes.dropna()
    graphs = [pc(whole.iloc[resampled_rows(len(whole), 0, k)], **OPTIONS) for k in range(3)]
    counts = counts_of(graphs)
    for given, options in ((tmp_path / "holes.csv", {}), (holes, {}), (holes.T, {"transpose": True})):
        found = bootstrap(given, 3, missing="drop-rows", **options, **OPTIONS)
        assert_counts(found, counts)
        assert found.names == tuple(data)
    known = BackgroundKnowledge(required_edges=[("c", "=e")])
    found = bootstrap(holes, 2, missing="pairwise", knowledge=known)
    assert found.edge_frequencies[2, 4] == 1


def test_in_processes_and_executors(data, plain, tmp_path):
    assert_counts(bootstrap(data, N, seed=7, processes=2, folder=tmp_path / "many", **OPTIONS), plain)
    with ThreadPoolExecutor(3) as executor:
        assert_counts(bootstrap(data, N, seed=7, executor=executor, folder=tmp_path / "pool", **OPTIONS), plain)
    bootstrap(data, N, seed=7, folder=tmp_path / "one", **OPTIONS)
    assert content(tmp_path / "one") == content(tmp_path / "many") == content(tmp_path / "pool")


def test_resumed_is_not_resumed_byte_for_byte(data, plain, tmp_path, monkeypatch):
    bootstrap(data, N, seed=7, folder=tmp_path / "whole", **OPTIONS)
    searched = []  # the data themselves, then the resamples

    def counted(samples, *args, **options):
        if len(searched) == interrupted_after:
            raise KeyboardInterrupt
        searched.append(samples)
        return pc(samples, *args, **options)

    monkeypatch.setattr(module, "pc", counted)
    interrupted_after = 6
    with pytest.raises(KeyboardInterrupt):
        bootstrap(data, N, seed=7, folder=tmp_path / "broken", **OPTIONS)
    (tmp_path / "broken" / "000002.npz").write_bytes(b"half")
    interrupted_after = None
    searched.clear()
    assert_counts(bootstrap(data, N, seed=7, folder=tmp_path / "broken", **OPTIONS), plain)
    expected = [2, *range(5, N)]
    assert len(searched) == 1 + len(expected)
    for k, samples in zip(expected, searched[1:], strict=True):
        assert samples.equals(data.iloc[resampled_rows(len(data), 7, k)])
    assert content(tmp_path / "broken") == content(tmp_path / "whole")
    searched.clear()
    more = bootstrap(data, N + 2, seed=7, folder=tmp_path / "broken", **OPTIONS)
    assert (len(searched), more.n) == (1 + 2, N + 2)


def test_rows():
    rows = resampled_rows(50, 3, 4)
    assert rows.shape == (50,)
    assert np.array_equal(rows, resampled_rows(50, 3, 4))
    assert not np.array_equal(rows, resampled_rows(50, 3, 5))
    assert not np.array_equal(rows, resampled_rows(50, 4, 4))
    part = resampled_rows(50, 3, 4, replace=False, fraction=0.5)
    assert len(set(part.tolist())) == len(part) == 25
    assert len(set(resampled_rows(50, 0, 0, replace=False).tolist())) == 50
    many = np.concatenate([resampled_rows(10, 0, k) for k in range(2000)])
    assert np.abs(np.bincount(many) / len(many) - 0.1).max() < 0.01


def test_to_frame(data, plain):
    found = bootstrap(data, N, seed=7, **OPTIONS)
    frame = found.to_frame()
    number = {name: k for k, name in enumerate(found.names)}
    assert (frame.frequency.diff().dropna() <= 0).all()
    assert (frame.directed >= frame.reversed).all()
    assert np.allclose(frame.frequency, frame.directed + frame.reversed + frame.undirected)
    for row in frame.itertuples():
        i, j = number[row.source], number[row.target]
        assert (row.directed, row.reversed) == (plain[0][i, j] / N, plain[0][j, i] / N)
    assert len(frame) == np.count_nonzero(np.triu(plain[0] + plain[0].T + plain[1]))
    assert (found.to_frame(0.9).frequency >= 0.9).all()


def test_pictures(data):
    found = bootstrap(data, 4, seed=7, **OPTIONS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for axes in (found.plot(), found.plot(at_least=1.0), found.heatmap(), found.heatmap(at_least=1.0)):
            axes.figure.canvas.draw()
    shown = {text.get_text() for text in found.plot().texts}
    less = {f"{frequency:.0%}" for frequency in found.to_frame(0.5).frequency if frequency < 1}
    assert {"c", "b <i>"} | less <= shown
    plt.close("all")
    html = found._repr_html_()
    assert html.count("<img") == 1
    assert "<td>b &lt;i&gt;</td>" in html
    assert html.count("<tr>") == 1 + min(10, len(found.to_frame()))


def test_what_is_warned_of_in_a_resample_is_said_once(data):
    rare = data.assign(rare=(np.arange(len(data)) == 0) / 3)
    with pytest.warns(UserWarning, match="in a resample: 1 constant variable") as caught:
        bootstrap(rare, 8, **OPTIONS)
    assert len(caught) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": None}, "n is None; it must be a whole number of at least 1"),
        ({"fraction": "half"}, "fraction is 'half'"),
        ({"seed": -1}, "seed is -1"),
        ({"processes": 0}, "processes is 0"),
        ({"fraction": 1.5, "replace": False}, r"fraction is 1\.5"),
        ({"n_samples": 10}, "cannot be resampled"),
    ],
)
def test_what_cannot_be_used(data, change, message):
    with pytest.raises(InvalidProblem, match=message):
        bootstrap(data, **change)
    with pytest.raises(InvalidProblem, match="cannot be resampled"):
        bootstrap(GaussianProblem.from_data(data))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"alpha": 0.01}, "a bootstrap of other data, or another alpha"),
        ({"replace": False, "fraction": 0.5}, r"a bootstrap of fraction 1\.0"),
        ({"method": "cupc-e"}, "a bootstrap of options"),
    ],
)
def test_a_folder_of_other_settings_is_refused(data, tmp_path, change, message):
    bootstrap(data, 1, folder=tmp_path, **OPTIONS)
    with pytest.raises(InvalidProblem, match=message):
        bootstrap(data, 1, **{"folder": tmp_path, **OPTIONS, **change})
    settings = json.loads((tmp_path / "bootstrap.json").read_text())
    assert settings.keys() == {"data", "seed", "replace", "fraction", "options"}
    assert settings["options"] == {"method": "'cupc-s'"}


def counted(frequent, replace=False, fraction=0.5):
    """Ten resamples of five variables, in which these edges were always found, without a direction."""
    undirected = np.zeros((5, 5), np.int32)
    for i, j in frequent:
        undirected[i, j] = undirected[j, i] = 10
    graph = pc(np.random.default_rng(0).normal(size=(20, 5)), **OPTIONS)
    return Bootstrap(10, np.zeros((5, 5), np.int32), undirected, graph, replace, fraction)


def test_the_bound_of_stability_selection():
    """Meinshausen and Bühlmann (2010), Theorem 1, by hand: 2 edges on average among 10 pairs."""
    found = counted([(0, 1), (2, 4)])
    assert found.expected_errors(0.9) == pytest.approx(2**2 / ((2 * 0.9 - 1) * 10))
    assert found.threshold(0.5) == pytest.approx(0.9)
    assert found.expected_errors(found.threshold(2.0)) == pytest.approx(2.0)
    assert len(found.to_frame(found.threshold())) == 2
    assert counted([]).threshold() == 0.5


def test_what_has_no_bound():
    with pytest.raises(InvalidProblem, match=r"halves of the samples: say replace=False, fraction=0\.5"):
        counted([(0, 1)], replace=True).threshold()
    with pytest.raises(InvalidProblem, match=r"at 100 % of the resamples the bound is 0\.4; give a lower alpha"):
        counted([(0, 1), (2, 4)]).threshold(0.3)
    for threshold in (0.5, 1.1, np.nan):
        with pytest.raises(InvalidProblem, match=r"above 0\.5 and at most 1"):
            counted([]).expected_errors(threshold)
    with pytest.raises(InvalidProblem, match="a number above 0"):
        counted([]).threshold(0)


def test_what_is_saved_is_loaded(data, tmp_path):
    found = bootstrap(data, 3, seed=7, replace=False, fraction=0.5, **OPTIONS)
    path = tmp_path / "found.npz"
    found.save(path)
    again = Bootstrap.load(path)
    assert (again.n, again.replace, again.fraction, again.graph) == (3, False, 0.5, found.graph)
    assert again.to_frame().equals(found.to_frame())
    assert CPDAG.load(path) == found.graph
    found.save(tmp_path / "found.csv")
    assert len(pd.read_csv(tmp_path / "found.csv")) == len(found.to_frame())
    found.save(tmp_path / "found.svg")
    assert b"<svg" in (tmp_path / "found.svg").read_bytes()
    with pytest.raises(ValueError, match=r"the suffix must be one of \.npz, \.csv, \.png, \.svg"):
        found.save(tmp_path / "found.json")
    found.graph.save(path)
    with pytest.raises(InvalidSkeleton, match=r"found\.npz holds no resamples"):
        Bootstrap.load(path)
    wrong = dataclasses.replace(found, undirected=found.undirected + 4)
    wrong.save(path)
    with pytest.raises(InvalidSkeleton, match=r"its counts are not 5 x 5 numbers up to 3"):
        Bootstrap.load(path)
