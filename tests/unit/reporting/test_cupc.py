"""cuPC's Figs. 6, 7, 8 and 10 from made-up records: shares, ratios, what failed, and what must never be mixed."""

from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from matplotlib.colors import to_hex

from gpupc_impl.core.files import read_csv
from gpupc_impl.reporting import style
from gpupc_impl.reporting.figures import write_drawings
from gpupc_impl.reporting.papers import cupc_figures, cupc_heatmaps, cupc_scaling
from gpupc_impl.reporting.sources import Heading
from workflow.lib.experiments import grid_settings

HERE = Heading("this machine", False, "some CPU")

ROOT = Path(__file__).parents[3]
REPORTED = {name: read_csv(ROOT / f"results/reported/{name}.csv") for name in ("cupc_fig6", "cupc_fig7", "cupc_fig8")}


def record(dataset, method, warm, *, status="ok", backend="host", levels=(), **params):
    return {
        "setting": "-".join([method, *map(str, params.values())]),
        "method": method,
        "family": "gaussian",
        "reference": False,
        "backend": backend,
        "params": params,
        "separating_sets": "canonical",
        "dataset": {"name": dataset},
        "problem": None,
        "status": status,
        "why": None if status == "ok" else "a reason",
        "limits": {"time_s": 60.0},
        "time_s": {"cold": 1.0, "warm": warm, "levels": list(levels)},
        "result": None,
        "environment": {
            "git_commit": "0123456789abcdef",
            "git_dirty": False,
            "cpu": "Some CPU",
            "threads": 2,
            "device": {"device": "Some GPU"},
        },
    }


def texts(axes):
    return sorted(text.get_text() for text in axes.texts)


# --- Fig. 6 ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def levels():
    """The levels take 90 % of a call of cuPC-E; cuPC-S has seven levels, and its second run is an outlier."""
    return [
        record("nci-60", "cupc-e", [2.0, 4.0], levels=[[0.2, 1.0, 0.6], [0.4, 2.0, 1.2]]),
        record("nci-60", "cupc-s", [10.0, 99.0, 10.0], levels=[[1.0] * 7, [9.0] * 7, [1.0] * 7]),
        record("wide", "cupc-e", [], status="timeout"),
        record("wide", "cupc-s", [], status="skipped"),
        record("wide", "baseline-1", [1.0], levels=[[1.0]]),
    ]


def test_a_bar_of_fig6_is_the_median_share_of_each_level(levels, load):
    drawing = cupc_figures.cupc_fig6(load(levels), REPORTED["cupc_fig6"])
    shares = {(row["method"], row["part"]): row["percent"] for row in drawing.rows if row["dataset"] == "nci-60"}
    assert [shares["cupc-e", part] for part in "012"] == pytest.approx([100 / 9, 500 / 9, 300 / 9])
    assert shares["cupc-s", "6"] == pytest.approx(100 / 7)
    of_call = {row["method"]: row["percent_of_call"] for row in drawing.rows if row["part"] == "1"}
    assert of_call == pytest.approx({"cupc-e": 50, "cupc-s": 10})
    upper, lower = drawing.figure.axes
    assert texts(upper) == ["11", "33", "56", "90", "timeout"]
    assert "29" in texts(lower)  # levels 5 and 6 in one piece
    assert {"not run", "70"} < set(texts(lower))
    assert "paper 49 to 83 %; ours 14 to 56 % in 1 of 5" in drawing.figure.get_suptitle()
    assert {row["method"] for row in drawing.rows} == {"cupc-e", "cupc-s"}
    plt.close(drawing.figure)


def test_fig6_scales_stacks_and_judges_the_stand_in(load):
    """The medians of these three runs' shares add up to 80 %; the CSV has them as they are."""
    shares = [[0.6, 0.2, 0.2], [0.2, 0.6, 0.2], [0.4, 0.0, 0.6]]
    found = load([record("dream5-like", "cupc-e", [1.0] * 3, levels=shares)])
    drawing = cupc_figures.cupc_fig6(found, REPORTED["cupc_fig6"])
    assert [row["percent"] for row in drawing.rows] == pytest.approx([40, 20, 20])
    upper, _ = drawing.figure.axes
    assert sum(bar.get_height() for bar in upper.patches) == pytest.approx(100)
    assert "paper 0 to 10 %; ours 20 to 20 % in 1 of 1 (dream5-like as stand-in)" in drawing.figure.get_suptitle()
    plt.close(drawing.figure)


@pytest.mark.parametrize("only", ["cupc-e", "cupc-s"])
def test_fig6_with_one_of_the_two_methods(tmp_path, levels, load, only):
    runs = load([content for content in levels if content["method"] != ({"cupc-e", "cupc-s"} - {only}).pop()])
    drawing = cupc_figures.cupc_fig6(runs, REPORTED["cupc_fig6"])
    write_drawings([(HERE, drawing)], *(tmp_path / f"f.{suffix}" for suffix in ("svg", "png", "csv")))
    assert {row["method"] for row in read_csv(tmp_path / "f.csv")} == {only}
    absent = drawing.figure.axes[only == "cupc-e"]
    assert texts(absent) == ["not measured", "not measured"]
    plt.close(drawing.figure)


def test_fig6_without_either(tmp_path, levels, load):
    drawing = cupc_figures.cupc_fig6(load(levels[-1:]), REPORTED["cupc_fig6"])
    write_drawings([(HERE, drawing)], *(tmp_path / f"f.{suffix}" for suffix in ("svg", "png", "csv")))
    assert read_csv(tmp_path / "f.csv") == []


# --- Figs. 7 and 8 ---------------------------------------------------------------------------------------------------


def grid(dataset, times, backend="host", **status):
    """A record a configuration of cuPC-E, 1 s where nothing else is said."""
    powers = [2**k for k in range(9)]
    for name, setting in grid_settings("cupc-e", {"beta": powers, "gamma": powers}, (32, 256)).items():
        failed = status.get(name.replace("-", "_"))
        warm = [] if failed else [times.get(name, 1.0)]
        yield record(dataset, "cupc-e", warm, status=failed or "ok", backend=backend, **setting["params"])


def test_the_grids_have_30_and_16_configurations(load):
    drawing = cupc_heatmaps.cupc_fig7(load([*grid("a", {})]), REPORTED["cupc_fig7"])
    assert len(drawing.rows) == len(drawing.figure.axes[0].texts) == 30
    assert len(grid_settings("cupc-s", {"theta": [32, 64, 128, 256], "delta": [1, 2, 4, 8]})) == 16
    plt.close(drawing.figure)


def test_a_cell_is_the_ratio_to_the_selected_configuration(load):
    runs = load(
        [*grid("a", {"cupc-e-2-32": 2.0, "cupc-e-1-256": 8.0})],
        statuses={("a", "cupc-e-32-1"): "unexplained"},
    )
    drawing = cupc_heatmaps.cupc_fig7(runs, REPORTED["cupc_fig7"])
    ratios = {(row["beta"], row["gamma"]): row["ratio"] for row in drawing.rows}
    assert (ratios[2, 32], ratios[1, 256], ratios[4, 8]) == (1.0, 0.25, 2.0)
    axes = drawing.figure.axes[0]
    assert [texts(axes).count(text) for text in ("1.00", "0.25", "2.00", "2.00✗")] == [1, 1, 27, 1]
    red, _, blue, _ = axes.patches[[*ratios].index((4, 8))].get_facecolor()
    assert blue > red  # faster is blue, slower is red
    assert "ours: 0.25 to 2.00×; paper: 0.3 to 1.3×" in drawing.figure.get_suptitle()
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("β", "γ")
    plt.close(drawing.figure)


def test_what_failed_is_hatched_and_what_was_not_run_is_grey(load):
    runs = load([*grid("a", {}, cupc_e_1_256="timeout", cupc_e_1_128="oom", cupc_e_256_1="skipped")])
    drawing = cupc_heatmaps.cupc_fig7(runs, REPORTED["cupc_fig7"])
    cells = drawing.figure.axes[0].patches
    assert sum(bool(cell.get_hatch()) for cell in cells) == 2
    assert [to_hex(cell.get_facecolor()) for cell in cells].count("#bbbbbb") == 1
    legend = [text.get_text() for text in drawing.figure.legends[0].get_texts()]
    assert legend == ["failed, or over the time limit", "not run"]
    row = next(row for row in drawing.rows if (row["beta"], row["gamma"]) == (1, 256))
    assert (row["status"], row["bound"]) == ("timeout", "<")
    plt.close(drawing.figure)


def test_a_data_set_that_is_missing_has_a_grey_panel(load):
    why = {"why": "data set 'b' is not available: no address answers"}
    absent = [content | {"status": "skipped", "time_s": {"cold": None, "warm": []}} | why for content in grid("b", {})]
    drawing = cupc_heatmaps.cupc_fig7(load([*grid("a", {}), *absent]), REPORTED["cupc_fig7"])
    missing = drawing.figure.axes[1]
    assert {to_hex(cell.get_facecolor()) for cell in missing.patches} == {"#bbbbbb"}  # no configuration is framed
    assert texts(missing) == ["not available"]
    assert len(drawing.rows) == 60
    plt.close(drawing.figure)


@pytest.mark.parametrize("count", [1, 5])
def test_any_number_of_data_sets(tmp_path, count, load):
    runs = load([content for name in "abcdef"[:count] for content in grid(name, {})])
    drawing = cupc_heatmaps.cupc_fig7(runs, REPORTED["cupc_fig7"])
    write_drawings([(HERE, drawing)], *(tmp_path / f"f.{suffix}" for suffix in ("svg", "png", "csv")))
    assert len(drawing.figure.axes) == count + 1
    plt.close(drawing.figure)


def test_backends_have_panels_of_their_own(load):
    runs = load([*grid("a", {}), *grid("a", {"cupc-e-2-32": 0.5}, backend="cuda")])
    drawing = cupc_heatmaps.cupc_fig7(runs, REPORTED["cupc_fig7"])
    assert [axes.get_title() for axes in drawing.figure.axes[:2]] == ["a, host", "a, cuda"]
    assert {row["ratio"] for row in drawing.rows if row["backend"] == "host"} == {1.0}
    plt.close(drawing.figure)


def test_fig8_has_its_own_axes(load):
    settings = grid_settings("cupc-s", {"theta": [32, 64], "delta": [1, 2]})
    records = [record("a", "cupc-s", [1.0], **setting["params"]) for setting in settings.values()]
    drawing = cupc_heatmaps.cupc_fig8(load(records), REPORTED["cupc_fig8"])
    axes = drawing.figure.axes[0]
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("θ", "δ")
    assert [label.get_text() for label in axes.get_yticklabels()] == ["32", "64"]
    plt.close(drawing.figure)


# --- Fig. 10 ---------------------------------------------------------------------------------------------------------


def of_size(content, n, m, d):
    """The record of a search of section 5.6."""
    source = f"generated: cuPC section 5.6, p={n}, m={m}, density={d}, seed=0"
    return content | {"dataset": content["dataset"] | {"source": source}, "problem": {"residual_tolerance": 0}}


@pytest.mark.parametrize(("m", "shown"), [(7, [[0.8, 20.5]]), (8, [])])
def test_fig10_shows_a_printed_time_only_beside_graphs_of_its_size(load, m, shown):
    graphs = {"n50": 50, "n100": 100}
    records = [of_size(record(name, "cupc-e", [1.0]), n, m, 0.5) for name, n in graphs.items()]
    printed = [{"method": "cupc-e", "n": "100", "m": "7", "d": "0.5", "value": "20.5"}]
    drawing = cupc_scaling.cupc_fig10(load(records), {"n": graphs}, printed)
    (axes,) = drawing.figure.axes
    assert [line.get_xydata()[0].tolist() for line in axes.lines if line.get_marker() == "D"] == shown
    assert axes.get_title("left") == f"(a) m = {m}, d = 0.5"
    (legend,) = drawing.figure.legends
    assert ("paper, GTX 1080" in [text.get_text() for text in legend.get_texts()]) == bool(shown)
    plt.close(drawing.figure)


def test_fig10_has_a_box_a_method_and_value(load):
    graphs = {f"n{n}-{seed}": n for n in (50, 100) for seed in range(5)}
    records = []
    for name, n in graphs.items():
        seconds = n / 100 + (9 if name == "n50-4" else 0.01 * len(records))
        records += [record(name, "cupc-e", [seconds]), record(name, "cupc-s", [seconds / 2])]
    records[-1] = record("n100-4", "cupc-s", [], status="timeout")
    records[-2] = record("n100-4", "cupc-e", [], status="oom")
    sweeps = {"n": graphs, "d": {"n50-0": 0.1}}
    printed = [{"method": "cupc-e", "n": "100", "m": "7", "d": "0.5", "value": "20.5"}]
    records = [of_size(content, graphs[content["dataset"]["name"]], 7, 0.5) for content in records]
    drawing = cupc_scaling.cupc_fig10(load(records), sweeps, printed)
    by_n, by_d = drawing.figure.axes
    assert len(by_n.patches) == 4
    squares = [(line.get_color(), list(line.get_ydata())) for line in by_d.lines if line.get_marker() == "s"]
    assert squares == [(style.colour("cupc-e"), [0.5]), (style.colour("cupc-s"), [0.25])]  # of one graph each
    assert not by_d.patches
    assert [label.get_text() for label in by_n.get_xticklabels()] == ["50", "100"]
    outliers = [line.get_ydata() for line in by_n.lines if line.get_marker() == "o"]
    assert sorted(len(points) for points in outliers) == [0, 0, 1, 1]
    assert [list(line.get_ydata()) for line in by_n.lines if line.get_marker() == "^" and len(line.get_ydata())] == [
        [60]
    ]
    diamonds = [
        [line.get_xydata().tolist() for line in each.lines if line.get_marker() == "D"] for each in (by_n, by_d)
    ]
    assert diamonds == [[[[0.8, 20.5]]], []]  # the second value's cuPC-E; the paper has no number for the other panel
    assert texts(by_n) == ["1 of 5 without a time"]
    assert drawing.figure.get_suptitle().startswith("cuPC-S faster than cuPC-E: ours on 9 of 9 graphs")
    assert len(drawing.rows) == 22
    plt.close(drawing.figure)


def test_a_drawing_is_written_three_times(tmp_path, levels, load):
    paths = [tmp_path / f"f.{suffix}" for suffix in ("svg", "png", "csv")]
    write_drawings([(HERE, cupc_figures.cupc_fig6(load(levels), REPORTED["cupc_fig6"]))], *paths)
    assert all(path.stat().st_size for path in paths)
    assert len(read_csv(paths[-1])) == 3 + 7 + 2
