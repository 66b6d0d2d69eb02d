"""Fails if something passed that must not, and says what: an unexplained difference between skeletons or p-values, or
a setting that ended with an error. Data sets that could not be had are named, and fail nothing."""

import sys
from pathlib import Path

from gpupc_impl.core.files import read_csv, read_json
from gpupc_impl.measurement.record import load_tests
from gpupc_impl.verification.verify import complaints
from workflow.lib.searches import FAILED

files = snakemake.input
differing = [sentence for path in files.verification for sentence in complaints(read_csv(path))]
ended = []
for path in files.outcomes:
    for dataset, settings in read_json(path).items():
        ended += [(f"{setting} on {dataset}", each["status"], each["why"]) for setting, each in settings.items()]
for path in files.tests:
    for cell in load_tests(path)["cells"]:
        ended.append((f"{cell['implementation']} in {Path(path).stem}", cell["status"], cell["why"]))
failed = [f"{what}: {status}: {why}" for what, status, why in dict.fromkeys(ended) if status in FAILED]
absent = [facts["name"] for facts in map(read_json, files.facts) if not facts["available"]]

lines = [f"{len(absent)} data sets could not be had or used: {', '.join(absent)}"] if absent else []
if differing:
    lines += [f"unexplained differences; see {' and '.join(files.verification)}", *differing]
if failed:
    lines += [f"{len(failed)} settings failed; their records say more:", *failed]
lines += [] if differing or failed else ["every skeleton is verified"]
Path(snakemake.log[0]).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
sys.exit(bool(differing or failed))
