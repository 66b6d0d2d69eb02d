"""A path of alphas is what single calls find."""

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from gpupc_impl import AlphaPath, BackgroundKnowledge, GaussianProblem, InvalidProblem, alpha_path, skeleton
from gpupc_impl.core.result import InvalidSkeleton

matplotlib.use("Agg")


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(3)
    values = rng.normal(size=(200, 15))
    values[:, 5:] += values[:, :10] * 0.4
    return pd.DataFrame(values, columns=[f"g{k}" for k in range(15)])


KNOWN = BackgroundKnowledge(required_edges=[("g0", "g1")])
OPTIONS = [{}, {"correlations": "device"}, {"knowledge": KNOWN}, {"family": "discrete"}]
OPTIONS += [{"method": "cupc-e", "max_level": 1, "df_convention": "cupc"}]
OPTIONS += [{"family": "nonlinear", "permutations": 20, "max_level": 0}]


@pytest.mark.parametrize("options", OPTIONS)
def test_equals_single_calls(data, options):
    options = {"backend": "host", **options}
    if options.get("family") == "discrete":
        data = (data > 0).astype(int)
    if options.get("family") == "nonlinear":
        data = data.iloc[:40, :5]
    path = alpha_path(data, [0.1, 0.001, 0.02], **options)
    assert list(path) == [0.001, 0.02, 0.1]
    for alpha, found in path.items():
        alone = skeleton(data, alpha, **options)
        assert found == alone
        assert found.facts == alone.facts
        assert found.names == alone.names
        assert found.problem.alpha == alpha
    assert path.to_frame()["edges"].tolist() == [found.n_edges for found in path.values()]


def test_a_correlation_matrix(data):
    path = alpha_path(data.corr(), [0.05], n_samples=len(data), backend="host")
    assert path[0.05] == skeleton(data, 0.05, backend="host")


def test_edges(data):
    path = alpha_path(data, [0.1, 0.001], backend="host")
    edges = path.edges()
    for alpha, found in path.items():
        assert edges[edges[alpha]][["source", "target"]].reset_index(drop=True).equals(found.to_frame())
    assert (edges[0.1] | edges[0.001]).all()


def test_plot(data):
    path = alpha_path(data, backend="host")
    axes = path.plot()
    (line,) = axes.lines
    assert line.get_xdata().tolist() == list(path)
    assert line.get_ydata().tolist() == [found.n_edges for found in path.values()]
    plt.close("all")
    html = path._repr_html_()
    assert html.count("<img") == 1
    assert html.count("<tr>") == 1 + len(path)
    assert not plt.get_fignums()


def test_what_cannot_be_used(data):
    for alphas in ([], [0.1, 0.1], [0.1, 1.0], 0.1, None, "0.1", ["0.1"], [[0.1]], [None]):
        with pytest.raises(InvalidProblem, match="alpha"):
            alpha_path(data, alphas)
    with pytest.raises(InvalidProblem, match="carries its own alpha"):
        alpha_path(GaussianProblem.from_data(data), [0.1])


def test_what_is_saved_is_loaded(data, tmp_path):
    path = alpha_path(data, [0.1, 0.001], backend="host")
    path.save(tmp_path / "path.npz")
    again = AlphaPath.load(tmp_path / "path.npz")
    assert list(again.items()) == list(path.items())
    assert again.to_frame().equals(path.to_frame())
    path.save(tmp_path / "path.csv")
    assert pd.read_csv(tmp_path / "path.csv").set_axis(path.edges().columns, axis=1).equals(path.edges())
    path.save(tmp_path / "path.png")
    assert (tmp_path / "path.png").read_bytes().startswith(b"\x89PNG")
    path[0.1].save(tmp_path / "path.npz")
    with pytest.raises(InvalidSkeleton, match=r"path\.npz holds no skeletons by alpha"):
        AlphaPath.load(tmp_path / "path.npz")
