"""Compares the p-values of the single tests that `measurement.single_tests` times."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpupc_impl.measurement.record import load_tests

NAMED_AT_MOST = 5  # the upper bound on the number of differing tests that a row names, which are the first ones

MEASURED = ("implementation", "method", "params", "backend", "code", "random", "status", "why", "limit_s")
SAMPLES = ("cold_s", "seconds", "p_values")
"""The keys of a cell that belong to its measurement. All other keys say which tests were made: they are the *case*."""


def verify_tests(cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each cell, which says whether its p-values are those of the first reference that finished. They
    must be equal, except for methods whose tests draw their own random numbers. A cell is ``alone`` if no other cell of
    its case finished."""
    cases: dict[str, list[Mapping[str, Any]]] = {}
    for cell in cells:
        facts = {name: value for name, value in cell.items() if name not in (*MEASURED, *SAMPLES)}
        cases.setdefault(", ".join(f"{name}={value}" for name, value in facts.items()), []).append(cell)
    return [_compared(case, cell, same) for case, same in cases.items() for cell in same]


def _compared(case: str, cell: Mapping[str, Any], same: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    row = {"dataset": case, "setting": cell["implementation"], "method": cell["method"], "backend": cell["backend"]}
    row |= {"compared_with": "", "status": "not-run", "tests": len(cell["p_values"]), "differing_tests": ""}
    row["detail"] = cell["why"] or ""
    if [other for other in same if other["status"] == "ok"] == [cell]:
        return row | {"status": "alone"}
    finished = [other for other in same if other["status"] == "ok" and not other["random"]]
    reference = min(finished, key=lambda other: other["backend"] != "cpu", default=None)
    if cell["status"] != "ok" or reference is None:
        return row
    pairs = list(zip(cell["p_values"], reference["p_values"], strict=True))
    differing = [f"test {k}: p = {p:g} and {q:g}" for k, (p, q) in enumerate(pairs) if p != q]
    status = "equal" if not differing else "random" if cell["random"] else "unexplained"
    return row | {
        "compared_with": reference["implementation"],
        "status": status,
        "differing_tests": len(differing),
        "detail": "; ".join(differing[:NAMED_AT_MOST]),
    }


def verify_test_files(paths: Iterable[str | Path]) -> list[dict[str, Any]]:
    """Run `verify_tests` on several tables' files; each row has the name of its table."""
    return [{"table": Path(path).stem, **row} for path in paths for row in verify_tests(load_tests(path)["cells"])]
