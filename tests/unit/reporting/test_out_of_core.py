"""Out-of-Core's Figs. 1 and 2 and Table 1 from made-up records: levels, limits, what failed."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex

from gpupc_impl.core.files import read_csv
from gpupc_impl.reporting import style
from gpupc_impl.reporting.figures import write_drawings
from gpupc_impl.reporting.papers import out_of_core, out_of_core_fig2
from gpupc_impl.reporting.sources import Heading
from gpupc_impl.reporting.tables import write_tables

HERE = Heading("this machine", False, "some CPU")

ROOT = Path(__file__).parents[3]
REPORTED = {name: read_csv(ROOT / f"results/reported/{name}.csv") for name in ("ooc_fig2", "ooc_table1")}
UM, BLOCK = "out-of-core-um", "out-of-core-block"


def record(
    p,
    method,
    levels=(),
    *,
    setting=None,
    params=None,
    status="ok",
    backend="host",
    device_bytes=None,
    limit=None,
    memory=None,
    left=1.0,
):
    pairs = p * (p - 1) // 2
    return {
        "setting": setting or method,
        "method": method,
        "family": "gaussian",
        "reference": method.startswith("stable"),
        "backend": backend,
        "params": params or {},
        "separating_sets": "canonical",
        "dataset": {"name": f"wide-{p}"},
        "problem": {"n_variables": p, "n_samples": 7},
        "status": status,
        "why": None if status == "ok" else f"a reason ({method})",
        "limits": {"time_s": 60.0, "device_memory_bytes": limit},
        "time_s": {"cold": 1.0, "warm": [sum(run) for run in levels], "levels": [list(run) for run in levels]},
        "peak_bytes": {"device": device_bytes, "process": 10},
        "result": {
            "tests_per_level": [pairs, 2 * pairs * (p - 2)],
            "edges_per_level": [int(left * pairs)] * 2,
            "edges": int(left * pairs),
            "levels_run": 2,
        }
        if status == "ok"
        else None,
        "environment": {
            "git_commit": "0123456789abcdef",
            "git_dirty": False,
            "cpu": "Some CPU",
            "threads": 2,
            "device": {"device": "Some GPU", "memory_bytes": memory} if memory else {"device": "Some CPU"},
        },
    }


SWEEPS = {"p": {f"wide-{p}": p for p in (100, 200, 400, 800)}}


@pytest.fixture
def runs(load):
    """Unified memory needs 26 bytes a pair of variables and goes beyond the limit of 2 MB between 200 and 400."""
    records = []
    for p in (100, 200, 400, 800):
        need = 26 * p * p
        if p < 800:
            records.append(record(p, UM, [(0.1, p / 100), (0.3, p / 100)], device_bytes=need, limit=2_000_000))
        else:
            records.append(record(p, UM, status="timeout", limit=2_000_000))
        records.append(record(p, BLOCK, [(p / 1000, p / 200)], device_bytes=1_900_000, limit=2_000_000))
    return load(records)


# --- Fig. 2 ----------------------------------------------------------------------------------------------------------


def test_fig2_has_the_median_of_each_level(runs):
    drawing = out_of_core_fig2.ooc_fig2(runs, REPORTED["ooc_fig2"], SWEEPS)
    rows = {(row["level"], row["variables"], row["method"]): row for row in drawing.rows}
    assert rows[0, 200, UM]["median_s"] == pytest.approx(0.2)
    assert (rows[0, 200, UM]["low_s"], rows[0, 200, UM]["high_s"]) == pytest.approx((0.14, 0.26))
    assert rows[1, 400, BLOCK]["median_s"] == 2
    assert rows[1, 100, UM]["tests"] == 100 * 99 * 98
    assert rows[1, 800, UM]["median_s"] is None
    assert rows[1, 800, UM]["status"] == "timeout"
    assert len(drawing.rows) == 16
    level_zero, level_one, *_ = drawing.figure.axes
    assert level_zero.get_title(loc="left") == "level 0"
    lines = {
        to_hex(line.get_color()).upper(): line.get_ydata().tolist()
        for line in level_one.lines
        if len(line.get_xdata()) > 2
    }
    assert lines[style.colour(UM).upper()] == [1, 2, 4]
    assert lines[style.colour(BLOCK).upper()] == [0.5, 1, 2, 4]
    assert [line.get_ydata()[0] for line in level_one.lines if line.get_marker() == "^"] == [60]
    plt.close(drawing.figure)


def test_fig2_draws_our_ratios_and_the_paper_s_below_the_times(runs):
    drawing = out_of_core_fig2.ooc_fig2(runs, REPORTED["ooc_fig2"], SWEEPS)
    *_, level_zero, level_one = drawing.figure.axes
    of_marker = [
        {line.get_marker(): line.get_xydata().tolist() for line in axes.lines if line.get_marker() == "o"}
        for axes in (level_zero, level_one)
    ]
    assert of_marker[0]["o"] == [[100, pytest.approx(0.5)], [200, pytest.approx(1)], [400, pytest.approx(2)]]
    assert of_marker[1]["o"] == [[100, 2], [200, 2], [400, 2]]
    assert not [line for line in level_one.lines if line.get_marker() == "D"]  # the paper's are too far away
    plt.close(drawing.figure)
    larger = {"p": {name: 25 * size for name, size in SWEEPS["p"].items()}}
    drawing = out_of_core_fig2.ooc_fig2(runs, REPORTED["ooc_fig2"], larger)
    diamonds = [line.get_xydata()[0].tolist() for line in drawing.figure.axes[-1].lines if line.get_marker() == "D"]
    assert diamonds == [[35_000, 1], [40_000, 12.4]]
    plt.close(drawing.figure)


def test_fig2_shows_modelled_times_where_a_run_was_refused(load):
    params = {"level_one": "pairs", "device_mb": 10**6}
    found = [record(p, UM, [(1, 3)], device_bytes=26 * p * p) | {"params": params} for p in (100, 200)]
    found.append(record(400, UM, status="oom") | {"params": params})
    found += [record(p, BLOCK, [(1, 2)], device_bytes=9) for p in (100, 200, 400)]
    rates = {"first_touch_gb_s": 1.0, "to_device_gb_s": 1.0, "to_host_gb_s": 1.0}
    drawing = out_of_core_fig2.ooc_fig2(load(found), REPORTED["ooc_fig2"], SWEEPS, rates)
    modelled = {(row["level"], row["variables"]): row["modelled_s"] for row in drawing.rows if row["modelled_s"]}
    (legend,) = drawing.figure.legends
    assert "not run, or failed" in [text.get_text() for text in legend.get_texts()]
    assert set(modelled) == {(0, 400), (1, 400)}
    assert modelled[1, 400] == pytest.approx(2 + 3 * 2**24 / 1e9)  # three new arrays, each on one page of the model
    plt.close(drawing.figure)


def test_modelled_ratios_are_those_of_the_same_blocks_as_the_measured_ones(load):
    """Square blocks were not run at 400: there only the other layout has a ratio."""
    params = {"level_one": "pairs", "device_mb": 10**6}
    found = [record(100, UM, [(1, 3)], device_bytes=9) | {"params": params}]
    found += [record(p, UM, status="oom") | {"params": params} for p in (200, 400)]
    squares = {"setting": "paper-blocks", "params": {"layout": "blocks"}, "device_bytes": 9}
    found += [record(p, BLOCK, [(1, 30)], **squares) for p in (100, 200)]
    found += [record(p, BLOCK, [(1, 3)], setting="auto", device_bytes=9) for p in (100, 200, 400)]
    rates = dict.fromkeys(("first_touch_gb_s", "to_device_gb_s", "to_host_gb_s"), 1e6)
    drawing = out_of_core_fig2.ooc_fig2(load(found), REPORTED["ooc_fig2"], SWEEPS, rates)
    dotted = [line.get_xydata() for line in drawing.figure.axes[-1].lines if line.get_linestyle() == ":"]
    square, auto = sorted(dotted, key=len)
    assert square == pytest.approx(np.array([[100, 0.1], [200, 0.1]]), rel=1e-3)
    assert auto == pytest.approx(np.array([[100, 1], [200, 1], [400, 1]]), rel=1e-3)
    plt.close(drawing.figure)


def test_fig2_has_several_numbers_on_a_short_axis(load):
    found = [record(p, UM, [(1, 1.2)], device_bytes=9) for p in (100, 200)]
    found += [record(p, BLOCK, [(1, 1)], device_bytes=9) for p in (100, 200)]
    drawing = out_of_core_fig2.ooc_fig2(load(found), REPORTED["ooc_fig2"], SWEEPS)
    axes = drawing.figure.axes[-1]
    low, high = axes.get_ylim()
    assert sum(low <= tick <= high for tick in axes.get_yticks()) >= 3
    plt.close(drawing.figure)


def test_fig2_marks_where_memory_ends(runs):
    assert out_of_core_fig2.memory_limit(runs, SWEEPS["p"]) == pytest.approx((2_000_000 / 26) ** 0.5)
    drawing = out_of_core_fig2.ooc_fig2(runs, REPORTED["ooc_fig2"], SWEEPS)
    for axes in drawing.figure.axes:
        (line,) = [line for line in axes.lines if len(set(line.get_xdata())) == 1 and len(line.get_xdata()) == 2]
        assert 200 < line.get_xdata()[0] < 400
    plt.close(drawing.figure)


def test_the_memory_limit_is_the_budget_or_the_devices_or_unknown(load):
    without = record(100, UM, [(1, 1)], device_bytes=100)
    device = record(100, UM, [(1, 1)], device_bytes=100, memory=400)
    budget = record(100, UM, [(1, 1)], device_bytes=100, memory=400, limit=25)
    failed = record(100, UM, status="oom", limit=25)
    smaller = record(100, UM, [(1, 1)], device_bytes=1_000_000, memory=4_000_000_000) | {"params": {"device_mb": 16}}
    expected = {0: None, 1: 200, 2: 50, 3: None, 4: 400}
    for number, content in enumerate((without, device, budget, failed, smaller)):
        assert out_of_core_fig2.memory_limit(load([content]), {"wide-100": 100}) == expected[number]


def test_fig2_says_what_the_paper_says(runs):
    drawing = out_of_core_fig2.ooc_fig2(runs, REPORTED["ooc_fig2"], SWEEPS)
    heading = drawing.figure.get_suptitle()
    ours, paper = "ours 2.00× at 100, 2.00× at 400", "paper 1× at 35,000, 12.4× at 40,000, 34× at 55,000"
    assert f"Level 1, block-based over UM: {ours}; {paper}" in heading
    assert "Level 0, UM over block-based: ours 0.500× at 100, 2.00× at 400; paper up to 15× at 5,000, 4.4×" in heading
    assert "fully connected" not in heading
    plt.close(drawing.figure)


def test_fig2_names_graphs_that_lost_edges(load):
    lost = [record(100, method, [(1, 1)], device_bytes=9, left=0.99) for method in (UM, BLOCK)]
    drawing = out_of_core_fig2.ooc_fig2(load(lost), REPORTED["ooc_fig2"], SWEEPS)
    assert "Not fully connected, edges were removed: wide-100" in drawing.figure.get_suptitle()
    plt.close(drawing.figure)


def test_other_settings_of_a_method_have_lines_of_their_own(load):
    """Which line stands for a method depends on neither its name nor its place."""
    squares = {"setting": "paper-blocks", "params": {"layout": "blocks"}, "device_bytes": 9}
    panels = {"setting": "block", "params": {"layout": "auto"}, "device_bytes": 9}
    records = [record(p, BLOCK, [(1, 9)], **squares) for p in (100, 200)]
    records += [record(p, BLOCK, [(1, 3)], **panels) for p in (100, 200)]
    records += [record(p, UM, [(1, 3)], setting="um", device_bytes=9) for p in (100, 200)]
    drawing = out_of_core_fig2.ooc_fig2(load(records), REPORTED["ooc_fig2"], SWEEPS)
    dashed = [line for line in drawing.figure.axes[1].lines if line.get_linestyle() == "--"]
    assert [line.get_ydata().tolist() for line in dashed] == [[3, 3]]
    assert "Level 1, block-based over UM: ours 0.333× at 100" in drawing.figure.get_suptitle()
    (legend,) = drawing.figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "block-based, as published",
        "block",
        "um",
    ]  # the paper's sizes are too far away
    dashed = [line for line in drawing.figure.axes[3].lines if line.get_linestyle() == "--"]
    assert [line.get_ydata().tolist() for line in dashed] == [[1, 1]]
    plt.close(drawing.figure)


def test_backends_are_never_mixed(load):
    records = [
        record(p, BLOCK, [(1, 1)], backend=backend, device_bytes=9) for p in (100, 200) for backend in ("host", "cuda")
    ]
    drawing = out_of_core_fig2.ooc_fig2(load(records), REPORTED["ooc_fig2"], SWEEPS)
    titles = [axes.get_title(loc="left") for axes in drawing.figure.axes]
    assert list(filter(None, titles)) == [
        f"level {level}, {backend}" for backend in ("cuda", "host") for level in (0, 1)
    ]
    plt.close(drawing.figure)


def test_fig2_with_nothing_but_failures(tmp_path, load):
    records = [record(100, method, status="oom") for method in (UM, BLOCK)]
    drawing = out_of_core_fig2.ooc_fig2(load(records), REPORTED["ooc_fig2"], SWEEPS)
    write_drawings([(HERE, drawing)], tmp_path / "f.svg", tmp_path / "f.png", tmp_path / "f.csv")
    assert [row["status"] for row in read_csv(tmp_path / "f.csv")] == ["oom"] * 4
    assert "ours not measured" in drawing.figure.get_suptitle()


# --- Table 1 ---------------------------------------------------------------------------------------------------------


def test_table1_has_ours_above_the_papers(tmp_path, load):
    runs = load(
        [
            record(100, "stable-parallel", [(1.0, 7.0)], backend="cpu", left=2 / 3),
            record(100, UM, [(1.0, 3.0)], device_bytes=8_000_000, left=2 / 3),
            record(100, BLOCK, [(0.5, 1.5)], device_bytes=1_500_000, limit=2_000_000, left=2 / 3),
        ],
    )
    table = out_of_core.ooc_table1(runs, REPORTED["ooc_table1"])
    ours, paper = table.rows
    assert ours[:8] == ["wide-100", "ours: host", "100", "7", "66.7 %", "8.00", "4.00", "2.00"]
    assert ours[8:] == ["2.00×", "4.00×", "1.50 MB of 2.00 MB"]
    assert paper[1:4] == ["paper", "55,572", "3,189"]
    assert "107.6 h" in paper[5]
    assert "43.4 h" in paper[6]
    assert "0.46 h" in paper[7]
    assert paper[8:10] == ["94×", "234×"]  # of the printed hours; the text says 95 and 236
    write_tables([(HERE, table)], tmp_path / "t.csv", tmp_path / "t.md", tmp_path / "t.html")
    written = read_csv(tmp_path / "t.csv")
    assert [row["source"] for row in written] == ["ours"] * 3 + ["paper"] * 3
    assert float(written[5]["median_s"]) == pytest.approx(0.46 * 3600)
    assert written[2]["edges_per_level"] == "3300 3300"


def test_table1_has_the_paper_s_blocks_before_others_and_unified_memory_with_their_kernels(load):
    blocks = [("block", "auto", 1.0), ("paper-blocks", "blocks", 3.0)]
    found = [
        record(100, BLOCK, [(1.0, seconds)], setting=setting, params={"layout": layout}, device_bytes=9)
        for setting, layout, seconds in blocks
    ]
    found += [
        record(100, UM, [(1.0, seconds)], setting=kernel, params={"level_one": kernel}, device_bytes=9)
        for kernel, seconds in (("cupc-s", 15.0), ("pairs", 7.0))
    ]
    table = out_of_core.ooc_table1(load(found), REPORTED["ooc_table1"])
    assert [row[1] for row in table.rows] == ["ours: host, block-based, as published", "ours: host, block", "paper"]
    assert [row[8] for row in table.rows[:2]] == ["2.00×", "4.00×"]
    assert [row["setting"] for row in table.plain if row["source"] == "ours"] == ["pairs", "paper-blocks", "block"]


def test_table1_says_what_failed(load):
    runs = load(
        [
            record(100, "stable-parallel", status="timeout", backend="cpu"),
            record(100, UM, status="oom"),
            record(100, BLOCK, [(0.5, 1.5)], device_bytes=1_500_000),
            record(200, UM, [(1, 1)], device_bytes=9),
            record(200, BLOCK, [(1, 1)], device_bytes=9),
        ],
        statuses={("wide-200", BLOCK): "unexplained"},
    )
    table = out_of_core.ooc_table1(runs, REPORTED["ooc_table1"])
    first, second, _ = table.rows
    assert first[5:10] == ["> 60.0 †", "oom", "2.00", "oom", "> 30.0× †"]
    assert second[5:10] == ["–", "2.00", "2.00 ✗", "1.00× ✗", "–"]
    assert any("a reason (out-of-core-um)" in note for note in table.notes)
    assert any(note.startswith("✗") for note in table.notes)


# --- Fig. 1 ----------------------------------------------------------------------------------------------------------


def step(level, block, name, start, end, stream=0):
    numbers = {"level": level, "block": block, "stream": stream, "start_s": start, "end_s": end}
    return {"step": name, **{key: str(value) for key, value in numbers.items()}}


def test_fig1_shows_every_step_of_blocks_in_the_middle(tmp_path):
    rows = []
    for block in range(15):
        for number, name in enumerate(("extract", "transfer", "kernel", "transfer", "merge")):
            start = 4 + block + number / 10
            rows.append(step(0, block, name, start, start + 0.1, block % 3))
    rows += [step(1, 0, name, 30 + k, 31 + k) for k, name in enumerate(("extract", "kernel", "merge"))]
    drawing = out_of_core.ooc_fig1(rows, "wide, backend host")
    first, second = drawing.figure.axes
    assert first.get_title(loc="left") == "level 0: blocks 2 to 13, in the middle of 15 blocks"
    assert second.get_title(loc="left") == "level 1: 1 block"
    assert len(first.patches) == 12 * 5
    assert min(patch.get_x() for patch in first.patches) == 0
    assert {to_hex(patch.get_facecolor()).upper() for patch in first.patches} == set(out_of_core.STREAM_COLOURS)
    assert [text.get_text() for text in second.get_yticklabels()] == list(out_of_core.STEPS.values())
    assert len(drawing.rows) == len(rows)
    assert "Level 0, 15 blocks: 0 % of the other steps' time overlaps with a kernel" in drawing.figure.get_suptitle()
    write_drawings([(HERE, drawing)], tmp_path / "f.svg", tmp_path / "f.png", tmp_path / "f.csv")
    assert read_csv(tmp_path / "f.csv")[0]["step"] == "extract"


def test_fig1_shows_the_middle_of_the_time_of_a_level():
    """Twenty short blocks and then twenty of a second each: the middle of the time is far behind the middle block."""
    rows = [step(1, block, "kernel", 0.01 * block, 0.01 * block + 0.01) for block in range(20)]
    rows += [step(1, 20 + block, "kernel", 1 + block, 2 + block) for block in range(20)]
    drawing = out_of_core.ooc_fig1(rows, "wide, backend host")
    assert drawing.figure.axes[0].get_title(loc="left") == "level 1: blocks 24 to 35, in the middle of 40 blocks"
    plt.close(drawing.figure)


def test_fig1_without_a_run(tmp_path):
    drawing = out_of_core.ooc_fig1([], "wide, backend host")
    write_drawings([(HERE, drawing)], tmp_path / "f.svg", tmp_path / "f.png", tmp_path / "f.csv")
    assert (tmp_path / "f.csv").read_text() == "device,level,block,step,stream,start_s,end_s\n"


@pytest.mark.parametrize(
    ("spans", "share"),
    [
        ([("kernel", 0, 10), ("transfer", 2, 4), ("merge", 9, 11)], 3 / 4),
        ([("kernel", 0, 1), ("kernel", 1, 2), ("extract", 0.5, 1.5)], 1.0),
        ([("kernel", 0, 1), ("transfer", 1, 2)], 0.0),
        ([("transfer", 0, 2), ("extract", 1, 3), ("kernel", 0, 3)], 1.0),  # two at once count once
        ([("kernel", 0, 1)], None),
        ([("extract", 0, 1)], 0.0),
    ],
)
def test_what_passes_beside_a_kernel(spans, share):
    rows = [{"step": name, "start_s": start, "end_s": end} for name, start, end in spans]
    assert out_of_core.hidden_share(rows) == (share if share is None else pytest.approx(share))
