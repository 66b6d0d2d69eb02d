"""The command ``records`` publishes the runs of a workflow, merges the runs of several machines, and checks them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpupc_impl.cli.output import UsageError, visible

ACTIONS = {
    "publish": (
        "bring the results of a workflow into a folder of published runs",
        "Bring the results of a workflow into a folder of published runs, such as results/recorded/nvidia-h100, which "
        "is made where it does not exist; the default is RESULTS/recorded/DEVICE, with the device's own name. Tables "
        "and figures show published runs beside those of the machine that makes them. A run replaces the published one "
        "of the same setting on the same data set; others stay. A workflow that was cut off can be published too. "
        "Names of a cluster's nodes are left out.",
    ),
    "merge": (
        "merge the runs of several machines into one folder",
        "Merge results of workflows and folders of published runs into one new folder of published runs. What two of "
        "them hold differently under one name is a conflict: it is named, and nothing is written without --prefer.",
    ),
    "check": (
        "check folders of published runs",
        "Check folders of published runs before they are committed, by default all of results/recorded: records fit "
        "their schema, their machines and data sets are there, every run names its commit, no run stands twice, lines "
        "are sorted and compact, and no host name, home folder or e-mail address is told. On the same problem, runs of "
        "the closed division have the same answer in all of the folders (docs/submit.md). With --current, runs whose "
        "code has changed since they were measured are faults too.",
    ),
}
"""The summary and the description of each action."""

RECORDED = Path("results/recorded")
"""The project's folder of published folders, from its root."""

PREFERENCES = ("newest", "first")
"""The rules of `measurement.publish.PREFERENCES`, which is not imported to parse a command line."""


def add_parser(commands: argparse._SubParsersAction[Any]) -> None:
    """Add the command to a parser's commands."""
    summary = "publish, merge and check the records of measurements"
    actions = commands.add_parser("records", help=summary, description=summary).add_subparsers(
        metavar="ACTION", dest="action", required=True
    )
    parsers = {
        name: actions.add_parser(name, help=summary, description=description)
        for name, (summary, description) in ACTIONS.items()
    }
    parsers["publish"].add_argument("results", metavar="RESULTS", type=Path, help="the folder results of a workflow")
    parsers["publish"].add_argument(
        "into",
        metavar="INTO",
        type=Path,
        nargs="?",
        help="the folder of published runs (default: RESULTS/recorded/DEVICE)",
    )
    parsers["merge"].add_argument(
        "folders", metavar="FOLDER", type=Path, nargs="+", help="results of a workflow, or a folder of published runs"
    )
    parsers["merge"].add_argument("into", metavar="INTO", type=Path, help="a new folder, or an empty one")
    parsers["merge"].add_argument(
        "--prefer",
        choices=PREFERENCES,
        help="settle conflicts: take what was measured last, or what the folder that is named first holds",
    )
    parsers["check"].add_argument(
        "folders",
        metavar="FOLDER",
        type=Path,
        nargs="*",
        help="a folder of published runs (default: results/recorded/*)",
    )
    parsers["check"].add_argument(
        "--current", action="store_true", help="every run must be of the present code, as before a release"
    )


def run(args: argparse.Namespace) -> None:
    """Run an action and print a summary of what it did.

    Raises:
        UsageError: nothing was written, or the folder is not as it should be; the message says why.
    """
    from gpupc_impl.measurement.publish import (
        MergeError,
        merge,
        own_folder,
        publish,
    )  # which other commands do not need

    if args.action == "check":
        _check(args.folders, args.current)
        return
    try:
        if args.action == "merge":
            merged = merge(args.folders, args.into, args.prefer)
            for sentence in merged.settled:
                print(visible(sentence))
        else:
            args.into = args.into or own_folder(args.results)
            merged = publish(args.results, args.into)
        for sentence in merged.ignored:
            print(visible(f"not taken over: {sentence}"))
        counts = f"{merged.runs:,} runs, {merged.shared:,} of them alike in several folders"
        if args.action == "publish":
            counts = f"{merged.runs:,} runs, {merged.shared:,} of them as before"
        print(f"written: {args.into}: {counts}")
    except MergeError as error:
        raise UsageError(str(error)) from error


def _check(folders: Sequence[Path], current: bool) -> None:
    """Check folders, each alone and then against the others, and print a line about each.

    Args:
        current: whether all runs must be of the present code.

    Raises:
        UsageError: a folder has faults, answers differ, or `current` is set and the code of a run has changed.
    """
    from gpupc_impl.measurement.checking import check, compare, stale_runs, unknown_origins

    folders = folders or sorted(path.parent for path in RECORDED.glob("*/machines.json"))
    if not folders:
        raise UsageError(f"{RECORDED} has no folder of published runs; name one")
    faults = [f"{folder}: {fault}" for folder in folders for fault in check(folder) or unknown_origins(folder)]
    if not faults:
        agreements, faults = compare(folders)
    if not faults and current:
        faults = [f"{folder}: {fault}" for folder in folders for fault in stale_runs(folder)]
    if faults:
        raise UsageError("\n".join(faults))
    for folder, found in agreements.items():
        divisions = ", ".join(
            f"{count:,} {division or 'without an answer'}" for division, count in found.divisions.items()
        )
        print(f"{folder} is complete and valid: runs: {divisions}")
        if len(folders) > 1:
            print(
                f"  of its {found.problems:,} problems, {found.shared:,} have the same answer in another folder, and "
                f"{found.alike:,} more have it for the same data with other last digits"
            )
