"""Compares the quantitative sentences of the gpuPC paper with our records (results/reported/gpupc_claims.csv)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from gpupc_impl.reporting import quantities as q
from gpupc_impl.reporting.catalogue import CsvRows, table
from gpupc_impl.reporting.cells import label
from gpupc_impl.reporting.claims import table_of
from gpupc_impl.reporting.papers.gpupc import BASELINE, GPUPC, PAPER, PARALLEL
from gpupc_impl.reporting.runs import Runs, VerifiedRecord, kernels_of
from gpupc_impl.reporting.tables import Table

GAIN = q.over(GPUPC, BASELINE)


def workload(run: VerifiedRecord) -> q.Size | None:
    """Return the dimensions of section 4.2; None for a search."""
    facts = run.problem or {}
    if facts.get("tests_per_edge") is None:
        return None
    return {
        **{"N": facts["n_variables"], "max |V|": facts["max_categories"], "n": facts["n_samples"]},
        **{"T": facts["tests_per_edge"], "d": facts["decay"]},
    }


def speedup_over(axis: str, compute: q.Compute) -> q.Quantity:
    """Return a quantity of the speedup of gpuPC over disc-cuPC along one dimension."""
    return q.along(workload, axis, {f"{label(GPUPC)} over {label(BASELINE)}": GAIN}, compute)


def runtime_over(axis: str, compute: q.Compute) -> q.Quantity:
    return q.along(workload, axis, {label(GPUPC): q.seconds(GPUPC)}, compute)


def steps_over_steps(last: float) -> q.Compute:
    """Return, for each step of the varied dimension up to the value `last`, the ratio of two successive numbers divided
    by the ratio of the dimension's two values."""

    def compute(places: list[float], found: list[float]) -> list[float]:
        pairs = itertools.pairwise(zip(places, found, strict=True))
        steps = [(b / a) / (y / x) for (x, a), (y, b) in pairs if y <= last]
        if not steps:
            raise q.Missing(f"no two values up to {last:g}")
        return steps

    return compute


def out_of_memory(chosen: Callable[[q.Size], bool]) -> q.Quantity:
    """Return the percentage of the workloads on which disc-cuPC exhausts device memory and gpuPC finishes."""

    def outcome(evidence: q.Evidence, dataset: str) -> float:
        slow, fast = evidence.run(dataset, BASELINE), evidence.run(dataset, GPUPC)
        if not (slow.ok or slow.out_of_memory):
            q.seconds_of(slow)  # raises `Missing`
        return 100.0 * (slow.out_of_memory and fast.counts)

    def quantity(evidence: q.Evidence, _: Sequence[str]) -> q.Numbers:
        sizes = q.described(evidence, workload)
        datasets = [dataset for dataset, size in sizes.items() if chosen(size)]
        found = q.over_datasets(outcome)(evidence, datasets)
        return found if datasets else q.Numbers({}, {"such workloads": "not in this run"})

    return quantity


QUANTITIES: dict[str, q.Quantity] = {
    "up-to-45.6": q.by_size(workload, GAIN, reduce=max),
    "up-to-62.1": q.chained(q.one_of(max, q.reaching(62.1, GPUPC, PARALLEL)), "bnlearn", PARALLEL, GPUPC, max),
    "steady-over-N": speedup_over("N", q.within(0, math.inf)),
    "quadruple": runtime_over("N", q.per_doubling(0, math.inf)),
    "similar-over-categories": speedup_over("max |V|", q.within(4, 10)),
    "two-categories": speedup_over("max |V|", q.growth(4, 2)),
    "memory-of-categories": out_of_memory(lambda size: size["max |V|"] > 10),
    "500k-samples": speedup_over("n", q.within(500_000, math.inf, max)),
    "10k-samples": speedup_over("n", q.within(10_000, 10_000)),
    "order-of-magnitude": speedup_over("n", lambda _, found: max(found)),
    "linear-in-n": runtime_over("n", q.per_doubling(500_000, math.inf)),
    "sublinear-in-n": runtime_over("n", steps_over_steps(500_000)),
    "constant-over-T": speedup_over("T", q.growth(32, 128)),
    "higher-below-32": speedup_over("T", q.growth(32, 1)),
    "memory-of-levels": out_of_memory(lambda size: size["d"] <= 0.5),
    "gap-over-d": speedup_over("d", q.growth(0.9, 0.75)),
    "always-faster": q.everywhere(workload, GAIN, "workloads"),
    "bnlearn-over-parallelpc": q.not_run("neither bnlearn nor parallelPC is among our references"),
    "disc-cupc-over-cpu": q.chained(q.over_datasets(q.over(BASELINE, PARALLEL)), "bnlearn", PARALLEL, BASELINE),
    "gpupc-over-cpu": q.chained(q.over_datasets(q.over(GPUPC, PARALLEL)), "bnlearn", PARALLEL, GPUPC),
    "up-to-6.5": q.one_of(max, GAIN),
}
"""The quantity for each id in results/reported/gpupc_claims.csv."""

NOTES = (
    "Paper: Nvidia V100 (32 GB); two Intel Xeon Gold 6148 with 40 cores. Table 2 states how much device memory "
    "each method was allowed here, and the values that do not vary in a series.",
    f"Our {PARALLEL} stands for bnlearn's parallel program. It is much faster than bnlearn, so speedups over it "
    "are smaller; where bnlearn was measured beside discrete-serial on one core, the two are chained.",
)


@table("gpupc_claims", "Section 4: claims", paper=PAPER, family="discrete", experiments=("gpupc_table2",))
def gpupc_claims(runs: Runs, factors: CsvRows, reported: CsvRows) -> Table:
    """The table compares what the gpuPC paper states in numbers with the same quantities from our records, on the data
    named in the last column. The paper used an Nvidia V100 and 40 CPU cores; on the backend ``host`` kernels run on CPU
    cores.
    """
    evidence = q.Evidence(runs, {}, q.factors_of(factors))
    return table_of("gpuPC", reported, QUANTITIES, evidence, kernels_of(runs), NOTES)
