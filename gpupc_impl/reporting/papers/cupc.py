"""Tables 1 and 2 of cuPC (doi:10.1109/TPDS.2019.2939126), and functions that its other outputs share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gpupc_impl.reporting.catalogue import CsvRows, Facts, table
from gpupc_impl.reporting.cells import Pair, geometric_mean, label, levels_speedup, mark, number, speedup, time_cell
from gpupc_impl.reporting.lines import Cell, Line, of_lines, printed, ratios, times
from gpupc_impl.reporting.notes import RATIOS, places, remarks, whole_calls
from gpupc_impl.reporting.papers.datasets import datasets_table
from gpupc_impl.reporting.runs import Runs, VerifiedRecord, by_dataset, datasets_of, of_method, of_settings
from gpupc_impl.reporting.tables import Table

PAPER = "cuPC"
CUPC = ("cupc-e", "cupc-s")
BASELINES = ("baseline-1", "baseline-2")
SERIAL, PARALLEL = "stable-serial", "stable-parallel"
AUTHORS = "cupc-authors"
"""The authors' own program of cuPC-S (docs/peers.md)."""

SELECTED = {"cupc-e": {"beta": 2, "gamma": 32}, "cupc-s": {"theta": 64, "delta": 2}}
"""The configurations with which the paper's results were measured (section 5.4)."""

RULES = ("first-come", "canonical")
"""The rules for separating sets in order of preference: the paper's rule, then ours."""


def runs_of(runs: Runs, method: str, rules: Sequence[str] = RULES) -> list[VerifiedRecord]:
    """Return the runs of one setting of a method with the paper's test, preferably in the paper's configuration."""
    same_test = [run for run in runs if run.params.get("inverse") != "pseudo"]
    return of_method(same_test, method, rules, **SELECTED.get(method, {}))


@table("cupc_table1", "Table 1: data sets", paper=PAPER, family="gaussian")
def cupc_table1(problems: Facts, reported: CsvRows) -> Table:
    """The table compares the shapes of the data sets with those in cuPC's Table 1. For a data set that is not available
    it gives the reason; the other tables have no times on that data set.
    """
    shape = {"n_variables": ("n", "variables"), "n_samples": ("m", "samples")}
    notes = ["n: variables; m: samples. Paper: cuPC (doi:10.1109/TPDS.2019.2939126), Table 1."]
    if any(facts["why"] for facts in problems):
        notes.append("To try the network again: snakemake --forcerun fetch")
    own = {
        "licence": lambda facts: facts.get("licence") or "–",
        "source": lambda facts: facts.get("source") or facts.get("url") or "–",
    }
    return datasets_table("Data sets (cuPC, Table 1)", problems, reported, shape, own, notes)


RUNTIMES = (("T1", None), ("T2", PARALLEL), ("T3", SERIAL), ("T4", "cupc-e"), ("T5", "cupc-s"))
"""The rows of the paper's table, and our methods beside them."""

SPEEDUPS = (
    ("T1/T2", "T3/T2", SERIAL, PARALLEL),
    ("T3/T4", "T3/T4", SERIAL, "cupc-e"),
    ("T3/T5", "T3/T5", SERIAL, "cupc-s"),
)
"""The paper's ratios, our ratios beside them (we have no T1, Stable), the slow and the fast method."""

MEAN = "geometric mean"


@table("cupc_table2", "Table 2: runtimes and speedups", paper=PAPER, family="gaussian", methods=CUPC)
def cupc_table2(runs: Runs, reported: CsvRows) -> Table:
    """The table shows runtimes and speedups as cuPC's Table 2, at alpha = {{ config["alpha"] }}: ours (median of the
    warm runs, 20–80 % band) above the paper's (Nvidia GTX 1080; Intel Xeon at 2.5 GHz, 8 cores). cuPC is measured with
    the paper's rule for separating sets, from which speedups are computed, and with canonical sets. Rows with "levels"
    have the time of the levels alone; the other rows have that of whole calls, transfers included, as the paper's.
    † marks a bound that follows from a time limit.
    """
    chosen = {method: runs_of(runs, method) for method in (SERIAL, PARALLEL, *CUPC)}
    settings = {method: [some] for method, some in chosen.items()}
    for method in CUPC:
        canonical = runs_of(runs, method, rules=("canonical",))
        if canonical != chosen[method]:
            settings[method].append(canonical)
    authors = [run for run in runs if run.method == AUTHORS]
    settings["cupc-s"].append(authors)
    lines: list[Line] = []
    for symbol, method in RUNTIMES:
        its = settings.get(method, [])
        lines += _runtimes(symbol, its, "whole call", time_cell)
        lines.append(_paper(f"{symbol}, s", [row for row in reported if row["symbol"] == symbol]))
        lines += _runtimes(symbol, its, "levels", _levels_cell) if method in CUPC else []
    for paper_symbol, symbol, slow, fast in SPEEDUPS:
        lines += _speedups(symbol, chosen, slow, fast, "whole call", speedup)
        lines.append(_paper(paper_symbol, [row for row in reported if row["symbol"] == paper_symbol]))
        lines += _speedups(symbol, chosen, slow, fast, "levels", levels_speedup) if fast in CUPC else []
    notes = [
        whole_calls("the correlation matrix") + " The paper counts transfers as well (section 5.3). Rows with levels "
        "leave out what belongs to no level: transfers, and the collection of sets.",
        *(["The authors' program does not time its levels."] * any(run.median for run in authors)),
        *places(runs),
        "Geometric means of cuPC-E and cuPC-S are over the data sets on which both and the serial reference finished "
        "with a verified skeleton; parentheses contain the number of these data sets. The mean of T3/T2 is ours and "
        "that of T1/T2 the paper's, since its Stable (T1, in R) is not among our references.",
        RATIOS,
        *remarks(of_settings(runs, [some for both in settings.values() for some in both])),
        "Paper: cuPC (doi:10.1109/TPDS.2019.2939126), Table 2.",
    ]
    columns = {name: name for name in datasets_of(runs)} | {MEAN: f"{MEAN} (data sets)"}
    return of_lines("Runtimes and speedups (cuPC, Table 2)", ["", "runtime, speedup"], columns, lines, notes)


def _runtimes(symbol: str, settings: Sequence[Runs], clock: str, text: Callable[[VerifiedRecord], str]) -> list[Line]:
    """Return the lines with our times of some settings."""
    lines = []
    for its in filter(None, settings):
        first = its[0]
        who = f"{'authors' if first.method == AUTHORS else 'ours'}: {label(first.setting, first.backend)}"
        what = f"{symbol}{' levels' * (clock == 'levels')}, s"
        lines.append(Line([what, who], times(its, text, symbol=symbol, clock=clock)))
    return lines


def _levels_cell(run: VerifiedRecord) -> str:
    return "–" if run.levels_median is None else number(run.levels_median) + mark(run)


def _speedups(
    symbol: str, chosen: Mapping[str, Runs], slow: str, fast: str, clock: str, of: Callable[..., object]
) -> list[Line]:
    """Return the line with our speedups of one method over another, if the faster one was run."""
    if not chosen[fast]:
        return []
    slows, first, facts = by_dataset(chosen[slow]), chosen[fast][0], {"symbol": symbol, "clock": clock}
    pairs: dict[str, Pair] = {run.dataset: (slows.get(run.dataset), run) for run in chosen[fast]}
    # The mean is over the data sets that all compared methods finished.
    compared = [chosen[slow], chosen[fast], *([] if first.backend == "cpu" else [chosen[method] for method in CUPC])]
    finished = set.intersection(*({run.dataset for run in its if run.counts} for its in compared))
    values = [
        ratio.value for name, pair in pairs.items() if name in finished and (ratio := of(*pair)).value is not None
    ]
    cells = ratios(pairs, of, **facts)
    if values:
        mean = geometric_mean(values)
        row = {"source": "ours", **facts, "dataset": MEAN, "method": fast, "backend": first.backend, "speedup": mean}
        cells[MEAN] = Cell(f"{number(mean)}× ({len(values)})", row | {"datasets_in_mean": len(values)})
    who = f"{label(first.setting, first.backend)} over {label(slow)}"
    return [Line([symbol + " levels" * (clock == "levels"), f"ours: {who}"], cells)]


def _paper(symbol: str, rows: CsvRows) -> Line:
    cells = printed(rows)
    if MEAN in cells:
        cells[MEAN] = cells[MEAN]._replace(text=f"{cells[MEAN].text} (6)")
    return Line([symbol, f"paper: {rows[0]['method']}, {rows[0]['hardware']}"], cells)
