"""The GPU-CMIknn paper: its searches (Tables 5 and 10 and Fig. 1), its single tests, and its claims
(results/reported/cmiknn_claims.csv)."""

from __future__ import annotations

import dataclasses
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from gpupc_impl.core.orientation import orient
from gpupc_impl.measurement.record import commit_name, machine_name
from gpupc_impl.reporting import cells as c
from gpupc_impl.reporting import quantities as q
from gpupc_impl.reporting import style
from gpupc_impl.reporting.catalogue import CsvRows, Facts
from gpupc_impl.reporting.claims import table_of
from gpupc_impl.reporting.figures import HEADING, Drawing, canvas, swatch
from gpupc_impl.reporting.runs import STALE, Runs, VerifiedRecord, by_key, datasets_of, grouped, of_method
from gpupc_impl.reporting.tables import Table
from gpupc_impl.verification.accuracy import dag_of_edges, structural_hamming_distance

CITED = "Paper: GPU-CMIknn (PMLR 185:30-60, 2022)"
REFERENCE, SINGLE_THREADED = "tigramite", {"workers": 1}  # they stand for the paper's CPU version of CMIknn


def cmiknn_table5(runs: Runs, reported: CsvRows) -> Table:
    slows = {run.dataset: run for run in of_method(runs, REFERENCE, **SINGLE_THREADED) if run.status != "skipped"}
    reference = next((run.setting for run in slows.values()), None)
    ours = by_key((run for run in runs if run.problem), lambda run: (run.setting, run.backend, run.problem["k_cmi"]))
    order = list(dict.fromkeys(run.setting for run in runs))
    lines: list[c.Line] = []
    alone, graphs = False, set()
    for setting, backend, k in sorted(ours, key=lambda line: (order.index(line[0]), *line[1:])):
        by_size = by_key(ours[setting, backend, k], lambda run: run.problem["n_variables"])
        cells = {p: _table5_cell(here, slows, setting == reference) for p, here in by_size.items()}
        alone |= setting != reference and any(cell.text.endswith(" s") for cell in cells.values())
        graphs |= set(map(len, by_size.values()))
        who = f"ours: {c.label(setting, backend)}" + (", seconds" if setting == reference else "")
        lines.append(c.Line([who, str(k)], cells))
    for (name, k), rows in by_key(reported, lambda row: (row["method"], row["k_cmi"])).items():
        cells = c.printed(rows, lambda row: int(row["variables"]), lambda row: f"{row['value']}×")
        lines.append(c.Line([f"paper: {name}", k], cells))
    notes = [
        f"How many times faster than {REFERENCE} with one worker, the paper's single-threaded CPU version; medians "
        f"over graphs: those of our {' or '.join(map(str, sorted(graphs))) or 'no'} of each kind on which it was run; "
        f"the paper's 10. Ours: {_search(runs)}. Paper: n = 1,000, perm = 100.",
        *(["Cells in seconds are medians over the graphs that finished, on which that version was not run."] * alone),
        *(f"{CITED}, Table 5, {line}." for line in c.hardware(reported)),
    ]
    sizes = sorted({p for line in lines for p in line.cells})
    head = ["speedup over the single-threaded CPU version", "k_CMI"]
    title, columns = "Speedups of the search (GPU-CMIknn, Table 5)", {p: f"N = {p}" for p in sizes}
    return c.of_lines(title, head, columns, lines, notes, runs, left=(0,))


def _table5_cell(here: Runs, slows: Mapping[str, VerifiedRecord], is_reference: bool) -> c.Cell:
    """Return the median speedup over the graphs of a size on which the reference was run, or else the median time."""
    compared = [run for run in here if run.dataset in slows]
    ratio = median_speedup([c.speedup(slows[run.dataset], run) for run in compared])
    seconds = [run.median for run in here if run.median is not None]
    median = float(np.median(seconds)) if seconds else None
    own = {"source": "ours", "setting": here[0].setting, "backend": here[0].backend, "machine": here[0].machine}
    own |= {"k_cmi": here[0].problem["k_cmi"], "variables": here[0].problem["n_variables"]}
    own |= {"graphs": len(here), "finished": len(seconds), "median_s": median, **ratio.facts}
    text = str(ratio) if compared and not is_reference else "–" if median is None else f"{c.number(median)} s"
    marked = (run for run in here if run.random or not run.reference)
    return c.Cell(text + c.mark(*marked) * (text != "–"), own)


def median_speedup(ratios: Sequence[c.Speedup]) -> c.Speedup:
    """Return the median of ratios: a bound if some are bounds of one kind, none if any is missing or kinds differ."""
    known = [ratio for ratio in ratios if ratio.value is not None]
    bounds = {ratio.bound for ratio in known} - {""}
    if not known or len(known) < len(ratios) or len(bounds) > 1:
        return c.Speedup(None, why="–")
    return c.Speedup(float(np.median([ratio.value for ratio in known])), "".join(bounds))


def _search(runs: Iterable[VerifiedRecord]) -> str:
    """Return the parameters of the searches as a text."""
    problems = [run.problem for run in runs if run.problem]
    names = {"n_samples": "n", "permutations": "perm", "k_perm": "k_perm", "alpha": "alpha"}
    return c.stated((symbol, sorted({problem[name] for problem in problems})) for name, symbol in names.items())


def cmiknn_table10(runs: Runs, reported: CsvRows) -> Table:
    lines = []
    for (setting, backend), here in by_key(runs, lambda run: (run.setting, run.backend)).items():
        lines.append(c.Line([f"ours: {c.label(setting, backend)}"], c.times(here, time_or_dnf)))
    for name, rows in by_key(reported, lambda row: row["method"]).items():
        text = c.printed(rows, text=lambda row: f"{float(row['value']):,g}" if row["status"] == "ok" else "DNF")
        lines.append(c.Line([f"paper: {name}"], text))
    limits = sorted({run.limits.time_s for run in runs if run.limits.time_s})
    notes = [
        f"Ours: {_search(runs)}; median of the warm runs. Paper: n = 1,000 for the generated graphs, perm = 100, "
        "k_perm = 15, k_CMI = 7, alpha = 0.01.",
        "DNF: did not finish within the time limit, "
        f"ours {' or '.join(f'{c.number(limit)} s' for limit in limits) or 'none'}, the paper's 24 hours.",
        *(f"{CITED}, Table 10, {line}." for line in c.hardware(reported)),
    ]
    columns = {name: name for name in [*datasets_of(runs), *(row["dataset"] for row in reported)]}
    finished = [run for run in runs if run.status != "timeout"]
    title = "Sparse graphs and gene expressions (GPU-CMIknn, Table 10)"
    return c.of_lines(title, ["seconds"], columns, lines, notes, finished, left=(0,))


def time_or_dnf(run: VerifiedRecord) -> str:
    return f"DNF (> {c.number(run.limits.time_s)})" if run.status == "timeout" else c.time_cell(run)


BASE = 7  # the k_CMI with which the others are compared
OF_FIG1 = "-fig1"  # the end of the names of its data sets, of which Table 5 has some, too


def shd_changes(runs: Runs, problems: Facts) -> tuple[list[dict[str, Any]], dict[int, list[float]]]:
    """Return a row for each run of Fig. 1 and, by k_CMI, how the SHD of each graph changes from k_CMI = `BASE`."""
    truths = {facts["name"]: facts.get("true_edges", []) for facts in problems}
    rows = []
    for run in runs:
        source, k, distance = run.dataset_facts.get("source"), run.problem and run.problem["k_cmi"], None
        if run.counts and (found := run.skeleton) is not None:
            distance = structural_hamming_distance(orient(found), dag_of_edges(truths[run.dataset], len(found.names)))
        true_edges = len(truths.get(run.dataset, ()))
        rows.append({"source": source, "k_cmi": k, "shd": distance, "true_edges": true_edges, **c.csv_row(run)})
    bases = {row["source"]: row["shd"] for row in rows if row["k_cmi"] == BASE}
    for row in rows:
        both = row["shd"], bases.get(row["source"])
        row["change"] = None if None in both else both[0] - both[1]
    by_k = by_key((row for row in rows if row["change"] is not None), lambda row: row["k_cmi"])
    return rows, {k: [row["change"] for row in by_k[k]] for k in sorted(by_k)}


def cmiknn_fig1(runs: Runs, problems: Facts, reported: CsvRows) -> Drawing:
    rows, changes = shd_changes(runs, problems)
    figure, [[axes]] = canvas(1, 1, (style.COLUMN_WIDTH, 2.9))
    if changes:
        lows, middles, highs = (np.array([of(them) for them in changes.values()]) for of in (np.min, np.median, np.max))
        bars = {"yerr": [middles - lows, highs - middles], "elinewidth": 0.8, "capsize": 2, "markersize": 3}
        colour = style.colour(runs[0].method)
        axes.errorbar(list(changes), middles, fmt="o-", color=colour, label="minimum, median, maximum", **bars)
    axes.axhline(0, color="black", linewidth=0.6)
    for position, row in enumerate(reported):  # The paper's statements stand above the k_CMI to which they apply.
        low, high = float(row["k_low"]), float(row["k_high"])
        axes.axvspan(low, high, color=style.GREY, alpha=0.16 if position % 2 else 0.08, linewidth=0)
        words = re.sub(r"^the median | (?:up to|from) k_CMI.*$", "", row["statement"]).replace(" ", "\n")
        spot = {"xycoords": axes.get_xaxis_transform(), "ha": "center", "va": "bottom", "annotation_clip": False}
        axes.annotate(words, (math.sqrt(low * high), 1.01), fontsize=6, color="#444444", **spot)
    axes.set(xscale="log", xlabel="k_CMI", ylabel=f"SHD − SHD at k_CMI = {BASE}")
    axes.set_xticks(list(changes), [str(k) for k in changes])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(lambda change, _: f"{change:g}")
    handles = axes.get_legend_handles_labels()[0]
    if reported:
        handles.append(swatch("the paper's statements (above)", color=style.GREY, alpha=0.16, linewidth=0))
    figure.legend(handles=handles, loc="outside lower right", fontsize=6)
    graphs = sorted({len(of_k) for of_k in changes.values()})
    heading = [f"Below 0: nearer to the truth. Ours: {' to '.join(map(str, graphs)) or 'no'} graphs ({_search(runs)})"]
    heading += [f"Above: the paper's median of {row['graphs']} graphs, as its text states it" for row in reported[:1]]
    figure.suptitle("\n".join(textwrap.fill(line, 62) for line in heading), **HEADING)
    return Drawing(figure, rows)


# --- single tests: Tables 1 to 4, with the percentiles of Tables 6 to 9 -----------------------------------------------
Timed = Mapping[str, Any]  # the repeated tests of one implementation in one case (`measure_tests`)

DIMENSIONS = {"k_cmi": "k_CMI", "permutations": "perm", "set_size": "|S|", "samples": "n"}
"""The keys of a `Timed`, with the paper's symbols. Each of Tables 1 to 4 varies one."""


def single_tests(tests: Mapping[str, Any], varies: str, reported: CsvRows) -> Table:
    """Return the seconds of single CI tests: a column for each varied value, a row for each implementation and k."""
    cells: Sequence[Timed] = tests["cells"]
    has_k = varies != "k_cmi"
    reported = [{**row, "set_size": row["separation_set"]} for row in reported]

    def k_of(cell: Mapping[str, Any]) -> str:
        return _value(cell, "k_cmi") if has_k else ""

    names = list(dict.fromkeys(cell["implementation"] for cell in cells))
    by_line = by_key(cells, lambda cell: (cell["implementation"], cell["backend"], k_of(cell)))
    order = sorted(by_line, key=lambda line: (names.index(line[0]), _size(line[2])))
    ours = {line: {_value(cell, varies): cell for cell in by_line[line]} for line in order}
    of_reference = [cell for cell in cells if cell["method"] == REFERENCE]
    single = (cell for cell in of_reference if SINGLE_THREADED.items() <= cell["params"].items())
    reference = next((cell["implementation"] for cell in single), None)
    lines = []
    for (name, backend, k), by_value in ours.items():
        times = {value: _cell(cell) for value, cell in by_value.items()}
        lines.append(c.Line([f"ours: {c.label(name, backend)}", *[k] * has_k], times))
    for (name, backend, k), by_value in ours.items():
        if (slow := ours.get((reference, "cpu", k))) and name != reference:
            ratios = {value: _ratio(slow.get(value), cell) for value, cell in by_value.items()}
            lines.append(c.Line([f"{c.label(name, backend)} over {reference}", *[k] * has_k], ratios))
    for (name, k), rows in by_key(reported, lambda row: (row["method"], k_of(row))).items():
        values = c.printed(rows, lambda row: _value(row, varies), lambda row: "{value} ({low}–{high})".format(**row))
        lines.append(c.Line([f"paper: {name}", *[k] * has_k], values))
    columns = sorted({_value(cell, varies) for cell in [*cells, *reported]}, key=_size)
    counts = sorted({len(cell["seconds"]) for cell in cells if cell["seconds"]})
    notes = [
        f"Ours: {_fixed(cells, varies)}; medians (5–95 %) of {' or '.join(map(str, counts)) or 'no'} tests, the same "
        "random tests of one generated data set for all, taken in turns after a cold run each. "
        f"Paper: {_fixed(reported, varies)}; 20 tests.",
        "A time is that from the samples in host memory to the p-value in host memory.",
        *(["adaptive: k_CMI = 0.2 n."] if any(cell["k_rule"] == "adaptive" for cell in cells) else []),
        *_places(tests),
        *(f"{CITED}, {line}." for line in c.hardware(reported)),
        c.RATIOS,
    ]
    named = {value: f"{DIMENSIONS[varies]} = {value}" for value in columns}
    number = 1 + list(DIMENSIONS).index(varies)
    title = f"Single tests over {DIMENSIONS[varies]} (GPU-CMIknn, Tables {number} and {number + 5})"
    return c.of_lines(title, ["seconds", *["k_CMI"] * has_k], named, lines, notes, left=(0,))


def _value(cell: Mapping[str, Any], dimension: str) -> str:
    """Return a dimension of a cell of ours or of a row of the paper, as text."""
    return "adaptive" if dimension == "k_cmi" and cell["k_rule"] != "fixed" else f"{cell[dimension]}"


def _size(value: str) -> float:
    """Return what orders values of a dimension: an adaptive one comes after all numbers."""
    return math.inf if value == "adaptive" else float(value or 0)


def _cell(cell: Timed) -> c.Cell:
    """Return the median of the seconds of the tests that were made with their percentiles, or the cell's status."""
    names = ("implementation", "method", "backend", "k_rule", *DIMENSIONS)
    row = {"source": "ours", **{name: cell[name] for name in names}}
    if cell["seconds"]:
        # Tables 6 to 9 have these quantiles of the tests of Tables 1 to 4.
        low, middle, high = map(float, np.quantile(cell["seconds"], (0.05, 0.5, 0.95)))
        row |= {"seconds": middle, "low_s": low, "high_s": high}
        text = f"{c.number(middle)} ({c.number(low)}–{c.number(high)})" + (f" {STALE}" if cell.get("stale") else "")
    else:
        text = f"DNF (> {c.number(cell['limit_s'])})" if cell["status"] == "timeout" else c.status_word(cell["status"])
    rest = {name: cell[name] for name in ("cold_s", "limit_s", "status")}
    return c.Cell(text, {**row, **rest, "tests": len(cell["seconds"])})


def _ratio(slow: Timed | None, fast: Timed) -> c.Cell:
    """Return the speedup over the reference; a limit is no bound, since it holds for all tests together."""
    if slow is None or not (slow["seconds"] and fast["seconds"]):
        return c.Cell("–")
    return c.Cell(str(c.Speedup(float(np.median(slow["seconds"]) / np.median(fast["seconds"])))))


def _fixed(cells: Sequence[Mapping[str, Any]], varies: str) -> str:
    """Return the values of the dimensions that do not vary, except k."""
    names = [name for name in DIMENSIONS if name not in (varies, "k_cmi")]
    return c.stated((DIMENSIONS[name], sorted({int(cell[name]) for cell in cells})) for name in names)


def _places(timed: Mapping[str, Any]) -> list[str]:
    """Return notes on the machine of each implementation, on the mark of stale times, and on why cells have no time."""
    notes, cells = [], timed["cells"]
    done = [cell for cell in cells if cell["status"] == "ok"]
    for backend, facts in timed["environments"].items():
        names = dict.fromkeys(c.label(cell["implementation"]) for cell in done if cell["backend"] == backend)
        where = machine_name(facts, backend, 1 if backend == "cpu" else facts["threads"])
        notes.append(f"{' / '.join(names) or 'nothing'}: {where}, commit {commit_name(facts) or 'unknown'}.")
    notes += [c.STALE_NOTE] * any(cell.get("stale") for cell in done)
    failed = [cell for cell in cells if cell["why"] and cell not in done]
    reasons = grouped((cell["why"], c.label(cell["implementation"])) for cell in failed)
    return notes + [f"{' / '.join(names)}: {why}" for why, names in reasons.items()]


# --- claims ----------------------------------------------------------------------------------------------------------
SINGLE, PARALLEL = "gpucmiknn-single", "gpucmiknn-parallel"
INSERTION = {"selection": "insertion"}  # the parameter that selects the paper's way to find the k-th nearest neighbour


class Adaptive(float):
    """The k_CMI that the paper calls adaptive, 0.2 n, among fixed ones: it has a name and follows all numbers."""

    def __format__(self, _: str) -> str:
        return "adaptive"


ADAPTIVE = Adaptive("inf")


@dataclasses.dataclass(frozen=True)
class TimedTests:
    """The single tests of one implementation with one k_CMI, perm, |S| and n, in the place of a run on a data set; the
    median seconds over the tables that have the case, of those tests that were made within the time limit."""

    method: str
    params: Mapping[str, Any]
    setting: str
    dataset: str
    size: q.Size
    status: str
    median: float | None
    separating_sets: str = ""

    @property
    def counts(self) -> bool:
        return self.median is not None


def timed_tests(every_test: Iterable[Mapping[str, Any]]) -> list[TimedTests]:
    """Return the single tests of all tables, without those that were measured twice."""
    every = []
    for cell in (cell for its in every_test for cell in its["cells"]):
        size = {symbol: cell[name] for name, symbol in DIMENSIONS.items()}
        size |= {"k_CMI": ADAPTIVE} if cell["k_rule"] == "adaptive" else {}
        setting = f"{'CPU' if cell['method'] == REFERENCE else 'GPU'} test"
        case = f"({', '.join(f'{symbol} = {value:,}' for symbol, value in size.items())})"
        median = float(np.median(cell["seconds"])) if cell["seconds"] else None
        every.append(TimedTests(cell["method"], cell["params"], setting, case, size, cell["status"], median))
    found = []
    for tests in by_key(every, lambda test: str([test.method, test.params, test.size])).values():
        times = [test.median for test in tests if test.median is not None]
        found.append(dataclasses.replace(tests[0], median=float(np.median(times)) if times else None))
    return found


CPU, GPU = q.seconds(REFERENCE), q.seconds(SINGLE)


def case_of(*ks: float) -> Callable[[TimedTests], q.Size | None]:
    """Return a function that describes a case if its k_CMI is one of these, or every case if none is passed."""
    return lambda test: test.size if not ks or test.size["k_CMI"] in ks else None


def of_tests(quantity: q.Quantity) -> q.Quantity:
    return lambda evidence, datasets: quantity(evidence.tests, datasets)


def gain(chosen: q.Chosen, reduce: q.Reduce | None = None) -> q.Quantity:
    """Return how many times faster the GPU's test is in each chosen case; with `reduce`, one number of them."""
    return of_tests(q.by_size(case_of(), q.ratio(CPU, GPU), chosen, reduce))


def grown(who: str, axis: str, compute: q.Compute, *ks: float) -> q.Quantity:
    """Return what `compute` makes of the series over one dimension, for each k_CMI that is passed."""
    measure = {"CPU": CPU, "GPU": GPU}[who]
    series = {f"{who} test at k_CMI = {k}": (case_of(k), measure) for k in ks}
    return of_tests(q.along(axis, series or {f"{who} test": (case_of(), measure)}, compute))


def over_k(size: q.Size) -> bool:
    """Return whether a case belongs to Table 1, the only table that varies k_CMI and not the set."""
    return size["k_CMI"] != ADAPTIVE and (size["|S|"], size["n"], size["perm"]) == (1, 1000, 100)


def changed(first: int, last: float) -> q.Quantity:
    """Return the median changes of the SHD in Fig. 1 at each k_CMI in a range."""

    def quantity(evidence: q.Evidence, datasets: Sequence[str]) -> q.Numbers:
        medians = {k: float(np.median(of_k)) for k, of_k in evidence.changes.items() if first <= k <= last}
        graphs = sorted({len(evidence.changes[k]) for k in medians})
        where = f"{' to '.join(map(str, graphs))} graphs, k_CMI = {', '.join(map(str, medians))}"
        return q.Numbers({where: list(medians.values())}) if medians else q.Numbers({}, {"Fig. 1": "not in this run"})

    return quantity


def graph(run: VerifiedRecord) -> q.Size | None:
    facts = run.problem
    return facts and {"N": facts["n_variables"], "k_CMI": facts["k_cmi"], "n": facts["n_samples"]}


def graph_at_7(run: VerifiedRecord) -> q.Size | None:
    size = graph(run)
    return size if size and size["k_CMI"] == 7 else None


def with_k(*ks: float) -> q.Chosen:
    return lambda size: size["k_CMI"] in ks


def elsewhere(evidence: q.Evidence, dataset: str) -> float:
    """Return the seconds of tigramite with one worker on another machine."""
    if dataset not in evidence.elsewhere:
        raise q.Missing("tigramite with one worker not measured")
    return evidence.elsewhere[dataset]


CPU_8 = q.seconds(REFERENCE, workers=8)
OVER_ELSEWHERE = q.ratio(elsewhere, q.seconds(PARALLEL))
PARALLEL_OVER_SINGLE = q.ratio(q.seconds(SINGLE), q.seconds(PARALLEL))


QUANTITIES: dict[str, q.Quantity] = {
    "test-range": gain(over_k),
    "test-up-to-352": gain(lambda size: over_k(size) and size["k_CMI"] <= 50, max),
    "test-k-500": gain(with_k(500)),
    "test-k-500-at-most": gain(with_k(500)),
    "cpu-over-k": grown("CPU", "k_CMI", q.percent_growth(7, 500)),
    "gpu-over-k": grown("GPU", "k_CMI", q.growth(7, 500)),
    "drop-after-50": grown("GPU", "k_CMI", q.growth(50, 75)),
    "cpu-over-permutations": grown("CPU", "perm", q.growth(50, 1000), 200),
    "gpu-over-permutations": grown("GPU", "perm", q.growth(50, 1000), 7, 20),
    "gpu-over-permutations-200": grown("GPU", "perm", q.growth(50, 1000), 200),
    "cpu-over-sets": grown("CPU", "|S|", q.percent_growth(1, 5), 200),
    "gpu-over-sets": grown("GPU", "|S|", q.growth(1, 5), 7, 20, 200),
    "gpu-quadratic": grown("GPU", "n", q.per_doubling(2500, 10_000), 7, 20),
    "gain-to-1000": gain(lambda size: size["n"] <= 1000 and size["k_CMI"] in (7, 20, ADAPTIVE)),
    "gain-from-2500": gain(lambda size: size["n"] >= 2500 and size["k_CMI"] in (7, 20), max),
    "adaptive-loss": of_tests(
        q.by_size(case_of(), q.ratio(GPU, CPU), lambda size: size["n"] == 10_000 and size["k_CMI"] == ADAPTIVE)
    ),
    "cpu-8": q.by_size(graph, q.ratio(CPU, CPU_8), with_k(7, 20)),
    "cpu-8-at-200": q.quotient(*(q.by_size(graph, q.ratio(elsewhere, CPU_8), with_k(k)) for k in (200, 7))),
    "parallel-up-to-1000": q.by_size(graph, q.reaching(1000, PARALLEL, REFERENCE), reduce=max),
    "parallel-up-to-240": q.by_size(graph, q.reaching(240, PARALLEL, REFERENCE, workers=8), reduce=max),
    "parallel-up-to-3": q.by_size(graph, PARALLEL_OVER_SINGLE, reduce=max),
    "parallel-over-single": q.by_size(graph, PARALLEL_OVER_SINGLE, with_k(7, 20)),
    "parallel-at-200": q.by_size(graph, PARALLEL_OVER_SINGLE, with_k(200)),
    "cpu-8-similar-at-200": q.by_size(graph, q.ratio(CPU_8, q.seconds(PARALLEL)), with_k(200)),
    "parallel-over-N": q.along("N", {"Parallel over tigramite": (graph_at_7, OVER_ELSEWHERE)}, q.growth(10, 30)),
    "shd-up-to-30": changed(BASE + 1, 30),
    "shd-up-to-75": changed(31, 75),
    "shd-from-100": changed(100, math.inf),
}


def cmiknn_claims(
    runs: Runs, problems: Facts, every_test: Facts, factors: CsvRows, reported: CsvRows, notes: Sequence[str]
) -> Table:
    """Return the claims about the searches of section 5.3 and the single tests of section 5.2.

    If Parallel was measured with insertion, the paper's selection, on at least one data set, insertion stands for the
    paper's methods on every data set; otherwise their default does. No number therefore compares the two selections.
    """
    of_fig1, others = ([run for run in runs if run.dataset.endswith(OF_FIG1) is it] for it in (True, False))
    _, changes = shd_changes(of_fig1, problems)
    published = any(run.method == PARALLEL and INSERTION.items() <= run.params.items() for run in others)
    selection = INSERTION if published else {"selection": "auto"}
    selected = {SINGLE: [selection], PARALLEL: [selection], REFERENCE: [SINGLE_THREADED]}
    tests = q.Evidence(timed_tests(every_test), {SINGLE: [INSERTION], REFERENCE: [SINGLE_THREADED]})
    of_tigramite = [row for row in factors if row["peer"] == REFERENCE]
    seconds = {row["dataset"]: (float if row["edges"] else c.AtLeast)(row["peer_cpu_s"]) for row in of_tigramite}
    evidence = q.Evidence(others, selected, tests=tests, changes=changes, elsewhere=seconds)
    return table_of("GPU-CMIknn", reported, QUANTITIES, evidence, notes)
