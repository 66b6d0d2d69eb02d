"""What the rules share: the project on the Python path, the config checked, and its plan."""

import dataclasses
import os
import re
import sys
import warnings
from functools import cache, partial
from pathlib import Path

from jinja2 import Environment
from snakemake.exceptions import WorkflowError

ROOT = Path(workflow.basedir)

# Scripts run in processes of their own; they find the project whether or not it is installed.
sys.path.insert(0, str(ROOT))
os.environ.update(PYTHONPATH=os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]))

from gpupc_impl.backends import resolve_backend
from gpupc_impl.measurement.digest import digest
from gpupc_impl.reporting.catalogue import entries
from workflow.lib import job_limits, slices
from workflow.lib.config import complete
from workflow.lib.plan import Plan, records, recorded_folders, recorded_plans
from workflow.lib.problems import makers

try:
    complete(config)
except ValueError as error:
    raise WorkflowError(f"config: {error}") from None

ENVIRONMENT = f"{ROOT}/environment.yml"  # used with `--software-deployment-method conda`, else our own interpreter
with warnings.catch_warnings():
    if not workflow.is_main_process:  # a job a process: what is wrong with the GPU is said once
        warnings.simplefilter("ignore")
    BACKEND = resolve_backend(config["backend"])
config |= {"backend": BACKEND, "recorded": recorded_folders(config)}  # the report says what `auto` and null became
PLAN = Plan(config)
CI_TESTS = config["ci_tests"]


def one_of(names):
    """A regular expression that matches these names, and nothing when there are none."""
    return "|".join(map(re.escape, names)) or "(?!)"


wildcard_constraints:
    dataset=one_of(PLAN.measured),


def code_of(script, entries=(), family=None):
    """Digest of a script that works on data sets: what it imports, their generators and how their family makes problems.

    Of what the script finds by name, other generators and families, nothing counts.
    """
    return digest(f"workflow/scripts/{script}", *makers(entries, family), named=False)


def attempt_of(wildcards, attempt):
    """Which attempt a job is: a cluster's job that was ended is tried again (gpupc_impl/measurement/samples.py)."""
    return attempt


def in_report(path, category, label, caption="output"):
    """A file that stands in the report."""
    return report(path, caption=f"../report/{caption}.rst", category=category, labels={"result": label})


@cache
def recorded():
    """Plans of the recorded runs; reading them takes a while, so only what shows them does."""
    try:
        return recorded_plans(config)
    except ValueError as error:
        raise WorkflowError(f"config: {error}") from None


@cache
def sources_of(entry):
    """What a table or figure is made from: recorded runs first, then this machine's."""
    found = [*(plan.recorded_source(entry) for plan in recorded()), PLAN.source(entry)]
    return list(filter(None, found))


def files_of(entry, wildcards):
    """Its input files: by kind those of this machine, and all recorded ones."""
    sources = sources_of(entry)
    if not sources:
        raise WorkflowError(f"{entry.name}: the config does not measure it, and no recorded runs have it")
    of_others = [path for each in sources if each.recorded for paths in each.files.values() for path in paths]
    here = [each.files for each in sources if not each.recorded]
    return {"recorded": of_others, **(here[0] if here else {})}


def described_sources(entry, wildcards):
    return [dataclasses.asdict(source) for source in sources_of(entry)]


def every_output(wildcards):
    """All files of the tables and figures that anything has the data for."""
    return [path for entry in entries().values() if sources_of(entry) for path in entry.outputs().values()]


def caption_of(entry):
    """What the report says of a table or figure under this config."""
    return Environment().from_string(entry.caption).render(config=config)
