"""How a search of method `distributed` grows, on paper and by simulation (docs/scale.md).

    python -m workflow.pages.scale                                    the page's tables
    python -m workflow.pages.scale --page docs/scale.md               put them into the page
    python -m workflow.pages.scale --figure docs/images/scale.svg     its figure
    python -m workflow.pages.scale --measured scaling.json            the simulation against measured runs

Measured runs are the file that ``python -m workflow.pages.distributed --out`` writes. The rates of the first number of
workers in it make the prediction for the others.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import heapq
import json
import math
import re
import statistics
import sys
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import simpy

from gpupc_impl.distributed._plan import BLOCKS_A_WORKER, LEAST_PANELS, MOST_ROWS, STEP, Plan
from gpupc_impl.integers import ceil_div
from gpupc_impl.measurement.record import Record, load_records

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "results" / "recorded"

GPUS = (1, 16, 128, 1024)
"""Numbers of workers in the tables."""


# --- rates -----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Rates:
    """What one worker and what they share can do.

    Attributes:
        fma: fused multiply-adds a second of the kernel that makes correlations.
        tests: tests a second of level 1, and `later` of level 2.
        memory: bytes a second of device memory.
        device: bytes of device memory.
        task: seconds of the scheduler for a task; it takes one after another.
        files: bytes a second of the file system, for all workers together; so many are read, and so many written.
        machine: workers of a machine, which reads the samples once for all of them.
    """

    fma: float
    tests: float
    later: float
    memory: float
    device: float
    task: float
    files: float
    machine: int


def recorded_records() -> list[Record]:
    """The records of `pair-scan` on an H200 that finished."""
    paths = sorted((RECORDED / "nvidia-h200/records").glob("*/pair-scan.json"))
    return [record for record in load_records(paths) if record.ok]


def recorded_rate(level: int) -> tuple[float, Record]:
    """The most tests a second that a level was recorded with, its median over repeats, and the record."""
    found = []
    for record in recorded_records():
        if record.result and len(record.result.tests_per_level) > level:
            seconds = statistics.median(levels[level] for levels in record.time_s.levels)
            found.append((record.result.tests_per_level[level] / seconds, record.dataset, record))
    rate, _, record = max(found)
    return rate, record


def rates() -> Rates:
    """Those of the page: of NVIDIA H200s, tests as recorded, the others as the page says."""
    return Rates(
        fma=8.5e12,  # results/recorded/nvidia-h200/distributed: 28 panels of 55,572 variables in 0.57 s
        tests=recorded_rate(1)[0],
        later=recorded_rate(2)[0],
        memory=4.8e12,
        device=0.9 * 141e9,
        task=1e-3,
        files=5e9,
        machine=8,
    )


# --- shapes ----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Shape:
    """A problem, by what its work depends on.

    Attributes:
        p, n: variables and samples.
        density: of the graph that level 0 leaves.
        degree: mean degree of the graph that level 1 leaves.
        tests_a_pair: tests of level 1 for a pair of variables that it separates.
    """

    name: str
    p: int
    n: int
    density: float
    degree: float
    tests_a_pair: float


def recorded_shape() -> Shape:
    """What generated data of the TCGA kind left behind at 5,500 variables, the largest that is recorded."""
    record = Record.load(RECORDED / "nvidia-h200/records/tcga-like-p5500/out-of-core-block.json")
    assert record.result is not None
    assert record.problem is not None
    p, (zero, one) = record.problem["n_variables"], record.result.edges_per_level
    return Shape(
        record.dataset,
        p,
        record.problem["n_samples"],
        density=zero / (p * (p - 1) / 2),
        degree=2 * one / p,
        tests_a_pair=record.result.tests_per_level[1] / zero,
    )


def shapes() -> list[Shape]:
    """The real ones of the page. Density, degree and tests a pair of genes are those of recorded generated data; the
    others are assumed."""
    like = recorded_shape()
    band, false = 2 * 200, 0.01
    snps = 1_000_000
    return [
        dataclasses.replace(like, name="genes (TCGA)", p=55_572),
        Shape("450,000 CpG sites", 450_000, 1000, 0.3, 20, like.tests_a_pair),
        Shape("850,000 CpG sites", 850_000, 1000, 0.3, 20, like.tests_a_pair),
        Shape("1,000,000 SNPs", snps, 5000, false + band / snps, 20, like.tests_a_pair),
    ]


def round_shapes() -> list[Shape]:
    """Those for which the page names the bottleneck: dense at level 0, as CpG sites."""
    like = recorded_shape()
    return [Shape(f"p = {p:,}", p, 1000, 0.3, 20, like.tests_a_pair) for p in (100_000, 300_000, 1_000_000)]


# --- on paper --------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Cost:
    """Operations, bytes and seconds of a shape on workers with some rates; see the formulas on the page.

    Attributes:
        rows: variables of a panel.
        panels, blocks: how levels 0 and 1 are cut.
        held: panels that a worker keeps.
        panel_fma: operations to make a panel; `once` those to make every correlation once.
        block_tests: of level 1, of one block on the average.
        later_tests: of level 2.
        shard_bytes: of one block on the average.
        device_bytes: the least that a worker needs.
        client_bytes: what the client holds.
        panel_s, block_s, later_s: seconds of a worker for a panel, a block and all of level 2.
    """

    rows: int
    panels: int
    blocks: int
    held: int
    panel_fma: float
    once: float
    block_tests: float
    later_tests: float
    shard_bytes: float
    device_bytes: float
    client_bytes: float
    panel_s: float
    block_s: float
    later_s: float


def panel_rows(p: int, workers: int) -> int:
    """Variables of a panel, where memory does not ask for fewer."""
    wanted = max(LEAST_PANELS, math.isqrt(2 * BLOCKS_A_WORKER * workers))
    return min(MOST_ROWS, max(STEP, ceil_div(p, wanted * STEP) * STEP))


def cost(shape: Shape, rates: Rates, workers: int = 1) -> Cost:
    """What a shape costs on some workers; their number says how small panels are.

    Raises:
        ValueError: a worker cannot hold two panels.
    """
    p, n = shape.p, shape.n
    rows = panel_rows(p, workers)
    panels = ceil_div(p, rows)
    blocks = panels * (panels + 1) // 2
    fixed, panel, block = 8 * n * p + 4 * p, rows * (8 * p + p / 8 + 5), 8 * rows**2 + rows**2 / 4 + 16 * rows
    device = fixed + 2 * panel + block
    if device > rates.device:
        raise ValueError(
            f"{shape.name}: two panels of {rows} variables need {device / 1e9:.1f} GB of a worker, which has "
            f"{rates.device / 1e9:.1f} GB: take fewer variables or samples, or workers with more memory"
        )
    edges = [shape.density * p**2 / 2, shape.degree * p / 2]
    either = p * (1 - (1 - shape.density) ** 2)  # neighbours of one end or of the other
    tests = (edges[0] - edges[1]) * min(shape.tests_a_pair, either) + edges[1] * either
    later = p * shape.degree * math.comb(max(round(shape.degree) - 1, 0), 2)
    panel_fma = float(n * rows * p)
    shards = p**2 / 8 + 4 * (edges[0] - edges[1])
    return Cost(
        rows=rows,
        panels=panels,
        blocks=blocks,
        held=min(int((rates.device - fixed - block) // panel), panels),
        panel_fma=panel_fma,
        once=n * p**2 / 2,
        block_tests=tests / blocks,
        later_tests=later,
        shard_bytes=shards / blocks,
        device_bytes=device,
        client_bytes=8 * n * p + 28 * edges[1],
        panel_s=panel_fma / rates.fma + 2 * 8 * rows * p / rates.memory,
        block_s=tests / blocks / rates.tests,
        later_s=later / rates.later,
    )


# --- simulation ------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Faults:
    """What goes wrong.

    Attributes:
        hours: of a worker's work between two failures, exponential; infinite for none.
        restart_s: until the worker is back, its panels gone.
        slow_share, slow_factor: the part of tasks that take so many times as long.
        seed: of the random numbers.
    """

    hours: float = math.inf
    restart_s: float = 120
    slow_share: float = 0
    slow_factor: float = 10
    seed: int = 0


@dataclasses.dataclass
class Run:
    """What a simulation saw.

    Attributes:
        seconds: until the last shard was written.
        busy_s: work of all workers that came to a shard; `lost_s` what did not.
        made: panels made, some more than once.
        failures: how many.
    """

    seconds: float = 0
    busy_s: float = 0
    lost_s: float = 0
    made: int = 0
    failures: int = 0


@dataclasses.dataclass(frozen=True)
class Tasks:
    """Levels 0 and 1, for the simulation.

    Attributes:
        panels: P; a task is a block (I, J), J >= I.
        held: panels that a worker keeps.
        panel_s, block_s: seconds to make a panel, and to test a block.
        task_s: of the scheduler.
        write_s: of the file system, for a block's shard.
        numbers_s: of the file system, for one machine's copy of the samples.
        machine: workers of a machine.
    """

    panels: int
    held: int
    panel_s: float
    block_s: float
    task_s: float = 0
    write_s: float = 0
    numbers_s: float = 0
    machine: int = 1


def handed_out(panels: int, held: int, workers: int) -> list[deque[tuple[int, int]]]:
    """Each worker's own blocks, in order: those that the method gives it."""
    plan = Plan(p=STEP * panels, rows=STEP, panels=panels, held=held, device_bytes=0, host_bytes=0, budget=0)
    share, own = plan.shares(workers), [deque[tuple[int, int]]() for _ in range(workers)]
    for block in plan.blocks():
        own[share[block]].append(block)
    return own


class _Server:
    """Serves one request after another, in the order in which they come."""

    def __init__(self, environment: simpy.Environment):
        self._environment, self._free = environment, 0.0

    def wait(self, seconds: float) -> float:
        """Seconds until a request that takes so many is served."""
        now = self._environment.now
        self._free = max(self._free, now) + seconds
        return self._free - now


@functools.cache
def simulate(tasks: Tasks, workers: int, faults: Faults = Faults()) -> Run:
    """Levels 0 and 1 on some workers: who makes which panel, waits for whom, and loses what.

    A worker takes its next block when it has finished one, and where it has none left, the last of whoever has most;
    shards are written beside the work, and the last one counts. The block of a worker that fails is its next again.
    """
    environment, run, random = simpy.Environment(), Run(), np.random.default_rng(faults.seed)
    own = handed_out(tasks.panels, tasks.held, workers)
    left = sum(map(len, own))
    scheduler, reading, writing = (_Server(environment) for _ in range(3))
    returned = [environment.event()]  # a task came back, or all are done
    copies: dict[int, simpy.Event] = {}

    def worker(number: int) -> Iterator[simpy.Event]:
        nonlocal left
        panels: OrderedDict[int, None] = OrderedDict()
        lifetime = random.exponential(faults.hours * 3600) if faults.hours < math.inf else math.inf
        if tasks.numbers_s:
            machine = number // tasks.machine
            if machine not in copies:
                copies[machine] = environment.timeout(reading.wait(tasks.numbers_s))
            yield copies[machine]
        while left:
            most = own[number] or max(own, key=len)
            if not most:
                yield returned[0]
                continue
            block = most.popleft() if most is own[number] else most.pop()
            if tasks.task_s:
                yield environment.timeout(scheduler.wait(tasks.task_s))
            made = _make(panels, block, tasks.held)
            seconds = made * tasks.panel_s + tasks.block_s
            if faults.slow_share and random.random() < faults.slow_share:
                seconds *= faults.slow_factor
            if lifetime < seconds:
                yield environment.timeout(lifetime)
                run.lost_s += lifetime
                run.failures += 1
                own[number].appendleft(block)
                returned[0].succeed()
                returned[0] = environment.event()
                panels.clear()
                lifetime = random.exponential(faults.hours * 3600)
                yield environment.timeout(faults.restart_s)
                continue
            yield environment.timeout(seconds)
            lifetime -= seconds
            run.busy_s += seconds
            run.made += made
            left -= 1
            run.seconds = max(run.seconds, environment.now + writing.wait(tasks.write_s))
            if not left:
                returned[0].succeed()

    for number in range(workers):
        environment.process(worker(number))
    environment.run()
    return run


def _make(panels: OrderedDict[int, None], block: tuple[int, int], held: int) -> int:
    """Take a block's panels, and drop those used longest ago, but never I: how many had to be made."""
    made = 0
    for panel in block:  # twice the same on the diagonal
        if panel in panels:
            panels.move_to_end(panel)
            continue
        while len(panels) >= max(held, 2):
            del panels[next(other for other in panels if other != block[0])]
        made += 1
        panels[panel] = None
    return made


def tasks_of(cost: Cost, shape: Shape, rates: Rates) -> Tasks:
    """The simulation's tasks of a shape."""
    return Tasks(
        panels=cost.panels,
        held=cost.held,
        panel_s=cost.panel_s,
        block_s=cost.block_s,
        task_s=rates.task,
        write_s=cost.shard_bytes / rates.files,
        numbers_s=8 * shape.n * shape.p / rates.files,
        machine=rates.machine,
    )


def list_schedule(seconds: Sequence[float], workers: int) -> float:
    """The seconds that tasks take, given in order to whoever is free first."""
    free = [0.0] * workers
    for each in seconds:
        heapq.heapreplace(free, free[0] + each)
    return max(free)


# --- against measured runs -------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Compared:
    """A measured run beside its prediction, in seconds of all levels."""

    workers: int
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Relative; positive where the prediction is too long."""
        return self.predicted / self.measured - 1


def compare(measured: Mapping[str, Any]) -> list[Compared]:
    """Predict measured runs from the one with the fewest workers.

    Of that run: seconds to make a panel, seconds of a block, and what is left of a task's time, for writing and the
    scheduler. Of levels from 2 on the tasks' own seconds.

    Args:
        measured: what ``python -m workflow.pages.distributed`` writes.

    Raises:
        ValueError: it holds no runs, or is something else; or one was resumed, or has other panels.
    """
    try:
        runs = sorted(measured["runs"], key=lambda run: (run["workers"], run["levels_total_s"]))
        base = runs[0]
        plan, (first, *later) = base["report"]["plan"], base["report"]["levels"]
        for run in runs:
            on = f"its run on {run['workers']} workers"
            if any(level["made"] != level["tasks"] for level in run["report"]["levels"]):
                raise ValueError(f"{on} took shards from an earlier one: their times are not known")
            if (panels := run["report"]["plan"]["panels"]) != plan["panels"]:
                raise ValueError(
                    f"{on} has {panels} panels, the first one {plan['panels']}: measure with the same --panel"
                )
        spent: dict[str, float] = {}
        for worker in first["workers"].values():
            for step, seconds in worker["seconds"].items():
                spent[step] = spent.get(step, 0) + seconds
        made = sum(worker["panels_made"] for worker in first["workers"].values())
        panel_s = (spent.get("correlate", 0) + spent.get("level_0", 0)) / made
        block_s = spent.get("level_1", 0) / first["tasks"]
        rest = first["seconds"] * base["workers"] - sum(spent.values())
        tasks = Tasks(plan["panels"], plan["held"], panel_s, block_s + max(rest, 0) / first["tasks"])
        found = []
        for run in runs:
            levels = sum(list_schedule(level["task_seconds"], run["workers"]) for level in later)
            beside = sum(level["seconds"] - list_schedule(level["task_seconds"], base["workers"]) for level in later)
            held = dataclasses.replace(tasks, held=run["report"]["plan"]["held"])  # workers may share memory
            predicted = simulate(held, run["workers"]).seconds + levels + max(beside, 0)
            found.append(Compared(run["workers"], run["levels_total_s"], predicted))
        return found
    except (KeyError, TypeError, IndexError, AttributeError, ZeroDivisionError) as error:
        raise ValueError(
            f"these are no measured runs of method distributed ({type(error).__name__}: {error}); "
            "python -m workflow.pages.distributed --out FILE writes them"
        ) from error


# --- the page --------------------------------------------------------------------------------------------------------


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, its first column of text and the others of numbers."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def number(value: float) -> str:
    """Two significant digits: 0.0012, 3.4, 120, 1.2e+09."""
    if value == 0:
        return "0"
    if 1e-3 <= value < 1e5:
        digits = max(0, 1 - math.floor(math.log10(value)))
        return f"{round(value, 1 - math.floor(math.log10(value))):,.{digits}f}"
    return f"{value:.1e}"


def duration(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{number(seconds / length)} {unit}"
    return f"{number(seconds)} s"


def rate_table(rates: Rates) -> str:
    (one, first), (two, second) = recorded_rate(1), recorded_rate(2)
    recorded = "recorded: `pair-scan` on {}, level {}, {}, commit {}"
    return table(
        ["rate", "value", "source"],
        [
            ["correlations", f"{number(rates.fma)} fma/s", "measured: all correlations of 55,572 genes in 0.57 s"],
            ["tests of level 1", f"{number(one)} /s", recorded.format(first.dataset, 1, first.machine, first.commit)],
            [
                "tests of level 2",
                f"{number(two)} /s",
                recorded.format(second.dataset, 2, second.machine, second.commit),
            ],
            ["device memory", f"{number(rates.memory)} B/s", "H200 data sheet: 4.8 TB/s"],
            ["device memory", f"{number(rates.device / 1e9)} GB", "H200 data sheet: 141 GB, of which nine tenths"],
            [
                "scheduler",
                f"{number(rates.task * 1e3)} ms a task",
                "Dask's documentation: about 1 ms of overhead a task",
            ],
            ["file system", f"{number(rates.files / 1e9)} GB/s", "assumed: read, and as many written, by all together"],
            ["GPUs a machine", f"{rates.machine}", "as an HGX H200 has; they share one copy of the samples on its way"],
        ],
    )


def cost_table(rates: Rates) -> str:
    rows = []
    for shape in (*shapes(), *round_shapes()):
        found = cost(shape, rates)
        rows.append(
            [
                f"{shape.name}, n = {shape.n:,}",
                f"{shape.density:.2f}",
                number(shape.degree),
                f"{found.blocks:,}",
                f"{found.held} of {found.panels}",
                number(found.once),
                number(found.block_tests * found.blocks),
                number(found.later_tests),
                number(found.shard_bytes * found.blocks / 1e9),
                number(found.device_bytes / 1e9),
                number(found.client_bytes / 1e9),
            ]
        )
    header = ["shape", "density", "degree", "blocks", "panels held", "correlations once, fma", "tests, level 1"]
    header += ["level 2", "shards, GB", "device at least, GB", "client, GB"]
    return table(header, rows)


def time_table(rates: Rates) -> str:
    """Seconds of all levels by number of workers, without faults, and the efficiency on the most."""
    rows = []
    for shape in shapes():
        totals = [seconds(shape, rates, workers) for workers in GPUS]
        efficiency = [totals[0] / (workers * total) for workers, total in zip(GPUS, totals, strict=True)]
        shown = [f"{duration(t)} ({e:.0%})" for t, e in zip(totals, efficiency, strict=True)]
        rows.append([shape.name, *shown])
    return table(["shape", *map(gpus, GPUS)], rows)


def gpus(workers: int) -> str:
    return f"{workers:,} GPU{'s' * (workers > 1)}"


def seconds(shape: Shape, rates: Rates, workers: int) -> float:
    """Of levels 0, 1 and 2, without faults."""
    found = cost(shape, rates, workers)
    return simulate(tasks_of(found, shape, rates), workers).seconds + found.later_s / workers


def shares(shape: Shape, rates: Rates, workers: int) -> dict[str, float]:
    """Seconds that each resource is busy for levels 0, 1 and 2, if it worked alone: the longest is the bottleneck."""
    found = cost(shape, rates, workers)
    tasks = tasks_of(found, shape, rates)
    made = simulate(tasks, workers).made
    return {
        "making panels": made * found.panel_s / workers,
        "tests of level 1": found.blocks * found.block_s / workers,
        "tests of level 2": found.later_s / workers,
        "scheduler": found.blocks * tasks.task_s,
        "reading samples": ceil_div(workers, rates.machine) * tasks.numbers_s,
        "writing shards": found.blocks * tasks.write_s,
    }


def bottleneck_table(rates: Rates) -> str:
    rows = []
    for shape in round_shapes():
        for workers in (GPUS[0], GPUS[-1]):
            found = shares(shape, rates, workers)
            first, second = sorted(found, key=lambda name: -found[name])[:2]
            rows.append([f"{shape.name}, {gpus(workers)}", *map(duration, found.values()), first, second])
    return table(["", *found, "first", "second"], rows)


def chunked(shape: Shape, rates: Rates, margin: float = 4) -> tuple[float, float]:
    """Operations for correlations, as it is and if a block's rows were made a stretch of columns at a time, until its
    pairs are decided: the first `margin` times as many columns as a separated pair needs, and whole rows for the edges
    that are left."""
    found, p = cost(shape, rates), shape.p
    either = 1 - (1 - shape.density) ** 2
    columns = min(p, margin * shape.tests_a_pair / either)
    rows_left = min(2 * found.rows, 2 * shape.degree * p / 2 / found.blocks)
    now = simulate(tasks_of(found, shape, rates), 1).made * found.panel_fma
    level_0 = found.blocks * shape.n * found.rows**2
    return now, level_0 + found.blocks * shape.n * (2 * found.rows * columns + rows_left * p)


def change_table(rates: Rates) -> str:
    rows = []
    for shape in (*round_shapes(), shapes()[-1]):
        now, then = chunked(shape, rates)
        found = cost(shape, rates)
        rows.append([shape.name, number(found.once), number(now), number(then), number(now / then)])
    return table(["", "once", "as it is", "by stretches of columns", "less by"], rows)


FAULTS = {
    "none": Faults(),
    "a failure in 50,000 h": Faults(hours=50_000),
    "a failure in 100 h": Faults(hours=100),
    "a failure in 2 h": Faults(hours=2),
    "1 % of tasks take 10 times as long": Faults(slow_share=0.01, slow_factor=10),
}


def fault_table(rates: Rates, workers: int = 128) -> str:
    shape = shapes()[-1]
    tasks = tasks_of(cost(shape, rates, workers), shape, rates)
    rows = []
    for name, faults in FAULTS.items():
        run = simulate(tasks, workers, faults)
        lost = run.lost_s / (run.lost_s + run.busy_s)
        rows.append([name, duration(run.seconds), f"{run.failures:,}", f"{lost:.2%}"])
    return table([f"{shape.name} on {workers} GPUs", "levels 0 and 1", "failures", "work lost"], rows)


TABLES = {
    "rates": rate_table,
    "costs": cost_table,
    "times": time_table,
    "bottlenecks": bottleneck_table,
    "changes": change_table,
    "faults": fault_table,
}
"""The page's tables, by the name in the comment that stands before each."""


def replaced(page: str, tables: Mapping[str, str]) -> str:
    """A page with these tables in the place of those that it has.

    Raises:
        ValueError: it lacks the comment before a table.
    """
    for name, made in tables.items():
        page, found = re.subn(rf"(<!-- {name} -->\n\n)(?:\|.*\n)*", lambda there, new=made: f"{there[1]}{new}\n", page)
        if not found:
            raise ValueError(f"the page has no comment <!-- {name} --> with an empty line below it")
    return page


def draw(path: Path, rates: Rates) -> None:
    """Time against GPUs for the real shapes, each with its ideal as a thin line."""
    import matplotlib.pyplot as plt

    from gpupc_impl.reporting import style

    style.use()
    counts, looks = [4**k for k in range(6)], ("cupc-s", "baseline-2", "stable-parallel", "pair-scan")
    figure, axes = plt.subplots(figsize=(3.3, 2.9), layout="constrained")
    for shape, marker, like in zip(shapes(), "osD^", looks, strict=True):
        times, colour = [seconds(shape, rates, workers) for workers in counts], style.colour(like)
        axes.plot(counts, times, marker=marker, color=colour, label=shape.name)
        axes.plot(counts, [times[0] / workers for workers in counts], linewidth=0.7, linestyle=":", color=colour)
    axes.set(xscale="log", yscale="log", xlabel="GPUs", ylabel="levels 0, 1 and 2", ylim=(0.7, None))
    axes.set_xticks(counts, [f"{workers:,}" for workers in counts])
    axes.set_yticks([1, 10, 60, 600, 3600, 36000, 86400], ["1 s", "10 s", "1 min", "10 min", "1 h", "10 h", "1 d"])
    axes.minorticks_off()
    figure.legend(loc="outside upper center", ncols=2)
    style.save(figure, path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m workflow.pages.scale", description=__doc__.splitlines()[0])
    parser.add_argument("--page", type=Path, metavar="MD", help="put the tables where the page has them")
    parser.add_argument("--figure", type=Path, metavar="SVG", help="draw time against GPUs")
    parser.add_argument("--measured", type=Path, metavar="JSON", help="compare with measured runs")
    parser.add_argument("--fma", type=float, help="fused multiply-adds a second of the kernel of correlations")
    parser.add_argument("--files", type=float, help="bytes a second of the shared file system")
    asked = parser.parse_args(arguments)
    given = {name: value for name in ("fma", "files") if (value := getattr(asked, name)) is not None}
    if asked.measured:
        try:
            compared = compare(json.loads(asked.measured.read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            parser.error(f"{asked.measured}: {error}")
        rows = [[str(c.workers), f"{c.measured:.2f}", f"{c.predicted:.2f}", f"{c.error:+.1%}"] for c in compared]
        print(table(["workers", "measured, s", "predicted, s", "error"], rows))
        return 0
    used = dataclasses.replace(rates(), **given)
    if asked.figure:
        draw(asked.figure, used)
        return 0
    tables = {name: make(used) for name, make in TABLES.items()}
    if asked.page:
        try:
            asked.page.write_text(replaced(asked.page.read_text(encoding="utf-8"), tables), encoding="utf-8")
        except (OSError, ValueError) as error:
            parser.error(f"{asked.page}: {error}")
        return 0
    for name, made in tables.items():
        print(f"<!-- {name} -->\n\n{made}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
