"""Figures 1 and 2 and Table 1 of the Out-of-Core paper, from records and a recorded timeline only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpupc_impl.reporting import style
from gpupc_impl.reporting.catalogue import CsvRows, figure, table
from gpupc_impl.reporting.cells import csv_row, label, mark, number, places, remarks, speedup, time_cell
from gpupc_impl.reporting.figures import HEADING, Drawing
from gpupc_impl.reporting.papers.managed_memory import BLOCK, UM
from gpupc_impl.reporting.runs import Runs, VerifiedRecord, datasets_of, of_method
from gpupc_impl.reporting.tables import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PAPER = "Out-of-Core"
AS_PUBLISHED = {UM: {"level_one": "pairs"}, BLOCK: {"layout": "blocks"}}
PAPER_NAMES = {"GPU UM": UM, "GPU Block-Based": BLOCK}


def compared(runs: Runs) -> set[str]:
    """Return the paper's two settings: square blocks, and unified memory with the same kernels."""
    return {run.setting for method, params in AS_PUBLISHED.items() for run in of_method(runs, method, **params)}


@table("ooc_table1", "Table 1: wide data", paper=PAPER, experiments=("ooc_table1",))
def ooc_table1(runs: Runs, reported: CsvRows) -> Table:
    """The table shows levels 0 and 1 at alpha = 0.01 on wide data, as the Out-of-Core paper's Table 1: a CPU reference,
    unified memory and block-based, with the paper's numbers for TCGA (55,572 genes, 3,189 samples) below ours. The TCGA
    matrix is not public in one file; generated data replace it, see ``docs/experiments.md``.
    """
    rows, plain = [], []
    for dataset in datasets_of(runs):
        here = [run for run in runs if run.dataset == dataset]
        reference = next((run for run in here if run.reference), None)
        for backend in sorted({run.backend for run in here if run.method in (UM, BLOCK)}):
            on_it = [run for run in here if run.backend == backend]
            um = next(iter(of_method(on_it, UM, **AS_PUBLISHED[UM])), None)
            blocks = [run for run in on_it if run.method == BLOCK]
            # The paper's blocks come before other layouts.
            blocks.sort(key=lambda run: run.params.get("layout") != "blocks")
            facts = here[0].problem or {}
            shape = [f"{facts[key]:,}" if key in facts else "–" for key in ("n_variables", "n_samples")]
            for block in blocks or [None]:
                who = f"ours: {backend}" + (f", {label(block.setting)}" if len(blocks) > 1 else "")
                times = map(time_cell, (reference, um, block))
                ratios = _ratio(um, block), _ratio(reference, block)
                rows.append([dataset, who, *shape, _left_after(block or um), *times, *ratios, _device_memory(block)])
            plain += [
                {"dataset": dataset, "source": "ours"}
                | csv_row(run, "setting method backend machine")
                | {"variables": facts.get("n_variables"), "samples": facts.get("n_samples")}
                | csv_row(run, "median_s low_s high_s limit_s edges_per_level tests_per_level")
                | csv_row(run, "device_bytes device_limit_bytes process_bytes status verification")
                for run in (reference, um, *blocks)
                if run is not None
            ]
    references = dict.fromkeys(label(run.method) for run in runs if run.reference)
    about = reported[0]
    stated = {PAPER_NAMES.get(row["method"], "cpu"): float(row["value"]) for row in reported}
    hours = [stated[who] for who in ("cpu", UM, BLOCK)]
    shape = [f"{int(about[key]):,}" for key in ("variables", "samples")]
    times = [f"{number(3600 * value)} ({value:g} h)" for value in hours]
    ratios = [f"{hours[k] / hours[2]:.0f}×" for k in (1, 0)]
    rows.append([about["dataset"], "paper", *shape, "67 %", *times, *ratios, "–"])
    plain += [
        {"dataset": row["dataset"], "source": "paper", "method": row["method"], "machine": row["hardware"]}
        | {"variables": row["variables"], "samples": row["samples"], "median_s": 3600 * float(row["value"])}
        for row in reported
    ]
    header = ["data set", "", "variables", "samples", "edges left by level 0", "CPU, s", "UM, s", "block-based, s"]
    header += ["block over UM", "block over CPU", "device memory of block-based"]
    notes = [
        "Levels 0 and 1. Ours: median of the warm runs; CPU is our "
        f"{' or '.join(references) or 'reference'}, the paper's is pcalg's stable.fast. "
        "The paper's hardware is not ours: compare ratios, not times.",
        *(f"Paper, {row['method']}: {row['hardware']}." for row in reported),
        "The paper's ratios are those of the hours in its table; its text states 95 and 236, with 27.35 minutes for "
        "block-based.",
        *places(runs),
        *remarks(runs),
        f"Paper: {about['citation']}.",
    ]
    return Table("Levels 0 and 1 on wide data (Out-of-Core, Table 1)", header, rows, notes, plain)


def _ratio(slow: VerifiedRecord | None, fast: VerifiedRecord | None) -> str:
    ratio = speedup(slow, fast)
    return str(ratio) + (mark(slow, fast) if ratio.value is not None else "")


def _left_after(run: VerifiedRecord | None) -> str:
    """Return the percentage of edges that level 0 left."""
    if run is None or not run.result:
        return "–"
    p = run.problem["n_variables"]
    return f"{100 * run.result.edges_per_level[0] / (p * (p - 1) / 2):.3g} %"


def _device_memory(run: VerifiedRecord | None) -> str:
    """Format the memory that was used, and its limit."""
    if run is None or run.peak_bytes.device is None:
        return "–"
    used, limit = f"{number(run.peak_bytes.device / 1e6)} MB", run.limits.device_memory_bytes
    return used if limit is None else f"{used} of {number(limit / 1e6)} MB"


STEPS = {"extract": "extraction (CPU)", "transfer": "transfer", "kernel": "kernel", "merge": "merging (CPU)"}
STREAM_COLOURS = ("#0072B2", "#E69F00", "#009E73")
SHOWN = 12
"""The upper bound on the blocks of a level that the figure shows; the CSV has all of them."""


@figure("ooc_fig1", "Fig. 1: overlap of transfers and kernels", paper=PAPER, experiments=("ooc_table1",))
def ooc_fig1(timeline: CsvRows, ran: str) -> Drawing:
    """The figure shows when each block of a real run went through extraction and merging on the CPU, transfers, and
    kernels, as the Out-of-Core paper's Fig. 1 sketches it; the numbers in the bars identify the blocks. Of a level with
    many blocks, a few from the middle of its time are shown; the shares in the heading are those of all its blocks. If
    whole rows stay on the device in level 1, its first blocks only load them, and blocks in the middle need no
    extraction. {% if config["backend"] == "host" %}On the host backend streams run in order, so nothing overlaps.
    {% endif %} ``results/tables/ooc_fig1.csv`` has the numbers.
    """
    import matplotlib.pyplot as plt
    from matplotlib.patches import Patch

    style.use()
    steps = [
        {"level": int(row["level"]), "block": int(row["block"]), "step": row["step"], "stream": int(row["stream"])}
        | {"start_s": float(row["start_s"]), "end_s": float(row["end_s"])}
        for row in timeline
    ]
    levels = sorted({row["level"] for row in steps})
    heading = [f"Block-based, {ran}"]
    size = (style.PAGE_WIDTH, 1.3 * max(1, len(levels)) + 0.7)
    figure, grid = plt.subplots(max(1, len(levels)), figsize=size, squeeze=False)
    for axes, level in zip(grid[:, 0], levels, strict=False):
        here = [row for row in steps if row["level"] == level]
        blocks = sorted({row["block"] for row in here})
        shown = _middle_blocks(here)
        _bars(axes, [row for row in here if row["block"] in shown])
        every = f"{len(blocks)} block{'s' * (len(blocks) > 1)}"
        which = every if len(shown) == len(blocks) else f"blocks {shown[0]} to {shown[-1]}, in the middle of {every}"
        axes.set_title(f"level {level}: {which}", loc="left")
        hidden = hidden_share(here)
        if hidden is not None:
            share = f"{100 * hidden:.0f} % of the other steps' time overlaps with a kernel"
            heading.append(f"Level {level}, {every}: {share}")
    grid[-1, 0].set_xlabel("seconds since the first block shown began")
    streams = sorted({row["stream"] for row in steps})
    handles = [Patch(facecolor=STREAM_COLOURS[number], label=f"stream {number}") for number in streams]
    figure.legend(handles=handles, loc="outside lower right", ncols=len(STREAM_COLOURS))
    figure.suptitle("\n".join(heading), **HEADING)
    return Drawing(figure, steps, columns=("level", "block", "step", "stream", "start_s", "end_s"))


def _middle_blocks(rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the blocks of a level that begin around the middle of its time, at most `SHOWN`, in ascending order."""
    begins: dict[int, float] = {}
    for row in rows:
        begins[row["block"]] = min(row["start_s"], begins.get(row["block"], row["start_s"]))
    blocks = sorted(begins)
    middle = (min(begins.values()) + max(row["end_s"] for row in rows)) / 2
    before = sum(begin < middle for begin in begins.values())
    first = max(0, min(before - SHOWN // 2, len(blocks) - SHOWN))
    return blocks[first : first + SHOWN]


def _bars(axes: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    """Draw a bar for each step of a block, with the block's number if there is room."""
    start = min(row["start_s"] for row in rows)
    whole = max(row["end_s"] for row in rows) - start
    for row in rows:
        row_number, left, width = list(STEPS).index(row["step"]), row["start_s"] - start, row["end_s"] - row["start_s"]
        colour = STREAM_COLOURS[row["stream"]]
        axes.barh(row_number, width, left=left, height=0.8, color=colour, edgecolor="white", linewidth=0.2)
        name = str(row["block"])
        if width > 0.012 * len(name) * whole:
            axes.annotate(name, (left + width / 2, row_number), ha="center", va="center_baseline", fontsize=6)
    axes.set_yticks(range(len(STEPS)), STEPS.values())
    axes.set_ylim(len(STEPS) - 0.5, -0.5)
    axes.grid(visible=False)


def hidden_share(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the share of the other steps' time that passes while a kernel runs; None without other steps."""
    kernels = _union([(row["start_s"], row["end_s"]) for row in rows if row["step"] == "kernel"])
    others = _union([(row["start_s"], row["end_s"]) for row in rows if row["step"] != "kernel"])
    total = sum(end - start for start, end in others)
    if not total:
        return None
    beside = sum(
        max(0.0, min(end, kernel_end) - max(start, kernel_start))
        for start, end in others
        for kernel_start, kernel_end in kernels
    )
    return beside / total


def _union(spans: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Merge overlapping spans of time."""
    joined: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined
