"""Models how a search by the method `distributed` grows with variables and GPUs, and makes the tables of docs/scale.md.

    python -m workflow.pages.scale                                   the page's tables
    python -m workflow.pages.scale --page docs/scale.md              put them into the page
    python -m workflow.pages.scale --measured scaling.json           the model against measured runs

``python -m workflow.pages.distributed --out`` writes the file of measured runs. The rates of the run with the fewest
workers predict the other runs.

The model adds up how long each resource is busy. The model assumes that workers share the work evenly (a free worker
takes the next block) and never wait for one another, so its times are lower bounds. The resource that is busy longest
is the bottleneck.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import math
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpupc_impl.distributed import panel_plan
from gpupc_impl.integers import ceil_div
from gpupc_impl.measurement.published import open_published
from gpupc_impl.measurement.record import Record
from gpupc_impl.reporting.cells import number
from gpupc_impl.reporting.tables import markdown
from workflow.lib.plan import RECORDED, ROOT
from workflow.pages import marks

DEVICE = ROOT / RECORDED / "nvidia-h100"
ONE_GPU = DEVICE / "distributed/one-gpu.json"

GPUS = (1, 16, 128, 1024)
"""The numbers of workers in the tables."""

FMA_S = 8.5e12
"""The fused multiply-adds per second of the kernel that computes correlations, as measured."""

MEMORY_BYTES_S, MEMORY_BYTES = 4.8e12, int(0.9 * 141e9)
"""The bandwidth and nine tenths of the capacity of an H200's device memory, by its data sheet."""

TASK_S = 1e-3
"""The scheduler's seconds per task, by Dask's documentation; it handles one task at a time."""

FILE_BYTES_S = 5e9
"""The assumed bytes per second that all workers together read from the file system, and write to the file system."""

MACHINE_GPUS = 8
"""The number of GPUs of a machine, as in an HGX H200; they share one copy of the samples."""


@dataclasses.dataclass(frozen=True)
class Shape:
    """The sizes of a problem on which its work depends.

    Attributes:
        p, n: the numbers of variables and samples.
        density: the density of the graph after level 0.
        degree: the mean degree of the graph after level 1.
        tests_a_pair: the tests of level 1 for a pair of variables that level 1 separates.
    """

    name: str
    p: int
    n: int
    density: float
    degree: float
    tests_a_pair: float

    @property
    def edges(self) -> tuple[float, float]:
        """The numbers of edges after level 0 and after level 1."""
        return self.density * self.p**2 / 2, self.degree * self.p / 2

    @property
    def level_one_tests(self) -> float:
        """A pair that level 1 separates takes `tests_a_pair` tests, any other pair one per neighbour of an end."""
        before, after = self.edges
        either = self.p * (1 - (1 - self.density) ** 2)
        return (before - after) * min(self.tests_a_pair, either) + after * either

    @property
    def level_two_tests(self) -> float:
        return self.p * self.degree * math.comb(max(round(self.degree) - 1, 0), 2)

    @property
    def shard_bytes(self) -> float:
        """The shards have a bit for each pair after level 0, and four bytes for each pair that level 1 removes."""
        return self.p**2 / 8 + 4 * (self.edges[0] - self.edges[1])


def shapes() -> list[Shape]:
    """Return the shapes of the page. The density, degree and tests per pair of genes are those of recorded runs on
    generated data with the shape of TCGA; the values of the other shapes are assumed."""
    record = open_published(DEVICE).record("tcga-like", "out-of-core-block")
    assert record.result is not None
    assert record.problem is not None
    p, (zero, one) = record.problem["n_variables"], record.result.edges_per_level
    tests = record.result.tests_per_level[1] / zero
    band, false = 2 * 200, 0.01
    return [
        Shape("genes (TCGA)", 55_572, record.problem["n_samples"], zero / (p * (p - 1) / 2), 2 * one / p, tests),
        Shape("450,000 CpG sites", 450_000, 1000, 0.3, 20, tests),
        Shape("850,000 CpG sites", 850_000, 1000, 0.3, 20, tests),
        Shape("1,000,000 SNPs", 1_000_000, 5000, false + band / 1_000_000, 20, tests),
    ]


@functools.cache
def recorded_rate(level: int) -> tuple[float, Record]:
    """Return the highest rate of tests per second of `pair-scan` at a level on an H100, and its record. The modelled
    H200 has the same processors."""
    rates = []
    for record in open_published(DEVICE).records():
        if record.setting == "pair-scan" and record.result and len(record.result.tests_per_level) > level:
            seconds = statistics.median(levels[level] for levels in record.time_s.levels)
            rates.append((record.result.tests_per_level[level] / seconds, record))
    return max(rates, key=lambda each: each[0])


# --- the model -------------------------------------------------------------------------------------------------------


def plan_of(shape: Shape, workers: int) -> panel_plan.PanelPlan:
    """Return the panels into which the method would cut a shape for this many H200s."""
    return panel_plan.choose(shape.n, shape.p, device_memory=MEMORY_BYTES, host_memory=2**40, workers=workers)


def panels_made(plan: panel_plan.PanelPlan, workers: int) -> int:
    """Count the panels that workers make for their blocks; each worker keeps the panels that it used last."""
    share = plan.shares(workers)
    held: list[dict[int, None]] = [{} for _ in range(workers)]
    made = 0
    for block in plan.blocks():
        panels = held[share[block]]
        for panel in block:
            if panel in panels:
                del panels[panel]
            else:
                made += 1
                while len(panels) >= max(plan.held, 2):
                    del panels[next(other for other in panels if other != block[0])]
            panels[panel] = None  # The panel used last is the last key.
    return made


@functools.cache
def busy_seconds(shape: Shape, workers: int) -> dict[str, float]:
    """Return the seconds for which each resource is busy during levels 0 to 2; for GPUs, the seconds of one GPU."""
    plan = plan_of(shape, workers)
    blocks = plan.panels * (plan.panels + 1) // 2
    panel_s = shape.n * plan.rows * shape.p / FMA_S + 16 * plan.rows * shape.p / MEMORY_BYTES_S
    return {
        "making panels": panels_made(plan, workers) * panel_s / workers,
        "tests of level 1": shape.level_one_tests / recorded_rate(1)[0] / workers,
        "tests of level 2": shape.level_two_tests / recorded_rate(2)[0] / workers,
        "scheduler": blocks * TASK_S,
        "reading samples": ceil_div(workers, MACHINE_GPUS) * 8 * shape.n * shape.p / FILE_BYTES_S,
        "writing shards": shape.shard_bytes / FILE_BYTES_S,
    }


def seconds(shape: Shape, workers: int) -> float:
    """Return a lower bound on the seconds of levels 0 to 2.

    The work of GPUs, the scheduler's work and the writing of shards overlap. Machines read the samples one after
    another, and each begins when it has read them. The number of participating machines is chosen such that the work
    ends soonest.
    """
    busy, machines = busy_seconds(shape, workers), ceil_div(workers, MACHINE_GPUS)
    reading = busy["reading samples"] / machines
    work = machines * (busy["making panels"] + busy["tests of level 1"])
    of_gpus = min(work / k + reading * (k + 1) / 2 for k in range(1, machines + 1))
    shared = reading + max(busy["scheduler"], busy["writing shards"])
    return max(of_gpus, shared) + busy["tests of level 2"]


def predictions(measured: Mapping[str, Any]) -> Iterator[tuple[int, float, float]]:
    """Yield the workers, the seconds and the prediction from the run with the fewest workers, for each run.

    The run with the fewest workers provides the seconds to make a panel, and the seconds of all other work, which
    workers share evenly.

    Args:
        measured: the JSON that ``python -m workflow.pages.distributed`` writes.

    Raises:
        ValueError: `measured` contains no runs or has another structure, or a run was resumed.
    """
    try:
        runs = sorted(measured["runs"], key=lambda run: (run["workers"], run["levels_total_s"]))
        for run in runs:
            if any(level["made"] != level["tasks"] for level in run["report"]["levels"]):
                raise ValueError(f"its run on {run['workers']} workers took shards from an earlier one")
        of_workers = runs[0]["report"]["levels"][0]["workers"].values()
        made = sum(worker["panels_made"] for worker in of_workers)
        making = sum(sum(worker["seconds"].get(step, 0) for step in ("correlate", "level_0")) for worker in of_workers)
        other = runs[0]["levels_total_s"] * runs[0]["workers"] - making
        for run in runs:
            panels = sum(worker["panels_made"] for worker in run["report"]["levels"][0]["workers"].values())
            yield run["workers"], run["levels_total_s"], (panels * making / made + other) / run["workers"]
    except (KeyError, TypeError, IndexError, AttributeError, ZeroDivisionError) as error:
        raise ValueError(
            f"these are no measured runs of method distributed ({type(error).__name__}: {error}); "
            "python -m workflow.pages.distributed --out FILE writes them"
        ) from error


# --- the page --------------------------------------------------------------------------------------------------------


def duration(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{number(seconds / length, 2)} {unit}"
    return f"{number(seconds, 2)} s" if seconds >= 0.01 else "< 0.01 s"


def count(workers: int) -> str:
    return f"{workers:,} GPU{'s' * (workers > 1)}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return markdown(header, rows, range(1, len(header)))


def work_table() -> str:
    rows = []
    for shape in shapes():
        plan = plan_of(shape, 1)
        operations = shape.n * shape.p**2 / 2, shape.level_one_tests, shape.level_two_tests
        sizes = shape.shard_bytes, plan.device_bytes
        rows.append([f"{shape.name}, n = {shape.n:,}", f"{shape.density:.2f}", number(shape.degree, 2)])
        rows[-1] += [f"{plan.held} of {plan.panels}", *(f"{each:.1e}" for each in operations)]
        rows[-1] += [number(each / 1e9, 2) for each in sizes]
    header = ["shape", "density", "degree", "panels held", "correlations, fma", "tests, level 1", "level 2"]
    return table([*header, "shards, GB", "least device memory, GB"], rows)


def time_table() -> str:
    """Return a table of seconds by number of workers, with the efficiency relative to one worker."""
    rows = []
    for shape in shapes():
        times = [seconds(shape, workers) for workers in GPUS]
        cells = [f"{duration(t)} ({times[0] / (w * t):.0%})" for w, t in zip(GPUS, times, strict=True)]
        rows.append([shape.name, *cells])
    return table(["shape", *map(count, GPUS)], rows)


def bottleneck_table() -> str:
    rows = []
    for shape in shapes():
        for workers in (GPUS[0], GPUS[-1]):
            busy = busy_seconds(shape, workers)
            rows.append(
                [f"{shape.name}, {count(workers)}", *map(duration, busy.values()), max(busy, key=busy.__getitem__)]
            )
    return table(["", *busy, "first"], rows)


def one_gpu_table() -> str:
    """Return the table of measured searches on one GPU (workflow/pages/million.py)."""
    rows = []
    for case in json.loads(ONE_GPU.read_text(encoding="utf-8"))["cases"].values():
        problem, level_s, edges = case["problem"], case["level_s"], case["edges_per_level"]
        rows.append([f"{problem['p']:,} x {problem['n']:,}", f"{problem['alpha']:g}"])
        rows[-1] += [f"{case['total_s']:.1f}", f"{level_s[0]:.1f}", f"{level_s[1]:.1f}"]
        rows[-1] += [f"{sum(level_s[2:]):.1f} ({len(level_s)})" if len(level_s) > 2 else ""]
        rows[-1] += [f"{edges[0]:.2e}", f"{edges[1]:,}", f"{edges[-1]:,}" if len(edges) > 2 else ""]
        rows[-1] += [f"{case['tests_per_level'][1]:.1e}"]
    header = [
        "variables x samples",
        "alpha",
        "whole, s",
        "level 0, s",
        "level 1, s",
        "later levels, s (number of levels)",
    ]
    return table([*header, "edges after level 0", "level 1", "last level", "tests, level 1"], rows)


TABLES = {"one-gpu": one_gpu_table, "work": work_table, "times": time_table, "bottlenecks": bottleneck_table}
"""The page's tables, by the name in the comment before each."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m workflow.pages.scale", description=__doc__.splitlines()[0])
    parser.add_argument("--page", type=Path, metavar="MD", help="put the tables where the page has them")
    parser.add_argument("--measured", type=Path, metavar="JSON", help="compare with measured runs")
    options = parser.parse_args(arguments)
    try:
        if options.measured:
            runs = predictions(json.loads(options.measured.read_text(encoding="utf-8")))
            rows = [[str(w), f"{m:.2f}", f"{predicted:.2f}", f"{predicted / m - 1:+.1%}"] for w, m, predicted in runs]
            print(table(["workers", "measured, s", "predicted, s", "error"], rows))
            return 0
        tables = {name: make() for name, make in TABLES.items()}
        if options.page:
            marks.replace(options.page, tables)
            return 0
    except (OSError, ValueError) as error:
        parser.error(f"{options.measured or options.page}: {error}")
    print("\n\n".join(f"<!-- {name} -->\n\n{made}\n\n<!-- end -->" for name, made in tables.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
