"""The tables, each as a CSV (plain numbers), Markdown, and HTML for the report."""

from __future__ import annotations

import csv
import dataclasses
import html
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from gpupc_impl.reporting.measured import (
    Measured,
    datasets_of,
    device_backends,
    find,
    geometric_mean,
    label,
    number,
    on_backend,
    speedup,
    status_word,
)

VERIFICATION_MARKS = {"random": " ~", "near-threshold": " ≈", "convention": " ≈", "unexplained": " ✗"}


@dataclasses.dataclass(frozen=True)
class Table:
    """A table ready to be written.

    Attributes:
        title: one line.
        header, rows: what Markdown and HTML show.
        notes: sentences below it: what was measured where, what the marks mean, why something is missing.
        plain: rows for the CSV.
        left: the columns that hold text.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str]
    plain: Sequence[Mapping[str, Any]]
    left: Sequence[int] = (0, 1)

    def write(self, csv_path: str | Path, md_path: str | Path, html_path: str | Path) -> None:
        with open(csv_path, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(self.plain[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.plain)
        Path(md_path).write_text(self.markdown(), encoding="utf-8")
        Path(html_path).write_text(self.html(), encoding="utf-8")

    def markdown(self) -> str:
        lines = [self.header, ["---"] * len(self.header), *self.rows]
        table = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
        return f"**{self.title}**\n\n{table}\n\n" + "".join(f"- {note}\n" for note in self.notes)

    def html(self) -> str:
        classes = [""] * len(self.header)
        for column in self.left:
            long = any(len(row[column]) > 30 for row in self.rows)
            classes[column] = f' class="text{" long" if long else ""}"'

        def line(cells: Sequence[str], tag: str) -> str:
            pairs = zip(cells, classes, strict=True)
            return "<tr>" + "".join(f"<{tag}{name}>{html.escape(cell)}</{tag}>" for cell, name in pairs) + "</tr>"

        body = "\n".join(line(row, "td") for row in self.rows)
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in self.notes)
        return _HTML.format(title=html.escape(self.title), head=line(self.header, "th"), body=body, notes=notes)


_HTML = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 13px/1.4 system-ui, sans-serif; margin: 1.5em; color: #111; background: #fff; }}
h1 {{ font-size: 1.2em; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .25em .6em; text-align: right; border-bottom: 1px solid #ddd; white-space: nowrap; }}
th {{ border-bottom: 2px solid #111; vertical-align: bottom; white-space: normal; }}
.text {{ text-align: left; }}
.long {{ white-space: normal; overflow-wrap: anywhere; min-width: 18em; max-width: 30em; }}
tr:hover td {{ background: #f4f6f8; }}
ul {{ padding-left: 1.2em; max-width: 60em; color: #444; overflow-wrap: anywhere; }}
</style></head><body><h1>{title}</h1>
<table><thead>{head}</thead><tbody>
{body}
</tbody></table><ul>{notes}</ul></body></html>
"""


# --- cuPC, Table 1 ---------------------------------------------------------------------------------------------------


def cupc_table1(problems: Iterable[Mapping[str, Any]], reported: Iterable[Mapping[str, str]]) -> Table:
    """The data sets: shapes as the paper states them beside ours, source and licence, and why one is missing.

    Args:
        problems: the facts that `prepare_problem` wrote for each data set.
        reported: rows of results/reported/cupc_table1.csv.
    """
    paper = {row["dataset"]: row for row in reported}
    plain, rows, reasons = [], [], []
    for facts in problems:
        theirs = paper.get(facts["name"], {})
        ours = facts if facts["available"] else {"n_variables": None, "n_samples": None}
        plain.append(
            {
                "dataset": facts["name"],
                "available": facts["available"],
                "variables": ours["n_variables"],
                "samples": ours["n_samples"],
                "variables_reported": theirs.get("variables"),
                "samples_reported": theirs.get("samples"),
                "alpha": facts["alpha"],
                "source": facts.get("source") or facts.get("url"),
                "licence": facts.get("licence"),
                "citation": facts.get("citation"),
                "note": facts.get("note"),
                "sha256": facts.get("sha256"),
                "why_not": facts["why"],
            }
        )
        rows.append(
            [
                theirs.get("label", facts["name"]),
                "available" if facts["available"] else "not available",
                _count(ours["n_variables"]),
                _count(theirs.get("variables")),
                _count(ours["n_samples"]),
                _count(theirs.get("samples")),
                facts.get("licence") or "–",
                facts.get("source") or facts.get("url") or "–",
            ]
        )
        if facts["why"]:
            reasons.append(facts["why"])
    header = ["data set", "status", "n", "n (paper)", "m", "m (paper)", "licence", "source"]
    notes = ["n: variables; m: samples. Paper: cuPC (doi:10.1109/TPDS.2019.2939126), Table 1.", *reasons]
    if reasons:
        notes.append("To try the network again: snakemake --forcerun fetch_dataset")
    return Table("Data sets (cuPC, Table 1)", header, rows, notes, plain, left=(0, 1, 6, 7))


def _count(value: Any) -> str:
    return "–" if value in (None, "") else f"{int(value):,}"


# --- cuPC, Table 2 ---------------------------------------------------------------------------------------------------

SERIAL, PARALLEL = "stable-serial", "stable-parallel"

RUNTIMES = (("T1", None), ("T2", PARALLEL), ("T3", SERIAL), ("T4", "cupc-e"), ("T5", "cupc-s"))
"""The paper's rows, and the settings of ours beside them."""

SPEEDUPS = (("T1/T2", SERIAL, PARALLEL), ("T3/T4", SERIAL, "cupc-e"), ("T3/T5", SERIAL, "cupc-s"))


def cupc_table2(measured: Sequence[Measured], reported: Sequence[Mapping[str, str]]) -> Table:
    """Runtimes and speedups as in the paper's Table 2, ours above the reported ones.

    Args:
        reported: rows of results/reported/cupc_table2.csv.
    """
    datasets = datasets_of(measured)
    named = {m.dataset for m in measured}
    paper = {(row["symbol"], row["dataset"]): row["value"] for row in reported}
    about = {row["symbol"]: row for row in reported}
    rows, plain = [], []

    def add(symbol: str, who: str, source: str, cells: Sequence[str], mean: str) -> None:
        if {*cells, mean} != {"–"}:
            rows.append([symbol if "/" in symbol else f"{symbol}, s", f"{source}: {who}", *cells, mean])

    def add_reported(symbol: str) -> None:
        row = about[symbol]
        values = [paper.get((symbol, dataset)) for dataset in datasets]
        mean = paper.get((symbol, "geometric mean"))
        cells = ["–" if value is None else f"{Decimal(value):,}" for value in values]
        add(
            symbol,
            f"{row['method']}, {row['hardware']}",
            "paper",
            cells,
            "–" if mean is None else f"{Decimal(mean):,} (6)",
        )
        for (name, dataset), value in paper.items():
            if name == symbol and (dataset in named or dataset == "geometric mean"):
                plain.append(_plain(symbol, "reported", row["method"], "", row["hardware"], dataset, value))

    for symbol, setting in RUNTIMES:
        for backend, group in _groups(measured, setting):
            cells = [find(group, dataset=dataset, setting=setting) for dataset in datasets]
            where = f" ({backend})" if backend != "cpu" else ""
            add(symbol, label(setting) + where, "ours", [time_cell(cell) for cell in cells], "–")
            plain += [
                _plain(symbol, "ours", setting, backend, m.machine, m.dataset, m.median, m.low, m.high, m)
                for m in cells
                if m
            ]
        add_reported(symbol)
    for symbol, slow, fast in SPEEDUPS:
        for backend, group in _groups(measured, fast):
            pairs = [(find(group, dataset=d, setting=slow), find(group, dataset=d, setting=fast)) for d in datasets]
            ratios = [speedup(*pair) for pair in pairs]
            cells = [str(ratio) + mark(*pair) for ratio, pair in zip(ratios, pairs, strict=True)]
            mean, count = mean_speedup(group, slow, fast)
            where = f" ({backend})" if backend != "cpu" else ""
            add(symbol, f"{label(fast)}{where} over {label(slow)}", "ours", cells, _mean(mean, count))
            for ratio, (_, candidate) in zip(ratios, pairs, strict=True):
                if candidate:
                    plain.append(
                        _plain(symbol, "ours", fast, backend, candidate.machine, candidate.dataset, ratio.value)
                        | {"bound": ratio.bound, "status": candidate.status, "verification": candidate.verification}
                    )
            plain.append(
                _plain(symbol, "ours", fast, backend, "", "geometric mean", mean) | {"datasets_in_mean": count}
            )
        add_reported(symbol)
    header = ["", "runtime, speedup", *datasets, "geometric mean (data sets)"]
    notes = [
        "Ours: median of the warm runs, with their 20–80 % band where there are several; from the correlation matrix "
        "in host memory to the skeleton and its separating sets in host memory.",
        *places(measured),
        "Geometric means of cuPC-E and cuPC-S are over the data sets on which both and the serial reference finished "
        "with a verified skeleton, their number in parentheses; ours of T1/T2 likewise, with our serial reference for "
        "T1. The paper's hardware is not ours: compare ratios, not times.",
        *remarks(measured, {SERIAL, PARALLEL, "cupc-e", "cupc-s"}),
        "Paper: cuPC (doi:10.1109/TPDS.2019.2939126), Table 2.",
    ]
    return Table("Runtimes and speedups (cuPC, Table 2)", header, rows, notes, plain)


def mean_speedup(group: Sequence[Measured], slow: str, fast: str) -> tuple[float | None, int]:
    """Geometric mean over the data sets that the whole comparison finished, and their number."""
    compared = {slow, fast} | ({"cupc-e", "cupc-s"} if device_backends(group) else set())
    ratios = []
    for dataset in datasets_of(group):
        found = {setting: find(group, dataset=dataset, setting=setting) for setting in compared}
        if all(m is not None and m.counts for m in found.values()):
            ratios.append(found[slow].median / found[fast].median)
    return geometric_mean(ratios), len(ratios)


def _groups(measured: Sequence[Measured], setting: str | None) -> list[tuple[str, list[Measured]]]:
    """What may stand in one row: by backend, the references beside each."""
    backends = sorted({m.backend for m in measured if m.setting == setting})
    return [(backend, on_backend(measured, backend)) for backend in backends]


def _plain(
    symbol: str,
    source: str,
    method: str,
    backend: str,
    machine: str,
    dataset: str,
    value: float | str | None,
    low: float | None = None,
    high: float | None = None,
    measured: Measured | None = None,
) -> dict[str, Any]:
    return {
        "symbol": symbol,
        "source": source,
        "method": method,
        "backend": backend,
        "machine": machine,
        "dataset": dataset,
        "value": value,
        "low": low,
        "high": high,
        "bound": "",
        "status": measured.status if measured else "",
        "verification": measured.verification if measured else "",
        "datasets_in_mean": "",
    }


def time_cell(m: Measured | None) -> str:
    if m is None:
        return "–"
    if m.status == "timeout":
        return f"> {number(m.limit)} †"
    if m.median is None:
        return status_word(m)
    band = f" ({number(m.low)}–{number(m.high)})" if m.repeats > 1 else ""
    return f"{number(m.median)}{band}{mark(m)}"


def mark(*measured: Measured | None) -> str:
    """What a cell carries when the verification of one of its numbers is not ``equal``."""
    marks = {VERIFICATION_MARKS.get(m.verification, "") for m in measured if m is not None and m.median is not None}
    return max(marks, default="")


def _mean(mean: float | None, count: int) -> str:
    return "–" if mean is None else f"{number(mean)}× ({count})"


def places(measured: Sequence[Measured]) -> list[str]:
    """What ran where: a note a backend."""
    notes = []
    for backend in [*device_backends(measured), "cpu"]:
        settings: dict[str, dict[str, None]] = {}
        for m in measured:
            if m.backend == backend and m.median is not None:
                settings.setdefault(m.machine, {})[m.setting] = None
        if settings:
            places = "; ".join(f"{machine} ({', '.join(names)})" for machine, names in settings.items())
            notes.append(f"{'CPU references' if backend == 'cpu' else f'Backend {backend}'}: {places}.")
    return notes


def remarks(measured: Iterable[Measured], settings: set[str]) -> list[str]:
    """The marks that were used, and why a setting has no time."""
    chosen = [m for m in measured if m.setting in settings]
    used = {m.verification for m in chosen if m.median is not None}
    notes = []
    if any(m.status == "timeout" for m in chosen):
        notes.append("† A time limit was reached: the number is a bound, and enters no mean.")
    if used & {"near-threshold", "convention"}:
        notes.append("≈ The skeleton differs from the reference's in explained edges; see verification.csv.")
    if "random" in used:
        notes.append("~ Its tests draw random numbers of their own, and its skeleton differs from the reference's.")
    if "unexplained" in used:
        notes.append("✗ The skeleton differs from the reference's without an explanation; see verification.csv.")
    reasons: dict[tuple[str, str], list[str]] = {}
    for m in chosen:
        if m.median is None and m.why:
            reasons.setdefault((f"{m.dataset} {status_word(m)}", m.why), []).append(m.setting)
    return notes + [f"{where}: {', '.join(settings)}: {why}" for (where, why), settings in reasons.items()]


# --- every setting on every data set ---------------------------------------------------------------------------------


def methods_by_dataset(measured: Sequence[Measured]) -> Table:
    """Every setting on every data set: time, edges, tests, verification."""
    rows, plain = [], []
    for m in measured:
        rate = m.tests / m.median if m.median and m.tests is not None else None
        plain.append(dataclasses.asdict(m) | {"tests_per_s": rate})
        rows.append(
            [
                m.dataset,
                m.setting,
                m.backend,
                time_cell(m),
                "–" if m.cold is None else number(m.cold),
                str(m.repeats or "–"),
                _count(m.edges),
                _count(m.levels),
                _count(m.tests),
                "–" if rate is None else f"{number(rate / 1e6)} M" if rate >= 1e5 else number(rate),
                m.verification,
            ]
        )
    header = ["data set", "setting", "backend", "seconds (20–80 %)", "cold s", "runs", "edges", "levels"]
    header += ["tests", "tests/s", "verification"]
    notes = [
        "Seconds: median of the warm runs. Cold: the first run of a fresh process, compilation included.",
        *places(measured),
        *remarks(measured, {m.setting for m in measured}),
    ]
    return Table("Every setting on every data set", header, rows, notes, plain, left=(0, 1, 2, 10))


# --- where the records come from -------------------------------------------------------------------------------------


def provenance(records: Sequence[Mapping[str, Any]]) -> Table:
    """The machine, the software and the code behind the records: a row a fact, one column a distinct environment."""
    environments: dict[str, dict[str, str]] = {}
    warnings: dict[str, None] = {}
    for record in records:
        if record["status"] == "skipped":
            continue
        facts = _flat(record["environment"])
        warnings |= dict.fromkeys(record["environment"]["warnings"])
        environments.setdefault(str([record["backend"], facts]), {"backend": record["backend"], **facts})
    names = list(dict.fromkeys(name for facts in environments.values() for name in facts))
    rows = [[name, *(facts.get(name, "–") for facts in environments.values())] for name in names]
    header = ["fact", *(facts["backend"] for facts in environments.values())]
    notes = [f"Warning: {warning}." for warning in warnings]
    plain = [{"fact": row[0], **{f"{n}": value for n, value in enumerate(row[1:])}} for row in rows]
    return Table("Machine, software and code", header, rows, notes, plain or [{"fact": ""}], left=range(len(header)))


def _flat(facts: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested facts by dotted name, as text."""
    found: dict[str, str] = {}
    for name, value in facts.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{name}.")
        elif name != "warnings":
            found[prefix + name] = "–" if value is None else str(value)
    return found
