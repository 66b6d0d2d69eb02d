"""Compares the quantitative sentences of the Out-of-Core paper with our records (results/reported/ooc_claims.csv)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpupc_impl.reporting import quantities as q
from gpupc_impl.reporting.catalogue import CsvRows, table
from gpupc_impl.reporting.claims import table_of
from gpupc_impl.reporting.papers.out_of_core import AS_PUBLISHED, BLOCK, PAPER, UM
from gpupc_impl.reporting.runs import Runs, VerifiedRecord, kernels_of
from gpupc_impl.reporting.tables import Table

PARALLEL = "stable-parallel"

SELECTED = {method: [params, {}] for method, params in AS_PUBLISHED.items()}
"""The parameters of the paper's square blocks, and of unified memory with the same kernels."""


def connected(run: VerifiedRecord) -> Mapping[str, float] | None:
    """Return the number of variables of the data of section 5.1, of which no edge is removed; None for other data."""
    facts = run.problem or {}
    return {"N": facts["n_variables"]} if facts.get("alpha", 0) > 0.99 else None


def level(method: str, which: int) -> q.Measure:
    """Return a measure: the seconds of a level."""

    def measure(evidence: q.Evidence, dataset: str) -> float:
        run = evidence.run(dataset, method)
        q.seconds_of(run)  # This raises `Missing` if there is no time.
        median = run.level_band(which)[1]
        if median is None:
            raise q.Missing(f"{run.setting} has no time for level {which}")
        return median

    return measure


def tests(which: int) -> q.Measure:
    def measure(evidence: q.Evidence, dataset: str) -> float:
        run = evidence.run(dataset, BLOCK)
        if run.result is None or len(run.result.tests_per_level) <= which:
            raise q.Missing(f"{run.setting} has no level {which}")
        return run.result.tests_per_level[which]

    return measure


def device_gigabytes(evidence: q.Evidence, dataset: str) -> float:
    run = evidence.run(dataset, UM)
    if run.median is None or run.peak_bytes.device is None:
        raise q.Missing(f"{run.setting} has no record of its device memory")
    return run.peak_bytes.device / 1e9


def removed_by_level_0(evidence: q.Evidence, dataset: str) -> float:
    """Return the percentage of all edges that level 0 removed."""
    run = evidence.run(dataset, BLOCK)
    if run.left_by_level_0 is None:
        raise q.Missing(f"{run.setting} {run.status}")
    return 100 - run.left_by_level_0


def at(variables: int, measure: q.Measure) -> q.Quantity:
    return q.at_size(connected, {"N": variables}, measure)


def across(one: tuple[int, q.Measure], other: tuple[int, q.Measure]) -> q.Quantity:
    """Return the ratio of a number at one size to a number at another size, both of one block-based setting.

    The paper's square blocks are preferred; if they were not measured at both sizes, another layout is used.
    """

    def quantity(evidence: q.Evidence, datasets: Sequence[str]) -> q.Numbers:
        blocks = [run for run in evidence.runs if run.method == BLOCK]
        blocks.sort(key=lambda run: not AS_PUBLISHED[BLOCK].items() <= run.params.items())
        for setting in dict.fromkeys(run.setting for run in blocks):
            alone = evidence.only(lambda run, setting=setting: run.method != BLOCK or run.setting == setting)
            above, below = (at(*each)(alone, datasets) for each in (one, other))
            if above.values and below.values:
                where = f"{setting}, N = {one[0]:g} and {other[0]:g}"
                return q.Numbers({where: [above.all[0] / below.all[0]]})
        return q.Numbers({}, {f"N = {one[0]:g} and {other[0]:g}": "no block-based setting was measured at both"})

    return quantity


UM_OVER_BLOCK = q.ratio(level(BLOCK, 0), level(UM, 0))
BLOCK_OVER_UM = q.ratio(level(UM, 1), level(BLOCK, 1))
NO_LEVELS = q.not_run("device memory is recorded for both levels together")
NO_FAULTS = q.not_run("page faults are not counted")

QUANTITIES: dict[str, q.Quantity] = {
    "over-um-95": q.over_datasets(q.reaching(95, BLOCK, UM)),
    "over-cpu-236": q.over_datasets(q.reaching(236, BLOCK, PARALLEL)),
    "level-0-up-to-15": q.by_size(connected, UM_OVER_BLOCK, reduce=max),
    "level-0-55000": at(55_000, UM_OVER_BLOCK),
    "level-0-gap": q.along(
        connected, "N", {"unified memory over block-based": UM_OVER_BLOCK}, lambda _, found: found[-1] / found[0]
    ),
    "level-1-similar": q.along(connected, "N", {"block-based over unified memory": BLOCK_OVER_UM}, q.within(0, 35_000)),
    "level-1-40000": at(40_000, BLOCK_OVER_UM),
    "level-1-55000": at(55_000, BLOCK_OVER_UM),
    "memory-level-0-5000": NO_LEVELS,
    "memory-level-0-55000": NO_LEVELS,
    "memory-level-1-5000": at(5_000, device_gigabytes),
    "memory-level-1-55000": q.along(
        connected,
        "N",
        {"unified memory, whose arrays grow with the square of N": device_gigabytes},
        lambda places, gigabytes: gigabytes[-1] * (55_000 / places[-1]) ** 2,
    ),
    "tests-level-0-5000": at(5_000, tests(0)),
    "tests-level-0-55000": at(55_000, tests(0)),
    "tests-level-1-5000": at(5_000, tests(1)),
    "tests-level-1-55000": at(55_000, tests(1)),
    "page-faults-35000": NO_FAULTS,
    "page-faults-40000": NO_FAULTS,
    "more-tests": across((5_000, tests(1)), (55_000, tests(0))),
    "less-time": across((5_000, level(BLOCK, 1)), (55_000, level(BLOCK, 0))),
    "third-removed": q.over_datasets(removed_by_level_0),
}
"""The quantity for each id in results/reported/ooc_claims.csv."""

NOTES = (
    "Paper: Nvidia V100 (32 GB); Intel Xeon E7-4850 v4 with 32 cores. Fig. 2 shows the limit of device memory "
    "here. Block-based is the setting with the paper's square blocks if that was measured, and unified memory the "
    "setting with the same kernels. Unified memory beyond the card's free memory cannot be tested here: it is not run, "
    "since it can hang the machine.",
    f"Our {PARALLEL} stands for pcalg's stable.fast on 32 cores; tcga-like for the TCGA matrix, which is not "
    "public in one file.",
    "Tests are counted by the methods; if both sides of a pair are tested, each test counts.",
)


@table("ooc_claims", "Section 5: claims", paper=PAPER, experiments=("ooc_fig2", "ooc_table1"))
def ooc_claims(runs: Runs, reported: CsvRows) -> Table:
    """The table compares what the Out-of-Core paper states in numbers with the same quantities from our records, on the
    data named in the last column. The paper used an Nvidia V100 with 32 GB, which its data exceed from 40,000 variables
    on. On the backend ``host`` managed memory is plain memory, and nothing is migrated.
    """
    return table_of("Out-of-Core", reported, QUANTITIES, q.Evidence(runs, SELECTED), kernels_of(runs), NOTES)
