"""cuPC (doi:10.1109/TPDS.2019.2939126): Tables 1 and 2, and the claims of section 5
(results/reported/cupc_claims.csv)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from gpupc_impl.reporting import cells as c
from gpupc_impl.reporting import quantities as q
from gpupc_impl.reporting import sharing as shared_sets
from gpupc_impl.reporting.catalogue import CsvRows, Facts
from gpupc_impl.reporting.claims import table_of
from gpupc_impl.reporting.runs import Runs, VerifiedRecord, by_dataset, datasets_of, in_grid, of_method, of_settings
from gpupc_impl.reporting.tables import Table

CUPC = ("cupc-e", "cupc-s")
BASELINES = ("baseline-1", "baseline-2")
SERIAL, PARALLEL = "stable-serial", "stable-parallel"
AUTHORS = "cupc-authors"  # the authors' own program of cuPC-S (docs/peers.md)

SELECTED = {"cupc-e": {"beta": 2, "gamma": 32}, "cupc-s": {"theta": 64, "delta": 2}}
"""The configurations with which the paper's results were measured (section 5.4)."""

RULES = ("first-come", "canonical")  # the rules for separating sets in order of preference: the paper's rule, then ours


def runs_of(runs: Runs, method: str, rules: Sequence[str] = RULES) -> list[VerifiedRecord]:
    """Return the runs of one setting of a method with the paper's test, preferably in the paper's configuration."""
    same_test = [run for run in runs if run.params.get("inverse") != "pseudo"]
    return of_method(same_test, method, rules, **SELECTED.get(method, {}))


def cupc_table1(problems: Facts, reported: CsvRows) -> Table:
    shape = {"n_variables": ("n", "variables"), "n_samples": ("m", "samples")}
    notes = ["n: variables; m: samples. Paper: cuPC (doi:10.1109/TPDS.2019.2939126), Table 1."]
    if any(facts["why"] for facts in problems):
        notes.append("To try the network again: snakemake --forcerun fetch")
    own = {"licence": lambda facts: facts.get("licence") or "–"}
    return c.datasets_table("Data sets (cuPC, Table 1)", problems, reported, shape, own, notes)


RUNTIMES = (("T1", None), ("T2", PARALLEL), ("T3", SERIAL), ("T4", "cupc-e"), ("T5", "cupc-s"))
"""The rows of the paper's table, and our methods beside them."""

SPEEDUPS = (
    ("T1/T2", "T3/T2", SERIAL, PARALLEL),
    ("T3/T4", "T3/T4", SERIAL, "cupc-e"),
    ("T3/T5", "T3/T5", SERIAL, "cupc-s"),
)
"""The paper's ratios, our ratios beside them (we have no T1, Stable), the slow and the fast method."""

MEAN = "geometric mean"


def cupc_table2(runs: Runs, reported: CsvRows, notes: Sequence[str] = ()) -> Table:
    chosen = {method: runs_of(runs, method) for method in (SERIAL, PARALLEL, *CUPC)}
    settings = {method: [some] for method, some in chosen.items()}
    for method in CUPC:
        canonical = runs_of(runs, method, rules=("canonical",))
        if canonical != chosen[method]:
            settings[method].append(canonical)
    authors = [run for run in runs if run.method == AUTHORS]
    settings["cupc-s"].append(authors)
    lines: list[c.Line] = []
    for symbol, method in RUNTIMES:
        its = settings.get(method, [])
        lines += _runtimes(symbol, its, "whole call", c.time_cell)
        lines.append(_paper(f"{symbol}, s", [row for row in reported if row["symbol"] == symbol]))
        lines += _runtimes(symbol, its, "levels", _levels_cell) if method in CUPC else []
    for paper_symbol, symbol, slow, fast in SPEEDUPS:
        lines += _speedups(symbol, chosen, slow, fast, "whole call", c.speedup)
        lines.append(_paper(paper_symbol, [row for row in reported if row["symbol"] == paper_symbol]))
        lines += _speedups(symbol, chosen, slow, fast, "levels", c.levels_speedup) if fast in CUPC else []
    of_levels = ["The authors' program does not time its levels."] * any(run.median for run in authors)
    notes = [*notes[:1], *of_levels, *notes[1:]]
    shown = of_settings(runs, [some for both in settings.values() for some in both])
    columns = {name: name for name in datasets_of(runs)} | {MEAN: f"{MEAN} (data sets)"}
    return c.of_lines("Runtimes and speedups (cuPC, Table 2)", ["", "runtime, speedup"], columns, lines, notes, shown)


def _runtimes(symbol: str, settings: Sequence[Runs], clock: str, text: Callable[[VerifiedRecord], str]) -> list[c.Line]:
    lines = []
    for its in filter(None, settings):
        first = its[0]
        who = f"{'authors' if first.method == AUTHORS else 'ours'}: {c.label(first.setting, first.backend)}"
        what = f"{symbol}{' levels' * (clock == 'levels')}, s"
        lines.append(c.Line([what, who], c.times(its, text, symbol=symbol, clock=clock)))
    return lines


def _levels_cell(run: VerifiedRecord) -> str:
    return "–" if run.levels_median is None else c.number(run.levels_median) + c.mark(run)


def _speedups(
    symbol: str, chosen: Mapping[str, Runs], slow: str, fast: str, clock: str, of: Callable[..., object]
) -> list[c.Line]:
    """Return the line with our speedups of one method over another, if the faster one was run."""
    if not chosen[fast]:
        return []
    slows, first, facts = by_dataset(chosen[slow]), chosen[fast][0], {"symbol": symbol, "clock": clock}
    pairs: dict[str, c.Pair] = {run.dataset: (slows.get(run.dataset), run) for run in chosen[fast]}
    # The mean is over the data sets that all compared methods finished.
    compared = [chosen[slow], chosen[fast], *([] if first.backend == "cpu" else [chosen[method] for method in CUPC])]
    finished = set.intersection(*({run.dataset for run in its if run.counts} for its in compared))
    in_mean = [of(*pair) for name, pair in pairs.items() if name in finished]
    values = [ratio.value for ratio in in_mean if ratio.value is not None]
    cells = c.ratios(pairs, of, **facts)
    if values:
        mean = c.geometric_mean(values)
        row = {"source": "ours", **facts, "dataset": MEAN, "method": fast, "backend": first.backend, "speedup": mean}
        cells[MEAN] = c.Cell(f"{c.number(mean)}× ({len(values)})", row | {"datasets_in_mean": len(values)})
    who = f"{c.label(first.setting, first.backend)} over {c.label(slow)}"
    return [c.Line([symbol + " levels" * (clock == "levels"), f"ours: {who}"], cells)]


def _paper(symbol: str, rows: CsvRows) -> c.Line:
    cells = c.printed(rows)
    if MEAN in cells:
        cells[MEAN] = cells[MEAN]._replace(text=f"{cells[MEAN].text} (6)")
    return c.Line([symbol, f"paper: {rows[0]['method']}, {rows[0]['hardware']}"], cells)


# --- claims ----------------------------------------------------------------------------------------------------------
GENERATED = re.compile(r"generated: cuPC section 5\.6, p=(\d+), m=(\d+), density=([\d.e+-]+), seed=\d+")


def size_of(run: VerifiedRecord) -> Mapping[str, float] | None:
    """Return n, m and d of a generated data set that is searched as in section 5.6, without a residual tolerance; with
    another one the search is another problem and does not belong to Fig. 10."""
    source = GENERATED.fullmatch(run.dataset_facts.get("source") or "")
    if source is None or (run.problem or {}).get("residual_tolerance") != 0:
        return None
    return {"n": int(source[1]), "m": int(source[2]), "d": float(source[3])}


def differing_edges(evidence: q.Evidence, dataset: str) -> Mapping[str, Sequence[float]]:
    runs = [evidence.run(dataset, method) for method in CUPC]
    if not all(run.differing_edges for run in runs):
        raise q.Missing("no skeleton to compare")
    return {dataset: [int(run.differing_edges) for run in runs]}


def level_share(methods: Sequence[str], first: int, last: int) -> q.Quantity:
    """Return the percentage that some levels take of the time of all levels, as the median over the warm runs."""

    def percent(run: VerifiedRecord) -> float | None:
        shares = [100 * sum(levels[first : last + 1]) / sum(levels) for levels in run.time_s.levels]
        return float(np.median(shares)) if shares else None

    measures = [q.of_run(method, percent, "does not time its levels") for method in methods]
    return q.over_datasets(lambda evidence, dataset: {dataset: [of(evidence, dataset) for of in measures]})


def levels_over(fast: str, slow: str) -> q.Quantity:
    return q.over_datasets(q.over(fast, slow, q.level_seconds))


def s_over_e(evidence: q.Evidence, dataset: str) -> Mapping[str, Sequence[float]]:
    """Return the speedup of cuPC-S over cuPC-E with Algorithm 7 for every conditioning set, if that was measured.

    cuPC-S makes an inverse once for a set and all edges of a row (section 4.4); with the cheaper factorisation of our
    default there is little to share.
    """
    speedup = q.over("cupc-s", "cupc-e", q.level_seconds)
    try:
        return {f"{dataset} (Algorithm 7 for every set)": [speedup(evidence.algorithm_7, dataset)]}
    except q.Missing:
        return {dataset: [speedup(evidence, dataset)]}


def over_stable_fast(method: str, reduce: q.Reduce | None = None) -> q.Quantity:
    """Return the speedup over pcalg's Stable.fast by a chain, or over our serial reference."""
    return q.chained(q.over_datasets(q.over(method, SERIAL)), "pcalg", SERIAL, method, reduce)


def configurations(evidence: q.Evidence, dataset: str, method: str) -> list[float]:
    """Return the performance of every configuration relative to the selected one, as in Figs. 7 and 8, which must be
    part of the grid, since other runs with its parameters may have another rule for separating sets or another date."""
    grid = [run for run in evidence.runs if (run.dataset, run.method) == (dataset, method) and in_grid(run)]
    if not grid:
        raise evidence.lacking(f"no grid of {c.label(method)} measured", dataset)
    selected = next((run for run in grid if SELECTED[method].items() <= run.params.items()), None)
    if selected is None:
        raise q.Missing(f"{'-'.join([c.label(method), *map(str, SELECTED[method].values())])} not measured in the grid")
    return [q.seconds_of(selected) / run.median for run in grid if run.counts]


def heatmap(method: str) -> q.Quantity:
    def performance(evidence: q.Evidence, dataset: str) -> Mapping[str, Sequence[float]]:
        values = configurations(evidence, dataset, method)
        return {f"{dataset} ({len(values)} configurations)": values}

    return q.over_datasets(performance)


def spread_ratio(evidence: q.Evidence, dataset: str) -> float:
    e, s = (configurations(evidence, dataset, method) for method in CUPC)
    return (max(s) / min(s)) / (max(e) / min(e))


def change(ours: tuple[int, int], theirs: tuple[int, int]) -> q.Quantity:
    """Return by how many percent one configuration of cuPC-E (beta, gamma) is faster than another."""
    fast, slow = (q.seconds("cupc-e", beta=beta, gamma=gamma) for beta, gamma in (ours, theirs))
    return q.over_datasets(lambda evidence, dataset: 100 * (slow(evidence, dataset) / fast(evidence, dataset) - 1))


def shared_by_40_rows(evidence: q.Evidence, dataset: str) -> float:
    if dataset not in evidence.sharing:
        raise evidence.lacking("shared sets were not counted", dataset)
    return evidence.sharing[dataset].percent_within(2, 40)


def along(axis: str, compute: q.Compute) -> q.Quantity:
    """Return a quantity of the runtimes of cuPC-E and cuPC-S along an axis."""
    return q.along(axis, {c.label(method): (size_of, q.seconds(method)) for method in CUPC}, compute)


QUANTITIES: dict[str, q.Quantity] = {
    "same-skeleton": q.over_datasets(differing_edges),
    "parallel-pc-dream5": q.over_datasets(q.over(PARALLEL, SERIAL)),
    "parallel-pc-mean": q.over_datasets(q.over(PARALLEL, SERIAL), c.geometric_mean),
    "cupc-e-mean": over_stable_fast("cupc-e", c.geometric_mean),
    "cupc-e-nci-60": over_stable_fast("cupc-e"),
    "cupc-s-mean": over_stable_fast("cupc-s", c.geometric_mean),
    "cupc-s-nci-60": over_stable_fast("cupc-s"),
    "cupc-s-dream5": over_stable_fast("cupc-s"),
    "cupc-e-over-baseline-1": levels_over("cupc-e", "baseline-1"),
    "cupc-e-over-baseline-2": levels_over("cupc-e", "baseline-2"),
    "cupc-s-over-cupc-e": q.over_datasets(s_over_e),
    "cupc-s-over-baseline-1": levels_over("cupc-s", "baseline-1"),
    "cupc-s-over-baseline-2": levels_over("cupc-s", "baseline-2"),
    "level-1-first-five": level_share(CUPC, 1, 1),
    "level-1-dream5": level_share(CUPC, 1, 1),
    "levels-2-5-cupc-e": level_share(["cupc-e"], 2, 5),
    "levels-2-5-cupc-s": level_share(["cupc-s"], 2, 5),
    "fig7-range": heatmap("cupc-e"),
    "cupc-e-4-64": change((4, 64), (4, 8)),
    "cupc-e-1-256": change((1, 256), (1, 128)),
    "cupc-e-2-128": change((2, 128), (2, 16)),
    "fig8-range": heatmap("cupc-s"),
    "less-variation": q.over_datasets(spread_ratio),
    "shared-by-40-rows": q.over_datasets(shared_by_40_rows),
    "runtime-over-n": along("n", q.smallest_step),
    "cupc-s-always-faster": q.by_size(size_of, q.over("cupc-s", "cupc-e"), each="generated sets"),
    "cupc-e-over-stable-fast": over_stable_fast("cupc-e"),
    "linear-in-m": along("m", q.straightness),
    "linear-in-d": along("d", lambda places, times: q.straightness(places[1:], times[1:])),
    "fast-at-d-0.1": along("d", lambda places, times: times[0] / times[1]),
}


def cupc_claims(runs: Runs, sharing: CsvRows, factors: CsvRows, reported: CsvRows, notes: Sequence[str]) -> Table:
    selected = {method: [params] for method, params in SELECTED.items()}
    histograms = {found.dataset: found for found in shared_sets.load(sharing)}
    factor = q.factors_of(factors)
    tests = {by_7: [run for run in runs if (run.params.get("inverse") == "pseudo") == by_7] for by_7 in (False, True)}
    evidence = q.Evidence(tests[False], selected, factor, histograms, algorithm_7=q.Evidence(tests[True], selected))
    return table_of("cuPC, section 5,", reported, QUANTITIES, evidence, notes)
