"""Tables and figures from made-up records: bounds, statuses, marks, means, and what must never be mixed."""

import dataclasses
import xml.etree.ElementTree

import matplotlib.pyplot as plt
import pytest

from gpupc_impl.core.family import families
from gpupc_impl.core.registry import methods
from gpupc_impl.reporting import cells, figures, style, summary, tables
from gpupc_impl.reporting.papers import cupc, cupc_figures
from gpupc_impl.reporting.sources import Heading

HERE = Heading("here", False, "my laptop")

ENVIRONMENT = {
    "git_commit": "0123456789abcdef",
    "git_dirty": False,
    "cpu": "Some CPU",
    "threads": 2,
    "device": None,
    "gpu": None,
    "warnings": ["a thing to know"],
}
BACKENDS = {"stable-serial": "cpu", "stable-parallel": "cpu", "causal-learn": "cpu"}
PAPER_TABLE2 = [
    {"symbol": symbol, "method": method, "dataset": dataset, "value": value, "hardware": "GTX"}
    for symbol, method in (
        *(("T1", "Stable"), ("T2", "Parallel-PC"), ("T3", "Stable.fast"), ("T4", "cuPC-E"), ("T5", "cuPC-S")),
        *(("T1/T2", "Parallel-PC"), ("T3/T4", "cuPC-E"), ("T3/T5", "cuPC-S")),
    )
    for dataset, value in (("nci-60", "74"), ("geometric mean", "525"))
]
PAPER_FIG5 = [
    {"method": "cupc-e", "over": "baseline-1", "low": "1.3", "high": "3.9"},
    {"method": "cupc-s", "over": "baseline-1", "low": "45.8", "high": "45.8"},
]


def record(dataset, setting, warm, *, status="ok", backend=None, why=None):
    backend = backend or BACKENDS.get(setting, "host")
    result = {"edges": 591, "levels_run": 4, "tests_per_level": [100, 900]} if status == "ok" else None
    environment = ENVIRONMENT | ({"device": {"device": "Some GPU"}} if backend == "cuda" else {})
    return {
        "setting": setting,
        "method": setting,
        "family": "gaussian",
        "reference": setting in BACKENDS,
        "backend": backend,
        "params": {},
        "separating_sets": "canonical",
        "dataset": {"name": dataset},
        "problem": None,
        "status": status,
        "why": why,
        "limits": {"time_s": 60.0},
        "time_s": {"cold": 9.0 if warm else None, "warm": warm},
        "result": result,
        "environment": environment,
    }


@pytest.fixture
def records():
    """Two data sets on which everything finished but one reference, and one where much failed."""
    found = []
    for dataset, scale in (("nci-60", 1.0), ("mcc", 2.0)):
        found += [
            record(dataset, "stable-serial", [8 * scale, 8 * scale, 9 * scale]),
            record(dataset, "stable-parallel", [5 * scale]),
            record(dataset, "causal-learn", [], status="skipped", why="the config says so"),
            record(dataset, "cupc-e", [2 * scale]),
            record(dataset, "cupc-s", [1.0]),
            record(dataset, "baseline-1", [4 * scale]),
            record(dataset, "baseline-2", [0.5 * scale]),
        ]
    found += [
        record("wide", "stable-serial", [], status="timeout", why="no answer within the time limit of 60 s"),
        record("wide", "stable-parallel", [], status="timeout", why="no answer within the time limit of 60 s"),
        record("wide", "causal-learn", [], status="skipped", why="the config says so"),
        record("wide", "cupc-e", [], status="oom", why="device memory exhausted"),
        record("wide", "cupc-s", [3.0]),
        record("wide", "baseline-1", [], status="timeout", why="no answer within the time limit of 60 s"),
        record("wide", "baseline-2", [6.0]),
    ]
    return found


def row_of(table, *start):
    return next(row for row in table.rows if all(cell.startswith(text) for cell, text in zip(row, start, strict=False)))


# --- speedups --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slow", "fast", "text"),
    [
        (([8.0], "ok"), ([2.0], "ok"), "4.00×"),
        (([], "timeout"), ([2.0], "ok"), "> 30.0× †"),
        (([8.0], "ok"), ([], "timeout"), "< 0.133× †"),
        (([], "timeout"), ([], "timeout"), "–"),
        (([8.0], "ok"), ([], "oom"), "oom"),
        (([], "skipped"), ([2.0], "ok"), "not run"),
    ],
)
def test_a_limit_that_was_hit_is_a_bound(load, slow, fast, text):
    pair = [record("d", "stable-serial", slow[0], status=slow[1]), record("d", "cupc-s", fast[0], status=fast[1])]
    assert str(cells.speedup(*load(pair))) == text


# --- tables ----------------------------------------------------------------------------------------------------------


def test_table2_puts_ours_above_the_reported_numbers(load, records):
    table = cupc.cupc_table2(load(records), PAPER_TABLE2)
    assert row_of(table, "T3, s", "ours: stable-serial")[2:5] == [*("8.00 (8.00–8.60)", "16.0 (16.0–17.2)", "> 60.0 †")]
    assert row_of(table, "T3, s", "paper: Stable.fast")[2:5] == ["74", "–", "–"]
    assert row_of(table, "T4, s", "ours: cuPC-E (host)")[4] == "oom"
    assert row_of(table, "T3/T5", "ours: cuPC-S (host)")[2:5] == ["8.00×", "16.0×", "> 20.0× †"]
    assert row_of(table, "T3/T5", "paper")[-1] == "525 (6)"


def test_means_are_over_the_data_sets_that_all_finished(load, records):
    table = cupc.cupc_table2(load(records), PAPER_TABLE2)
    assert row_of(table, "T3/T4", "ours")[-1] == "4.00× (2)"
    assert row_of(table, "T3/T5", "ours")[-1] == "11.3× (2)"
    assert row_of(table, "T3/T2", "ours: stable-parallel over stable-serial")[-1] == "1.60× (2)"
    mean = next(
        r for r in table.plain if r["symbol"] == "T3/T5" and r["dataset"] == "geometric mean" and r["source"] == "ours"
    )
    assert (round(mean["value"], 3), mean["datasets_in_mean"]) == (11.314, 2)


def test_an_unverified_skeleton_is_marked_and_enters_no_mean(load, records):
    table = cupc.cupc_table2(load(records, {("mcc", "cupc-s"): "unexplained"}), PAPER_TABLE2)
    assert row_of(table, "T3/T5", "ours")[3] == "16.0× ✗"
    assert row_of(table, "T3/T5", "ours")[-1] == "8.00× (1)"
    assert any(note.startswith("✗") for note in table.notes)


def test_backends_have_rows_of_their_own(load, records):
    records += [record("nci-60", "cupc-s", [0.1], backend="cuda")]
    found = load(records)
    table = cupc.cupc_table2(found, PAPER_TABLE2)
    assert row_of(table, "T5, s", "ours: cuPC-S (cuda)")[2:5] == ["0.100", "–", "–"]
    assert row_of(table, "T5, s", "ours: cuPC-S (host)")[2] == "1.00"
    assert any(note.startswith("Backend cuda: Some GPU") for note in table.notes)


def test_rows_are_found_by_what_a_setting_is(load, records):
    """Renamed settings fill the same rows, and other parameters fill none."""

    def cells(found):
        table = cupc.cupc_table2(load(found), PAPER_TABLE2)
        return [[row[0], *row[2:]] for row in table.rows if row[1].startswith("ours")]

    before = cells(records)
    found = []
    for content in records:
        if content["method"] == "cupc-s":
            found.append(
                content | {"setting": "b", "params": {"theta": 32, "delta": 1}, "time_s": {"cold": 1, "warm": [77]}}
            )
        own = {"params": {"theta": 64, "delta": 2}} if content["method"] == "cupc-s" else {}
        found.append(content | {"setting": f"my-{content['setting']}"} | own)
    assert cells(found) == before


def test_speedups_are_of_the_paper_s_rule_for_separating_sets_with_canonical_ones_beside_it(load, records):
    own = {"setting": "as published", "separating_sets": "first-come", "time_s": {"cold": 1, "warm": [0.5]}}
    records += [
        content | own for content in records if (content["dataset"]["name"], content["method"]) == ("nci-60", "cupc-s")
    ]
    table = cupc.cupc_table2(load(records), PAPER_TABLE2)
    assert [row[2] for row in table.rows if row[:2] == ["T5, s", "ours: as published (host)"]] == ["0.500"]
    assert [row[2] for row in table.rows if row[:2] == ["T5, s", "ours: cuPC-S (host)"]] == ["1.00"]
    assert row_of(table, "T3/T5", "ours: as published (host)")[2] == "16.0×"
    rules = [line["separating_sets"] for line in table.plain if (line["symbol"], line["source"]) == ("T5", "ours")]
    assert set(rules) == {"first-come", "canonical"}


def test_levels_alone_stand_beside_whole_calls_and_so_does_the_authors_program(load, records):
    timed = {"stable-serial": [[2.0, 4.0]] * 2, "cupc-s": [[0.1, 0.4]]}
    records = [
        content | {"time_s": {**content["time_s"], "levels": timed.get(content["method"], [])}}
        for content in records
        if content["dataset"]["name"] == "nci-60"
    ]
    records.append(
        record("nci-60", "cupc-authors", [0.25], backend="cuda") | {"time_s": {"warm": [0.25], "levels": [[0.0]]}}
    )
    table = cupc.cupc_table2(load(records), PAPER_TABLE2)
    assert row_of(table, "T5, s", "ours: cuPC-S (host)")[2] == "1.00"
    assert row_of(table, "T5 levels, s", "ours: cuPC-S (host)")[2] == "0.500"
    assert row_of(table, "T3/T5", "ours")[2] == "8.00×"
    assert row_of(table, "T3/T5 levels", "ours")[2:] == ["12.0×", "12.0× (1)"]
    assert [row[0] for row in table.rows if row[1].startswith("authors")] == ["T5, s"]
    assert "The authors' program does not time its levels." in table.notes
    clocks = {line["clock"]: line["value"] for line in table.plain if line.get("method") == "cupc-s"}
    assert clocks["levels"] == pytest.approx(12)


def test_what_was_not_run_says_why(load, records):
    table = summary.methods_by_dataset(load(records))
    assert row_of(table, "nci-60", "causal-learn")[3] == "not run"
    assert "nci-60 not run: causal-learn: the config says so" in table.notes
    assert any("wide oom: cuPC-E: device memory exhausted" in note for note in table.notes)
    assert len(table.rows) == len(records)
    assert next(r for r in table.plain if r["setting"] == "cupc-s")["tests_per_s"] == 1000


def test_table1_shows_a_missing_data_set_and_the_reason():
    facts = {"alpha": 0.05, "source": "somewhere", "licence": "MIT"}
    problems = [
        {"name": "nci-60", "available": True, "why": None, "n_variables": 1190, "n_samples": 47, **facts},
        {"name": "mcc", "available": False, "why": "data set 'mcc' is not here", **facts},
    ]
    reported = [{"dataset": "mcc", "label": "MCC", "variables": "1380", "samples": "88"}]
    table = cupc.cupc_table1(problems, reported)
    assert table.rows[0][:6] == ["nci-60", "available", "1,190", "–", "47", "–"]
    assert table.rows[1][:6] == ["MCC", "not available", "–", "1,380", "–", "88"]
    assert "data set 'mcc' is not here" in table.notes


def test_a_licence_is_text_in_every_form(tmp_path):
    """Registry entries hold words of others; a renderer of Markdown must not take them for HTML, links or rows."""
    licence = "<img src=x onerror=alert(1)> &lt;b> [free](javascript:alert(1))\n| a < b & c"
    facts = {"name": "d", "available": True, "n_variables": 3, "n_samples": 9, "alpha": 0.05, "why": licence}
    table = cupc.cupc_table1([{**facts, "licence": licence}], [])
    files = [tmp_path / f"table.{suffix}" for suffix in ("csv", "md", "html")]
    tables.write_tables([(HERE, table)], *files)
    markdown, page = (file.read_text() for file in files[1:])
    assert "<img" not in markdown + page
    assert "](javascript" not in markdown
    (row,) = (line for line in markdown.splitlines() if line.startswith("| d |"))
    assert row.replace("\\|", "").count("|") == len(table.header) + 1
    assert "a < b & c" in row
    assert "&amp;lt;b>" in row


def test_a_random_method_is_marked_and_its_workers_are_named(load):
    one = record("d", "tigramite", [2.0], backend="cpu") | {"params": {"workers": 1}}
    found = load([record("d", "cmiknn-parallel", [1.0], backend="cpu"), one])
    assert [run.machine for run in found] == ["Some CPU, 2 threads", "Some CPU, 1 thread"]
    found[1] = dataclasses.replace(found[1], verification="random")
    table = summary.methods_by_dataset(found)
    assert row_of(table, "d", "tigramite")[3] == "2.00 ~"
    assert any(note.startswith("~ The method draws its own random numbers") for note in table.notes)
    assert found[1].counts


def test_overview_has_a_panel_a_family(load, records):
    records += [record("d", "discrete-serial", [1.0], backend="cpu") | {"family": "discrete"}]
    figure = summary.overview(load(records)).figure
    assert [axes.get_title("left").split(",")[0] for axes in figure.axes] == [
        "Gaussian: backend host",
        "Discrete: backend cpu",
    ]
    plt.close(figure)


def test_provenance_has_a_column_for_each_environment(load, records):
    table = summary.provenance(load([*records, record("nci-60", "cupc-s", [0.1], backend="cuda")]))
    assert table.header == ["fact", "cpu", "host", "cuda"]
    assert row_of(table, "device.device")[1:] == ["–", "–", "Some GPU"]
    assert not {"device", "gpu"} & {row[0] for row in table.rows}
    assert table.notes == ["Warning: a thing to know."]


def test_tables_are_written_three_times(tmp_path):
    table = tables.Table("A <title>", ["a", "b"], [["x|y", "1"], ["<z>", "2"]], ["a note"], [{"a": 1, "b": None}])
    tables.write_tables([(HERE, table)], tmp_path / "t.csv", tmp_path / "t.md", tmp_path / "t.html")
    assert (tmp_path / "t.csv").read_text() == "device,a,b\nhere,1,\n"
    assert "| x\\|y | 1 |\n" in (tmp_path / "t.md").read_text()
    assert '<td class="text">&lt;z&gt;</td>' in (tmp_path / "t.html").read_text()


def test_a_table_without_rows_has_only_notes(tmp_path):
    paths = [tmp_path / f"t.{suffix}" for suffix in ("csv", "md", "html")]
    tables.write_tables([(HERE, tables.Table("Empty", ["a", "b"], [], ["Nothing was measured."], [{"a": ""}]))], *paths)
    assert paths[1].read_text() == "**Empty**\n\n**CPU cores: my laptop**\n\n- Nothing was measured.\n"
    assert "<table" not in paths[2].read_text()


def test_a_machine_without_verdicts_is_folded_away_beside_another(tmp_path):
    paths = [tmp_path / f"t.{suffix}" for suffix in ("csv", "md", "html")]

    def claims(*verdicts):
        return tables.Table("Claims", ["claim", "verdict"], [["x", word] for word in verdicts], [], [{}], verdict=1)

    few, many = claims("holds", "not run", "not run"), claims("holds", "less", "not run")
    tables.write_tables([(Heading("gpu", True, "a GPU"), many), (HERE, few)], *paths)
    before, after = paths[-1].read_text().split("my laptop")
    assert "<details>" not in before
    assert "<details><summary>1 of 3 sentences" in after
    tables.write_tables([(HERE, few)], *paths)
    assert "<details>" not in paths[-1].read_text()  # alone it is what there is


# --- figures ---------------------------------------------------------------------------------------------------------


def texts(axes):
    return [text.get_text() for text in axes.texts]


def test_fig5_has_a_panel_a_baseline_and_shows_bounds(load, records):
    figure = cupc_figures.cupc_fig5(load(records), PAPER_FIG5).figure
    over_1, over_2 = figure.axes
    assert texts(over_1) == ["2.00", "4.00", "2.00", "8.00", "oom", ">20.0", "1.3–\n3.9", "45.8"]
    assert texts(over_2) == ["0.25", "0.50", "0.25", "1.00", "oom", "2.00"]
    assert [label.get_text() for label in over_2.get_xticklabels()] == ["nci-60", "mcc", "wide", "paper"]
    plt.close(figure)


def test_backends_have_panels_of_their_own(load, records):
    for method in ("cupc-e", "cupc-s", "baseline-1", "baseline-2"):
        records.append(record("nci-60", method, [0.1], backend="cuda"))
    found = load(records)
    figure = cupc_figures.cupc_fig5(found, PAPER_FIG5).figure
    assert len(figure.axes) == 4
    plt.close(figure)
    figure = summary.overview(found).figure
    assert [axes.get_title("left").split(",")[0] for axes in figure.axes] == [
        "Gaussian: backend cuda",
        "Gaussian: backend host",
    ]
    plt.close(figure)


def test_overview_shows_every_data_set_and_setting(load, records):
    figure = summary.overview(load(records, {("mcc", "cupc-s"): "unexplained"})).figure
    legend = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    drawn = [r["setting"] for r in records[:7] if r["setting"] != "causal-learn"]  # It was run on no data set.
    assert legend[:6] == [cells.label(setting) for setting in drawn]
    assert legend[6:] == ["over the time limit", "not verified", "no time (not run, or failed)"]
    plt.close(figure)


def test_overview_says_that_a_data_set_is_not_there_and_shows_each_method_at_its_fastest(load, records):
    why = "data set 'lost' is not available: no address answers"
    gone = [record("lost", name, [], status="skipped", why=why) for name in ("stable-serial", "cupc-s")]
    faster = record("nci-60", "cupc-s", [0.25]) | {"setting": "cupc-s-first-come", "separating_sets": "first-come"}
    (axes,) = summary.overview(load([*records, faster, *gone])).figure.axes
    assert texts(axes) == ["not available"]
    drawn = [line.get_ydata()[0] for line in axes.lines if len(line.get_xdata()) == 1]
    assert 0.25 in drawn  # and not the other setting's second on nci-60; two methods take one on mcc
    assert drawn.count(1.0) == 2
    plt.close(axes.figure)


def test_a_figure_for_papers_has_neither_heading_nor_small_print(tmp_path, load, records):
    drawing = cupc_figures.cupc_fig6(load(records), [])
    for name in ("a.pdf", "b.pdf"):
        style.save_plain([drawing.figure, drawing.figure], tmp_path / name)
    assert (tmp_path / "a.pdf").read_bytes() == (tmp_path / "b.pdf").read_bytes()
    content = (tmp_path / "a.pdf").read_bytes()
    assert content.count(b"/Type /Page\n") + content.count(b"/Type /Page ") == 2
    assert drawing.figure._suptitle.get_visible()
    figures.write_drawings(
        [(HERE, drawing)], tmp_path / "f.svg", tmp_path / "f.png", tmp_path / "f.csv", tmp_path / "f.pdf"
    )
    assert (tmp_path / "f.pdf").stat().st_size
    plt.close(drawing.figure)


def test_figures_are_reproducible_and_say_where_they_are_from(tmp_path, load, records):
    found = load(records)
    for name in ("a", "b"):
        figures.write_drawings([(HERE, summary.overview(found))], tmp_path / f"{name}.svg", tmp_path / f"{name}.png")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    xml.etree.ElementTree.parse(tmp_path / "a.svg")
    figure = summary.overview(found).figure
    assert "commit 0123456789" in figure._supxlabel.get_text()
    plt.close(figure)


def test_every_method_has_a_colour_of_its_own():
    for family in families():
        colours = [style.METHOD_COLOURS[name] for name in methods(family) if name in style.METHOD_COLOURS]
        assert len(set(colours)) == len(colours)
    assert style.colour("a-plug-in") == style.OTHER_COLOUR
