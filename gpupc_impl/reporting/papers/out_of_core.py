"""The Out-of-Core paper: Table 1, Figures 1 and 2, and its claims (results/reported/ooc_claims.csv)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gpupc_impl.reporting import cells as c
from gpupc_impl.reporting import quantities as q
from gpupc_impl.reporting import style
from gpupc_impl.reporting.catalogue import CsvRows, Sweeps
from gpupc_impl.reporting.claims import table_of
from gpupc_impl.reporting.figures import HEADING, Drawing, canvas, draw_times, key, log_axis, swatch
from gpupc_impl.reporting.runs import Runs, VerifiedRecord, by_key, datasets_of, kernels_of, of_method
from gpupc_impl.reporting.tables import Table

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

UM, BLOCK = "out-of-core-um", "out-of-core-block"
AS_PUBLISHED = {UM: {"level_one": "pairs"}, BLOCK: {"layout": "blocks"}}  # the parameters of the paper's programs
PAPER_NAMES = {"GPU UM": UM, "GPU Block-Based": BLOCK}

COLUMNS = {
    **{"variables": "variables", "samples": "samples", "left": "edges left by level 0"},
    **{"cpu": "CPU, s", UM: "UM, s", BLOCK: "block-based, s"},
    **{"over um": "block over UM", "over cpu": "block over CPU", "memory": "device memory of block-based"},
}


def ooc_table1(runs: Runs, reported: CsvRows) -> Table:
    lines = []
    for dataset in datasets_of(runs):
        here = [run for run in runs if run.dataset == dataset]
        reference = next((run for run in here if run.reference), None)
        um = next(iter(of_method(here, UM, **AS_PUBLISHED[UM])), None)
        # The paper's blocks come before other layouts.
        blocks = [run for run in here if run.method == BLOCK]
        blocks.sort(key=lambda run: run.params.get("layout") != "blocks")
        for block in blocks or [None] * (um is not None):
            who = f"ours: {kernels_of(here)}" + (f", {c.label(block.setting)}" if len(blocks) > 1 else "")
            lines.append(c.Line([dataset, who], _cells(reference, um, block, first=block in (None, blocks[0]))))
    about, hours = reported[0], {PAPER_NAMES.get(row["method"], "cpu"): float(row["value"]) for row in reported}
    cells = c.printed(
        reported,
        lambda row: PAPER_NAMES.get(row["method"], "cpu"),
        lambda row: f"{c.number(3600 * float(row['value']))} ({float(row['value']):g} h)",
    )
    cells |= {name: c.Cell(f"{int(about[name]):,}") for name in ("variables", "samples")} | {"left": c.Cell("67 %")}
    cells |= {f"over {slow}": c.Cell(f"{hours[key] / hours[BLOCK]:.0f}×") for slow, key in (("um", UM), ("cpu", "cpu"))}
    lines.append(c.Line([about["dataset"], "paper"], cells))
    references = dict.fromkeys(c.label(run.method) for run in runs if run.reference)
    notes = [
        "Levels 0 and 1. Ours: median of the warm runs; CPU is our "
        f"{' or '.join(references) or 'reference'}, the paper's is pcalg's stable.fast.",
        c.RATIOS,
        *(f"Paper, {row['method']}: {row['hardware']}." for row in reported),
        "The paper's ratios are those of the hours in its table; its text states 95 and 236, with 27.35 minutes for "
        "block-based.",
        f"Paper: {about['citation']}.",
    ]
    title = "Levels 0 and 1 on wide data (Out-of-Core, Table 1)"
    return c.of_lines(title, ["data set", ""], COLUMNS, lines, notes, runs)


def _cells(
    reference: VerifiedRecord | None, um: VerifiedRecord | None, block: VerifiedRecord | None, first: bool
) -> dict[str, c.Cell]:
    """Return the cells of a layout of blocks; of the lines of a data set only the first has the others' CSV rows."""
    facts = next((run.problem or {} for run in (block, um) if run), {})
    shape = {"variables": facts.get("n_variables"), "samples": facts.get("n_samples")}
    own = {"cpu": reference, UM: um, BLOCK: block}
    cells = {name: cell for name, run in own.items() for cell in c.times([run], **shape).values()}
    cells |= c.without_rows({name: cells[name] for name in ("cpu", UM) if name in cells and not first})
    cells |= {name: c.Cell(f"{value:,}") for name, value in shape.items() if value is not None}
    cells |= c.without_rows(c.ratios({"over um": (um, block), "over cpu": (reference, block)}))
    left = (block or um).left_by_level_0 if block or um else None
    cells["left"] = c.Cell("–" if left is None else f"{left:.3g} %")
    if block is not None and block.peak_bytes.device is not None:
        used, limit = f"{c.number(block.peak_bytes.device / 1e6)} MB", block.limits.device_memory_bytes
        cells["memory"] = c.Cell(used if limit is None else f"{used} of {c.number(limit / 1e6)} MB")
    return cells


TIMELINE = {"level": int, "block": int, "step": str, "stream": int, "start_s": float, "end_s": float}
STEPS = {"extract": "extraction (CPU)", "transfer": "transfer", "kernel": "kernel", "merge": "merging (CPU)"}
STREAM_COLOURS = ("#0072B2", "#E69F00", "#009E73")
SHOWN = 12  # the upper bound on the blocks of a level that the figure shows; the CSV has all of them


def ooc_fig1(timeline: CsvRows, ran: str) -> Drawing:
    import pandas

    steps = pandas.DataFrame(timeline, columns=list(TIMELINE)).astype(TIMELINE)
    levels = sorted(steps["level"].unique())
    heading = [f"Block-based, {ran}"]
    size = (style.PAGE_WIDTH, 1.3 * max(1, len(levels)) + 0.7)
    figure, grid = canvas(max(1, len(levels)), 2, size, sharey=True, gridspec_kw={"width_ratios": [4, 1]})
    for (axes, zoom), level in zip(grid, levels, strict=False):
        here = steps[steps["level"] == level]
        shown, count = _middle_blocks(here), here["block"].nunique()
        _bars(axes, here[here["block"].isin(shown)])
        one = shown[len(shown) // 2]
        on_device = here[(here["block"] == one) & here["step"].isin(["transfer", "kernel"])]
        _bars(zoom, on_device, unit=1e-3, letter=0.05)
        zoom.set_title(f"block {one} on the device", loc="left")
        every = f"{count} block{'s' * (count > 1)}"
        which = every if len(shown) == count else f"blocks {shown[0]} to {shown[-1]}, in the middle of {every}"
        axes.set_title(f"level {level}: {which}", loc="left")
        if (hidden := hidden_share(here)) is not None:
            share = f"{100 * hidden:.0f} % of the other steps' time overlaps with a kernel"
            heading.append(f"Level {level}, {every}: {share}")
    grid[-1, 0].set_xlabel("seconds since the first block shown began")
    grid[-1, 1].set_xlabel("milliseconds")
    streams = sorted(steps["stream"].unique())
    handles = [swatch(f"stream {number}", facecolor=STREAM_COLOURS[number]) for number in streams]
    figure.legend(handles=handles, loc="outside lower right", ncols=len(STREAM_COLOURS))
    figure.suptitle("\n".join(heading), **HEADING)
    return Drawing(figure, steps.to_dict("records"))


def _middle_blocks(steps: pandas.DataFrame) -> list[int]:
    """Return the blocks of a level that begin around the middle of its time, at most `SHOWN`, in ascending order."""
    begins = steps.groupby("block")["start_s"].min()
    before = int((begins < (begins.min() + steps["end_s"].max()) / 2).sum())
    first = max(0, min(before - SHOWN // 2, len(begins) - SHOWN))
    return list(begins.index[first : first + SHOWN])


def _bars(axes: Axes, steps: pandas.DataFrame, unit: float = 1.0, letter: float = 0.012) -> None:
    """Draw a bar for each step of a block; a `unit` of the axis is in seconds, and a `letter` is a part of the axis."""
    lefts = (steps["start_s"] - steps["start_s"].min()) / unit
    widths = (steps["end_s"] - steps["start_s"]) / unit
    colours = [STREAM_COLOURS[stream] for stream in steps["stream"]]
    look = {"height": 0.8, "color": colours, "edgecolor": "white", "linewidth": 0.2}
    bars = axes.barh([list(STEPS).index(step) for step in steps["step"]], widths, left=lefts, **look)
    names, whole = steps["block"].astype(str), (lefts + widths).max()
    texts = [name if width > letter * len(name) * whole else "" for name, width in zip(names, widths, strict=True)]
    axes.bar_label(bars, texts, label_type="center", fontsize=6)
    axes.set_yticks(range(len(STEPS)), STEPS.values())
    axes.set_ylim(len(STEPS) - 0.5, -0.5)
    axes.grid(visible=False)


def hidden_share(steps: pandas.DataFrame) -> float | None:
    """Return the share of the other steps' time that passes while a kernel runs; None without other steps."""
    ends = np.unique(steps[["start_s", "end_s"]])
    middles, lengths = (ends[1:] + ends[:-1]) / 2, np.diff(ends)
    is_kernel = steps["step"] == "kernel"
    others, kernels = (
        np.searchsorted(np.sort(its["start_s"]), middles) > np.searchsorted(np.sort(its["end_s"]), middles)
        for its in (steps[~is_kernel], steps[is_kernel])
    )
    return float(lengths[others & kernels].sum() / lengths[others].sum()) if others.any() else None


LEVELS = (0, 1)
LIMIT = {"color": "#0072B2", "linewidth": 1}
PAPER_LOOK = {"color": "black", "markersize": 3.5, "markerfacecolor": "none", "linestyle": "none"}


def ooc_fig2(runs: Runs, reported: CsvRows, sweeps: Sweeps) -> Drawing:
    sizes = {graph: int(value) for sweep in sweeps.values() for graph, value in sweep.items()}
    runs = [run for run in runs if run.dataset in sizes and run.method in (UM, BLOCK)]
    runs.sort(key=lambda run: sizes[run.dataset])
    main = {method: run.setting for method, params in AS_PUBLISHED.items() for run in of_method(runs, method, **params)}
    looks = {run.setting: _look(run, run.setting in main.values()) for run in runs}
    figure, grid = canvas(2, 2, (style.PAGE_WIDTH, 4.0), sharex="col", gridspec_kw={"height_ratios": [3, 2]})
    limit, reach = memory_limit(runs, sizes), 2 * max(sizes.values())
    rows, shows_paper = [], False
    for upper, lower, level in zip(*grid, LEVELS, strict=True):
        for setting, look in looks.items():
            its = [run for run in runs if run.setting == setting]
            draw_times(upper, its, lambda run: sizes[run.dataset], level, **look)
            rows += [_row(run, level, sizes[run.dataset]) for run in its]
        theirs = [row for row in reported if (row["level"], row["quantity"]) == (str(level), "runtime")]
        shown = [row for row in theirs if int(row["variables"]) <= reach]
        fast = PAPER_NAMES[theirs[0]["method"]]
        ours = _ratios(runs, level, sizes, main, fast)
        _ratio_panel(lower, ours, {setting: {**looks[setting], "marker": "o"} for setting in ours}, shown, fast)
        shows_paper |= bool(shown)
        for axes in (upper, lower):
            if limit is not None:
                axes.axvline(limit, **LIMIT)
            log_axis(axes)
        upper.set_title(f"level {level}", loc="left")
        lower.locator_params(axis="x", nbins=5)
        lower.set_xlabel("number of variables")
    grid[0, 0].set_ylabel("seconds")
    if removed := {r["dataset"] for r in rows if r["edges_left"] not in (None, math.comb(r["variables"], 2))}:
        figure.suptitle(f"Not fully connected, edges were removed: {', '.join(sorted(removed))}", **HEADING)
    failed = {row["status"] == "timeout" for row in rows if row["median_s"] is None}
    handles = [key(c.label(setting), **look) for setting, look in looks.items()]
    handles += [key("device memory limit", "", linestyle="-", **LIMIT)] * (limit is not None)
    handles += [key("over the time limit", "^", color="black", markerfacecolor="none")] * (True in failed)
    handles += [key("not run, or failed", "x", color="black")] * (False in failed)
    handles += [key("paper (V100)", "D", **PAPER_LOOK)] * shows_paper
    figure.legend(handles=handles, loc="outside lower right", ncols=3)
    return Drawing(figure, rows)


def _look(run: VerifiedRecord, is_main: bool) -> dict[str, Any]:
    """Return the style of a run's setting; a setting that does not stand for its method is dashed."""
    marker = {UM: "o", BLOCK: "s"}[run.method]
    look = {"color": style.colour(run.method), "marker": marker, "markersize": 3, "linestyle": "-"}
    return look if is_main else look | {"linestyle": "--", "markerfacecolor": "none"}


def memory_limit(runs: Iterable[VerifiedRecord], sizes: Mapping[str, int]) -> float | None:
    """Return the number of variables at which the in-core data structures fill the device memory, if known.

    The memory that they need is extrapolated from the unified-memory run on the largest problem that finished: its peak
    is scaled with the square of the variables, because the data structures are matrices.
    """
    finished = [run for run in runs if run.method == UM and run.peak_bytes.device]
    if not finished:
        return None
    largest = max(finished, key=lambda run: sizes[run.dataset])
    apparent = 1_000_000 * largest.params.get("device_mb", 0)  # the memory that the device appears to have
    of_device = (largest.environment["device"] or {}).get("memory_bytes")
    limit = apparent or largest.limits.device_memory_bytes or of_device
    return limit and sizes[largest.dataset] * math.sqrt(limit / largest.peak_bytes.device)


def _row(run: VerifiedRecord, level: int, variables: int) -> dict[str, Any]:
    tests, edges = (run.result.tests_per_level, run.result.edges_per_level) if run.result else ((), ())
    times = dict(zip(("low_s", "median_s", "high_s"), run.level_band(level), strict=True))
    counts = {"tests": dict(enumerate(tests)).get(level), "edges_left": dict(enumerate(edges)).get(level)}
    return {"level": level, "variables": variables, **c.csv_row(run), **times, **counts}


def _ratios(
    runs: Runs, level: int, sizes: Mapping[str, int], main: Mapping[str, str], fast: str
) -> dict[str, dict[int, float]]:
    """Return how many times faster the method `fast` is than the other one, for each setting of blocks, by number of
    variables; unified memory is the one of its settings that stands for it."""
    seconds: dict[str | None, dict[int, float]] = {}
    for run in runs:
        its = seconds.setdefault(run.setting, {})
        if (median := run.level_band(level)[1]) is not None:
            its[sizes[run.dataset]] = median
    found = {}
    for setting in dict.fromkeys(run.setting for run in runs if run.method == BLOCK):
        blocks, managed = seconds[setting], seconds.get(main.get(UM), {})
        slow, divisor = (blocks, managed) if fast == UM else (managed, blocks)
        found[setting] = {size: slow[size] / divisor[size] for size in slow if size in divisor}
    return found


def _ratio_panel(
    axes: Axes, ours: Mapping[str, Mapping[int, float]], looks: Mapping[str, Any], theirs: CsvRows, fast: str
) -> None:
    """Draw our ratios in a level, a line for each setting of blocks, and the paper's as diamonds."""
    axes.axhline(1, color="black", linewidth=0.6)
    for setting, found in ours.items():
        pair = (c.label(setting), c.label(UM)) if fast == BLOCK else (c.label(fast), c.label(setting))
        look = {**looks[setting], "color": style.colour(fast), "label": " over ".join(pair)}
        axes.plot(list(found), list(found.values()), **look)
    for row in theirs:
        place = int(row["variables"]), float(row["high"])
        axes.plot(*place, "D", **PAPER_LOOK)
        # A text beside a ratio of one would be on the line of one.
        spot, (ha, va) = ((-4, -3), ("right", "top")) if place[1] == 1 else ((5, 0), ("left", "center"))
        text = "–".join(dict.fromkeys([row["low"], row["high"]])) if row["low"] else f"up to {row['high']}"
        axes.annotate(text, place, spot, textcoords="offset points", ha=ha, va=va, fontsize=6)
    axes.legend(loc="best", fontsize=6, frameon=True, framealpha=1, edgecolor="white")
    axes.set_ylabel(f"{c.label(fast)},\ntimes faster", fontsize=7)


# --- claims ----------------------------------------------------------------------------------------------------------
PARALLEL = "stable-parallel"


def connected(run: VerifiedRecord, last: int = 1) -> Mapping[str, float] | None:
    """Return the number of variables of the data of section 5.1, of which no edge is removed, in a search whose last
    level is given; None for other data."""
    facts = run.problem or {}
    return {"N": facts["n_variables"]} if facts.get("alpha", 0) > 0.99 and facts["max_level"] == last else None


def level(method: str, which: int) -> q.Measure:
    return q.of_run(method, lambda run: run.level_band(which)[1], f"has no time for level {which}")


def tests(which: int) -> q.Measure:
    return q.of_run(BLOCK, lambda run: dict(enumerate(run.result.tests_per_level)).get(which), f"has no level {which}")


def at(variables: int, measure: q.Measure, last: int = 1) -> q.Quantity:
    return q.by_size(lambda run: connected(run, last), measure, lambda size: size["N"] == variables)


def over_variables(name: str, measure: q.Measure, compute: q.Compute) -> q.Quantity:
    return q.along("N", {name: (connected, measure)}, compute)


def of_any_layout(quantity: q.Quantity) -> q.Quantity:
    """Return a quantity of the first block-based setting for which it has numbers, the paper's square blocks first."""

    def of_any(evidence: q.Evidence, datasets: Sequence[str]) -> q.Numbers:
        blocks = [run for run in evidence.runs if run.method == BLOCK]
        blocks.sort(key=lambda run: not AS_PUBLISHED[BLOCK].items() <= run.params.items())
        by_layout = by_key(blocks, lambda run: run.setting)
        found = (quantity(dataclasses.replace(evidence, runs=its), datasets) for its in by_layout.values())
        return next((numbers for numbers in found if numbers.values), quantity(evidence, datasets))

    return of_any


def tests_at(variables: int, which: int) -> q.Quantity:
    """Return the tests of a level, which do not depend on the layout, so that of any layout is taken."""
    return of_any_layout(at(variables, tests(which)))


def across(one: tuple[int, q.Measure], other: tuple[int, q.Measure]) -> q.Quantity:
    """Return the ratio of a number at one size to a number at another size, both of one block-based setting."""
    return of_any_layout(q.quotient(at(*one), at(*other)))


UM_OVER_BLOCK = q.ratio(level(BLOCK, 0), level(UM, 0))
BLOCK_OVER_UM = q.ratio(level(UM, 1), level(BLOCK, 1))
GIGABYTES = q.of_run(
    UM, lambda run: run.peak_bytes.device and run.peak_bytes.device / 1e9, "has no record of its device memory"
)
REMOVED = q.of_run(BLOCK, lambda run: 100 - run.left_by_level_0)

QUANTITIES: dict[str, q.Quantity] = {
    "over-um-95": q.over_datasets(q.reaching(95, BLOCK, UM)),
    "over-cpu-236": q.over_datasets(q.reaching(236, BLOCK, PARALLEL)),
    "level-0-always": over_variables("unified memory over block-based", UM_OVER_BLOCK, q.within(0, math.inf)),
    "level-0-up-to-15": at(5_000, UM_OVER_BLOCK),
    "level-0-55000": at(55_000, UM_OVER_BLOCK),
    "level-0-gap": over_variables(
        "unified memory over block-based", UM_OVER_BLOCK, lambda _, found: found[-1] / found[0]
    ),
    "level-1-similar": over_variables("block-based over unified memory", BLOCK_OVER_UM, q.within(0, 35_000)),
    "level-1-40000": at(40_000, BLOCK_OVER_UM),
    "level-1-55000": at(55_000, BLOCK_OVER_UM),
    "memory-level-0-5000": at(5_000, GIGABYTES, last=0),
    "memory-level-0-55000": at(55_000, GIGABYTES, last=0),
    "memory-level-1-5000": at(5_000, GIGABYTES),
    "memory-level-1-55000": over_variables(
        "unified memory, whose arrays grow with the square of N",
        GIGABYTES,
        lambda places, gigabytes: gigabytes[-1] * (55_000 / places[-1]) ** 2,
    ),
    "tests-level-0-5000": tests_at(5_000, 0),
    "tests-level-0-55000": tests_at(55_000, 0),
    "tests-level-1-5000": tests_at(5_000, 1),
    "tests-level-1-55000": tests_at(55_000, 1),
    "more-tests": across((5_000, tests(1)), (55_000, tests(0))),
    "less-time": across((5_000, level(BLOCK, 1)), (55_000, level(BLOCK, 0))),
    "third-removed": q.over_datasets(REMOVED),
}


def ooc_claims(runs: Runs, reported: CsvRows, notes: Sequence[str]) -> Table:
    evidence = q.Evidence(runs, {method: [params, {}] for method, params in AS_PUBLISHED.items()})
    return table_of("Out-of-Core", reported, QUANTITIES, evidence, notes)
