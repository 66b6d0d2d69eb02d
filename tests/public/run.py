"""Searches public tables as their authors wrote them, and compares the graphs with searches beside.

``python -m tests.public.run [NAME ...]`` downloads the tables that `tables.yaml` names, unless they are in the cache or
in a mirror folder, and searches each file as a user would. Beside it, pandas reads the file with options that are right
for it, and causal-learn searches what it read (for mixed tables, which it cannot search, the same method does). The
edges must be equal, and as many as they were found to be.
"""

import argparse
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from datasets import DatasetUnavailable
from datasets.fetch import fetch
from gpupc_impl import Skeleton, skeleton

TABLES = Path(__file__).with_name("tables.yaml")
ALPHA = 0.01
DEEPEST = 3
"""The largest level, which keeps causal-learn's search within seconds."""

BESIDE = {"gaussian": "causal-learn", "discrete": "causal-learn-discrete", "mixed": "auto"}
"""The method of the search beside, by family."""

READING = ("missing", "missing_values", "decimal", "delimiter", "encoding", "row_names")
"""The options of a search that are about the file."""


def check(name: str, table: Mapping[str, Any], offline: bool = False) -> tuple[str, list[str]]:
    """Search a table twice; returns a line about what was found, and the faults.

    Raises:
        DatasetUnavailable: the file cannot be had.
    """
    entry, expected = {key: value for key, value in table.items() if key != "check"}, table["check"]
    path = fetch(name, offline=offline, spec=entry)
    options = {"max_level": DEEPEST, "family": entry["family"], **expected["search"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about whole numbers and dropped rows, which the options take into account
        found = skeleton(path, ALPHA, **options)
        frame = pd.read_csv(path, **expected["pandas"]).dropna()
        about_data = {key: value for key, value in options.items() if key not in READING}
        beside = skeleton(frame, ALPHA, **about_data, method=BESIDE[entry["family"]])
    shape = found.problem.n_samples, found.problem.n_variables
    right = {
        "samples x variables": (shape, (entry["samples"], entry["variables"])),
        "variables": (found.names, tuple(frame.columns)),
        "edges": (found.n_edges, expected["edges"]),
        "edges of the search beside": (edges(found), edges(beside)),
    }
    faults = [f"{what}: {found}, not {right}" for what, (found, right) in right.items() if found != right]
    return f"{found.reading['table']}; {found.n_edges} edges", faults


def edges(found: Skeleton) -> list[tuple[str, str]]:
    return [(found.names[i], found.names[j]) for i, j in np.argwhere(np.triu(found.adjacency))]


def main(argv: Sequence[str] | None = None, tables: Path = TABLES) -> int:
    """Check tables; returns 0 if all are right, 1 if one is not, and 2 if one cannot be had."""
    entries = yaml.safe_load(tables.read_text(encoding="utf-8"))
    parser = argparse.ArgumentParser(prog="python -m tests.public.run", description=__doc__.splitlines()[0])
    parser.add_argument("names", metavar="NAME", nargs="*", help=f"{', '.join(entries)} (default: all)")
    parser.add_argument("--offline", action="store_true", help="take files from the cache and from mirror folders only")
    args = parser.parse_args(argv)
    if unknown := [name for name in args.names if name not in entries]:
        parser.error(f"no table is called {unknown[0]!r}; choose from {', '.join(entries)}")
    status = 0
    for name in args.names or entries:
        try:
            line, faults = check(name, entries[name], args.offline)
        except DatasetUnavailable as unavailable:
            print(f"{name}: {unavailable}", file=sys.stderr)
            status = status or 2
            continue
        print(f"{name}: {'WRONG' if faults else 'right'}: {line}", *faults, sep="\n  ")
        status = 1 if faults else status
    return status


if __name__ == "__main__":
    sys.exit(main())
