"""Figure 1 and Table 1 of the Out-of-Core paper, from records and a recorded timeline only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpupc_impl.reporting import style
from gpupc_impl.reporting.catalogue import CsvRows, figure, table
from gpupc_impl.reporting.cells import label, number
from gpupc_impl.reporting.figures import HEADING, Drawing
from gpupc_impl.reporting.lines import Cell, Line, of_lines, printed, ratios, times
from gpupc_impl.reporting.notes import RATIOS, places, remarks
from gpupc_impl.reporting.runs import Runs, VerifiedRecord, datasets_of, kernels_of, of_method
from gpupc_impl.reporting.tables import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PAPER = "Out-of-Core"
UM, BLOCK = "out-of-core-um", "out-of-core-block"
AS_PUBLISHED = {UM: {"level_one": "pairs"}, BLOCK: {"layout": "blocks"}}
PAPER_NAMES = {"GPU UM": UM, "GPU Block-Based": BLOCK}


def compared(runs: Runs) -> set[str]:
    """Return the paper's two settings: square blocks, and unified memory with the same kernels."""
    return {run.setting for method, params in AS_PUBLISHED.items() for run in of_method(runs, method, **params)}


COLUMNS = {
    **{"variables": "variables", "samples": "samples", "left": "edges left by level 0"},
    **{"cpu": "CPU, s", UM: "UM, s", BLOCK: "block-based, s"},
    **{"over um": "block over UM", "over cpu": "block over CPU", "memory": "device memory of block-based"},
}


@table("ooc_table1", "Table 1: wide data", paper=PAPER, experiments=("ooc_table1",))
def ooc_table1(runs: Runs, reported: CsvRows) -> Table:
    """The table shows levels 0 and 1 at alpha = 0.01 on wide data, as the Out-of-Core paper's Table 1: a CPU reference,
    unified memory and block-based, with the paper's numbers for TCGA (55,572 genes, 3,189 samples) below ours. The TCGA
    matrix is not public in one file; generated data replace it, see ``docs/experiments.md``.
    """
    lines = []
    for dataset in datasets_of(runs):
        here = [run for run in runs if run.dataset == dataset]
        reference = next((run for run in here if run.reference), None)
        um = next(iter(of_method(here, UM, **AS_PUBLISHED[UM])), None)
        # The paper's blocks come before other layouts.
        blocks = [run for run in here if run.method == BLOCK]
        blocks.sort(key=lambda run: run.params.get("layout") != "blocks")
        for block in blocks or [None] * (um is not None):
            who = f"ours: {kernels_of(here)}" + (f", {label(block.setting)}" if len(blocks) > 1 else "")
            lines.append(Line([dataset, who], _cells(reference, um, block, first=block in (None, blocks[0]))))
    about, hours = reported[0], {PAPER_NAMES.get(row["method"], "cpu"): float(row["value"]) for row in reported}
    cells = printed(
        reported,
        lambda row: PAPER_NAMES.get(row["method"], "cpu"),
        lambda row: f"{number(3600 * float(row['value']))} ({float(row['value']):g} h)",
    )
    cells |= {name: Cell(f"{int(about[name]):,}") for name in ("variables", "samples")} | {"left": Cell("67 %")}
    cells |= {f"over {slow}": Cell(f"{hours[key] / hours[BLOCK]:.0f}×") for slow, key in (("um", UM), ("cpu", "cpu"))}
    lines.append(Line([about["dataset"], "paper"], cells))
    references = dict.fromkeys(label(run.method) for run in runs if run.reference)
    notes = [
        "Levels 0 and 1. Ours: median of the warm runs; CPU is our "
        f"{' or '.join(references) or 'reference'}, the paper's is pcalg's stable.fast.",
        RATIOS,
        *(f"Paper, {row['method']}: {row['hardware']}." for row in reported),
        "The paper's ratios are those of the hours in its table; its text states 95 and 236, with 27.35 minutes for "
        "block-based.",
        *places(runs),
        *remarks(runs),
        f"Paper: {about['citation']}.",
    ]
    title = "Levels 0 and 1 on wide data (Out-of-Core, Table 1)"
    return of_lines(title, ["data set", ""], COLUMNS, lines, notes)


def _cells(
    reference: VerifiedRecord | None, um: VerifiedRecord | None, block: VerifiedRecord | None, first: bool
) -> dict[str, Cell]:
    """Return the cells of a layout of blocks; of the lines of a data set only the first has the others' CSV rows."""
    facts = next((run.problem or {} for run in (block, um) if run), {})
    shape = {"variables": facts.get("n_variables"), "samples": facts.get("n_samples")}
    own = {"cpu": reference, UM: um, BLOCK: block}
    cells = {name: cell for name, run in own.items() for cell in times([run], **shape).values()}
    cells |= {name: cells[name]._replace(row=None) for name in ("cpu", UM) if name in cells and not first}
    cells |= {name: Cell(f"{value:,}") for name, value in shape.items() if value is not None}
    pairs = ratios({"over um": (um, block), "over cpu": (reference, block)})
    cells |= {name: cell._replace(row=None) for name, cell in pairs.items()}
    left = (block or um).left_by_level_0 if block or um else None
    cells["left"] = Cell("–" if left is None else f"{left:.3g} %")
    if block is not None and block.peak_bytes.device is not None:
        used, limit = f"{number(block.peak_bytes.device / 1e6)} MB", block.limits.device_memory_bytes
        cells["memory"] = Cell(used if limit is None else f"{used} of {number(limit / 1e6)} MB")
    return cells


STEPS = {"extract": "extraction (CPU)", "transfer": "transfer", "kernel": "kernel", "merge": "merging (CPU)"}
STREAM_COLOURS = ("#0072B2", "#E69F00", "#009E73")
SHOWN = 12
"""The upper bound on the blocks of a level that the figure shows; the CSV has all of them."""


@figure("ooc_fig1", "Fig. 1: overlap of transfers and kernels", paper=PAPER, experiments=("ooc_table1",))
def ooc_fig1(timeline: CsvRows, ran: str) -> Drawing:
    """The figure shows when each block of a real run went through extraction and merging on the CPU, transfers, and
    kernels, as the Out-of-Core paper's Fig. 1 sketches it; the numbers in the bars identify the blocks. Of a level with
    many blocks, a few from the middle of its time are shown; the shares in the heading are those of all its blocks. On
    the right one of them is enlarged from its first transfer to its last, since a kernel may take microseconds. If
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
    widths = {"width_ratios": [4, 1]}
    figure, grid = plt.subplots(max(1, len(levels)), 2, figsize=size, squeeze=False, sharey=True, gridspec_kw=widths)
    for (axes, zoom), level in zip(grid, levels, strict=False):
        here = [row for row in steps if row["level"] == level]
        blocks = sorted({row["block"] for row in here})
        shown = _middle_blocks(here)
        _bars(axes, [row for row in here if row["block"] in shown])
        one = shown[len(shown) // 2]
        on_device = [row for row in here if row["block"] == one and row["step"] in ("transfer", "kernel")]
        _bars(zoom, on_device, unit=1e-3, letter=0.05)
        zoom.set_title(f"block {one} on the device", loc="left")
        every = f"{len(blocks)} block{'s' * (len(blocks) > 1)}"
        which = every if len(shown) == len(blocks) else f"blocks {shown[0]} to {shown[-1]}, in the middle of {every}"
        axes.set_title(f"level {level}: {which}", loc="left")
        hidden = hidden_share(here)
        if hidden is not None:
            share = f"{100 * hidden:.0f} % of the other steps' time overlaps with a kernel"
            heading.append(f"Level {level}, {every}: {share}")
    grid[-1, 0].set_xlabel("seconds since the first block shown began")
    grid[-1, 1].set_xlabel("milliseconds")
    streams = sorted({row["stream"] for row in steps})
    handles = [Patch(facecolor=STREAM_COLOURS[number], label=f"stream {number}") for number in streams]
    figure.legend(handles=handles, loc="outside lower right", ncols=len(STREAM_COLOURS))
    figure.suptitle("\n".join(heading), **HEADING)
    return Drawing(figure, steps)


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


def _bars(axes: Axes, rows: Sequence[Mapping[str, Any]], unit: float = 1.0, letter: float = 0.012) -> None:
    """Draw a bar for each step of a block, with the block's number if there is room.

    Args:
        unit: the seconds of a unit of the axis.
        letter: the width of a letter as a part of the axis.
    """
    start = min(row["start_s"] for row in rows)
    whole = (max(row["end_s"] for row in rows) - start) / unit
    for row in rows:
        row_number, left = list(STEPS).index(row["step"]), (row["start_s"] - start) / unit
        width = (row["end_s"] - row["start_s"]) / unit
        colour = STREAM_COLOURS[row["stream"]]
        axes.barh(row_number, width, left=left, height=0.8, color=colour, edgecolor="white", linewidth=0.2)
        name = str(row["block"])
        if width > letter * len(name) * whole:
            axes.annotate(name, (left + width / 2, row_number), ha="center", va="center_baseline", fontsize=6)
    axes.set_yticks(range(len(STEPS)), STEPS.values())
    axes.set_ylim(len(STEPS) - 0.5, -0.5)
    axes.grid(visible=False)


Span = tuple[float, float]


def hidden_share(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the share of the other steps' time that passes while a kernel runs; None without other steps."""
    kernels = _union([(row["start_s"], row["end_s"]) for row in rows if row["step"] == "kernel"])
    others = _union([(row["start_s"], row["end_s"]) for row in rows if row["step"] != "kernel"])
    total = sum(end - start for start, end in others)
    both = sum(max(0.0, min(end, to) - max(start, since)) for start, end in others for since, to in kernels)
    return both / total if total else None


def _union(spans: Sequence[Span]) -> list[Span]:
    """Merge overlapping spans of time."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined
