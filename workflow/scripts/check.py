"""Fails if something passed that must not, and says what: an unexplained difference between skeletons or p-values, a
setting that ended with an error or was not run although it misses nothing of its own, or no answer at all. Data sets
that could not be had are named, and fail nothing else."""

import sys
from pathlib import Path

from gpupc_impl.core.files import read_csv, read_json
from gpupc_impl.measurement.record import load_tests
from gpupc_impl.verification.verify import complaints, misses_nothing
from workflow.lib.searches import FAILED

files = snakemake.input
rows = [row for path in files.verification for row in read_csv(path)]
differing = complaints(rows)
facts = [read_json(path) for path in files.facts]
absent = [each["name"] for each in facts if not each["available"]]
searches = [row for row in rows if row["status"] == "not-run" and "setting" in row and row["dataset"] not in absent]
lacking = {(row["dataset"], row["setting"]) for row in searches if misses_nothing(row)}
ended = []
for path in files.outcomes:
    for dataset, settings in read_json(path).items():
        for setting, each in settings.items():
            if each["status"] in FAILED or (each["status"] == "skipped" and (dataset, setting) in lacking):
                ended.append(f"{setting} on {dataset}: {each['status']}: {each['why']}")
for path in files.tests:
    cells = [cell for cell in load_tests(path)["cells"] if cell["status"] in FAILED]
    ended += [f"{cell['implementation']} in {Path(path).stem}: {cell['status']}: {cell['why']}" for cell in cells]
failed = list(dict.fromkeys(ended))

lines = [f"{len(absent)} of {len(facts)} data sets could not be had or used: {', '.join(absent)}"] if absent else []
if differing:
    lines += [f"unexplained differences; see {' and '.join(files.verification)}", *differing]
if failed:
    lines += [f"{len(failed)} settings failed; their records say more:", *failed]
if all(row["status"] in ("not-run", "") for row in rows):
    failed.append("no setting has an answer")
    lines += failed[-1:]
lines += [] if differing or failed else ["every skeleton is verified"]
Path(snakemake.log[0]).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
sys.exit(bool(differing or failed))
