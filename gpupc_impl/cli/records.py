"""The command ``records`` publishes the runs of a workflow, merges the runs of several machines, and checks them."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpupc_impl.cli.output import Outcome, UsageError

PUBLISH = (
    "Bring the results of a workflow into a folder of published runs, such as results/recorded/nvidia-h100, which is "
    "made where it does not exist. Tables and figures show published runs beside those of the machine that makes them. "
    "A run replaces the published one of the same setting on the same data set; others stay. A workflow that was cut "
    "off can be published too. Names of a cluster's nodes are left out."
)
MERGE = (
    "Unite results of workflows and folders of published runs in one new folder of published runs. What two of them "
    "hold differently under one name is named, and nothing is written."
)
CHECK = (
    "Check folders of published runs before they are committed: records fit their schema, their machines and data sets "
    "are there, every run names a commit, no run stands twice, lines are sorted and compact, and no host name, home "
    "folder or e-mail address is told. On the same problem, runs of the closed division have the same answer in all "
    "of the folders (docs/submit.md)."
)

RECORDED = Path("results/recorded")


def add_parser(commands: argparse._SubParsersAction[Any]) -> None:
    """Add the command to a parser's commands."""
    summary = "publish, merge and check the records of measurements"
    actions = commands.add_parser("records", help=summary, description=summary).add_subparsers(
        metavar="ACTION", dest="action", required=True
    )
    publish = actions.add_parser("publish", help="bring the results of a workflow into a folder", description=PUBLISH)
    publish.add_argument("results", metavar="RESULTS", type=Path, help="the folder results of a workflow")
    into = "the folder of published runs (default: RESULTS/recorded/DEVICE, with the device's own name)"
    publish.add_argument("into", metavar="INTO", type=Path, nargs="?", help=into)
    merge = actions.add_parser("merge", help="unite the runs of several machines in one folder", description=MERGE)
    folders = "results of a workflow, or a folder of published runs"
    merge.add_argument("folders", metavar="FOLDER", type=Path, nargs="+", help=folders)
    merge.add_argument("into", metavar="INTO", type=Path, help="a new folder, or an empty one")
    check = actions.add_parser("check", help="check folders of published runs", description=CHECK)
    folders = "a folder of published runs (default: results/recorded/*)"
    check.add_argument("folders", metavar="FOLDER", type=Path, nargs="*", help=folders)
    current = "every run must be of the present code, as before a release"
    check.add_argument("--current", action="store_true", help=current)


def run(args: argparse.Namespace) -> Outcome:
    """Run an action and return a summary of what it did."""
    from gpupc_impl.measurement import publish  # which other commands do not need

    if args.action == "check":
        return _check(args.folders, args.current)
    try:
        if args.action == "merge":
            written = publish.merge(args.folders, args.into)
        else:
            args.into = args.into or publish.own_folder(args.results)
            written = publish.publish(args.results, args.into)
    except publish.InvalidFolder as error:
        raise UsageError(str(error)) from error
    lines = [f"not taken over: {sentence}" for sentence in written.left_out]
    lines.append(f"written: {args.into}: {len(written.runs):,} runs")
    data = {"folder": args.into, "runs": len(written.runs), "not_taken_over": list(written.left_out)}
    return Outcome("\n".join(lines), data)


def _check(folders: Sequence[Path], current: bool) -> Outcome:
    """Check folders, each alone and then against the others, and return a line about each.

    Args:
        current: whether all runs must be of the present code.
    """
    from gpupc_impl.measurement.publish import check, differing_answers, stale_runs, unknown_origins
    from gpupc_impl.measurement.published import PublishedRuns

    folders = folders or sorted(path.parent for path in RECORDED.glob("*/machines.json"))
    if not folders:
        raise UsageError(f"{RECORDED} has no folder of published runs; name one")
    faults = [f"{folder}: {fault}" for folder in folders for fault in check(folder) or unknown_origins(folder)]
    faults = faults or differing_answers(folders)
    lines = []
    for folder in folders if current and not faults else ():
        changed, unknown = stale_runs(folder)
        faults += [f"{folder}: {fault}" for fault in changed]
        lines += [f"{folder}: {sentence}" for sentence in unknown]
    if faults:
        raise UsageError("\n".join(faults))
    found = {}
    for published in map(PublishedRuns, folders):
        counts = Counter(published.division(*key) or "without an answer" for key in published)
        divisions = ", ".join(f"{count:,} {division}" for division, count in counts.items())
        lines.append(f"{published.folder} is complete and valid: runs: {divisions}")
        found[str(published.folder)] = dict(counts)
    return Outcome("\n".join(lines), {"valid": found})
