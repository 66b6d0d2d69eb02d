"""The checked config, its plan, and the functions that the rules call."""

import dataclasses
import os
import re
import sys
import uuid
import warnings
from functools import cache
from pathlib import Path

from jinja2 import Environment
from snakemake.exceptions import WorkflowError

ROOT = Path(workflow.current_basedir).parents[1]

# Scripts run in separate processes, which must find the project even if it is not installed.
sys.path.insert(0, str(ROOT))
os.environ.update(PYTHONPATH=os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]))

from gpupc_impl.backends import resolve_backend
from gpupc_impl.measurement.digest import digest
from gpupc_impl.measurement.environment import RUN
from gpupc_impl.reporting.catalogue import entries
from workflow.lib.config import complete
from workflow.lib.jobs import leave_cores_to_measurements, parts_of
from workflow.lib.plan import REFERENCES, Plan, recorded_folders, recorded_plans, shares_of
from workflow.lib.problems import makers
from workflow.lib.searches import resources_of_searches, resources_of_tests
from workflow.lib.single_tests import cases

os.environ.setdefault(RUN, uuid.uuid4().hex)

# A config file named on the command line stands alone: its data sets are not added to the default ones.
if not workflow.overwrite_configfiles:

    configfile: f"{ROOT}/config/config.yaml"


try:
    complete(config)
except ValueError as error:
    raise WorkflowError(f"config: {error}") from None

# This environment is used with `--software-deployment-method conda`; otherwise rules use the current interpreter.
ENVIRONMENT = f"{ROOT}/environment.yml"
with warnings.catch_warnings():
    if not workflow.is_main_process:  # Only the main process warns; otherwise every job on a cluster would warn again.
        warnings.simplefilter("ignore")
    BACKEND = resolve_backend(config["backend"])
# The report shows the values that `auto` and null stand for.
config |= {"backend": BACKEND, "recorded": recorded_folders(config)}
PLAN = Plan(config)
CI_TESTS = config["ci_tests"]
PLAN_FAMILIES = {batch.family for batch in PLAN.batches.values()} | {CI_TESTS["spec"]["family"]}
TIMELINES = PLAN.timelines()
# The data sets whose problem is removed as soon as it has been measured and verified.
LARGE = [graph for experiment in PLAN.experiments.values() if experiment.large for graph in experiment.graphs]
SUMMARY, OUTCOME = Path("logs/check.log"), Path("logs/report_page.log")

# `timing_slot` is the number of jobs that measure at a time: one, which has all cores, or one on each GPU and one that
# measures references (workflow/lib/jobs.py).
CORES = workflow.cores or 1
GPUS = int(getattr(workflow.global_resources.get("timing_slot"), "value", None) or 1) - 1
JOBS_OF = PLAN.jobs(apart=GPUS > 0)
JOBS = {name: job for jobs in JOBS_OF.values() for name, job in jobs.items()}
# The implementations of single tests by the job that times them; the files of several jobs are joined.
FOLDER = "timed" if GPUS else "tests"
TESTS = {FOLDER + end: its for end, its in shares_of(CI_TESTS["implementations"], GPUS > 0).items()}


def is_of_references(wildcards):
    return GPUS > 0 and wildcards.get("job", "").endswith(REFERENCES)


def cores_of(wildcards):
    """Return the number of cores of a measurement. References have so many that no two of their jobs run at a time."""
    if not GPUS:
        return CORES
    parts = parts_of(list(range(CORES)), GPUS)
    return min(CORES, len(parts[GPUS]) + 1) if is_of_references(wildcards) else len(parts[0])


def limits_of(wildcards):
    """Return the minutes and megabytes that a measurement needs on a node of a cluster."""
    job, limits = wildcards.get("job"), (config["timing"], config["limits"], config["cluster"])
    if job is None:
        return resources_of_searches(TIMELINES[wildcards.dataset], 1, 1, *limits)
    if job in JOBS:
        return resources_of_searches(JOBS[job].settings, len(JOBS[job].datasets), JOBS[job].repeats, *limits)
    implementations = TESTS[job].values()
    cells = len(implementations) * sum(len(cases(table)) for table in CI_TESTS["tables"].values())
    longest = max((choice.get("time_limit_s", CI_TESTS["time_limit_s"]) for choice in implementations), default=0)
    return resources_of_tests(cells, len(implementations), longest, *limits[1:])


GPU = int(BACKEND == "cuda")
MEASURING = {
    "timing_slot": 1,
    "gpu": lambda wildcards: GPU * (not is_of_references(wildcards)),
    "references": lambda wildcards: int(is_of_references(wildcards)),
    "slots": GPUS,
    "attempt": lambda wildcards, attempt: attempt,  # A cluster's job that was ended is tried again (samples.py).
    "runtime": lambda wildcards: limits_of(wildcards)["runtime"],
    "mem_mb": lambda wildcards: limits_of(wildcards)["mem_mb"],
}


def one_of(names):
    """Return a regular expression that matches these names, and nothing if there are none."""
    return "|".join(map(re.escape, names)) or "(?!)"


def code_of(script, entry=None, family=False):
    """Return the digest of a script that works on data sets: of its imports, of the data set's generator and, on
    demand, of the modules that prepare the family's problems. Other generators and families, which the script finds by
    name, do not count."""
    own = makers([entry] if entry else [], entry["family"] if family else None)
    return digest(f"workflow/scripts/{script}", *own, named=False)


# --- files -------------------------------------------------------------------------------------------------------------
def matrices_of(datasets):
    """Return the files with the correlation matrices of large problems; none for other problems."""
    return [f"results/problems/{dataset}.npy" for dataset in datasets if dataset in LARGE]


def outcomes_to_verify(wildcards):
    """Return the outcomes of a batch, after those of the family's jobs that measure its references."""
    references = set(PLAN.references(wildcards.batch))
    of_family = JOBS_OF.get(PLAN.batches[wildcards.batch].family, ())
    beside = [job for job in of_family if references.intersection(JOBS[job].keys)]
    return expand("results/outcomes/{job}.json", job=[*beside, *JOBS_OF[wildcards.batch]])


def records_to_verify(wildcards):
    """Return the records of a batch, after those of its references."""
    return list(map(PLAN.record, PLAN.references(wildcards.batch) + PLAN.batches[wildcards.batch].keys))


# --- tables and figures ------------------------------------------------------------------------------------------------
def in_report(path):
    """Mark the file of a table or figure that Snakemake's report includes."""
    return report(
        path,
        caption="../report/output.rst",
        category=lambda wildcards: entries()[wildcards.name].paper,
        labels=lambda wildcards: {"result": entries()[wildcards.name].title},
    )


@cache
def recorded():
    """Return the plans of the recorded runs, whose reading takes a while."""
    try:
        return recorded_plans(config)
    except ValueError as error:
        raise WorkflowError(f"config: {error}") from None


@cache
def sources_of(entry):
    """Return the sources of a table or figure: recorded runs first, then those of this machine."""
    sources = [*(plan.recorded_source(entry) for plan in recorded()), PLAN.source(entry)]
    return list(filter(None, sources))


def files_of(wildcards):
    """Return the input files of a table or figure: those of this machine by kind, and all recorded ones. The records of
    this machine are there as soon as their verification is."""
    sources = sources_of(entries()[wildcards.name])
    if not sources:
        raise WorkflowError(f"{wildcards.name}: the config does not measure it, and no recorded runs have it")
    of_others = [path for each in sources if each.recorded for paths in each.files.values() for path in paths]
    of_machine = [each.files for each in sources if not each.recorded]
    own = {kind: paths for files in of_machine for kind, paths in files.items() if kind != "records"}
    return {"recorded": of_others, **own}


def every_output(wildcards):
    """Return all files of the tables and figures for which this machine or a recorded device has runs."""
    return [path for entry in entries().values() if sources_of(entry) for path in entry.outputs().values()]


def caption_of(name):
    """Return the caption of a table or figure in the report under this config."""
    return Environment().from_string(entries()[name].caption).render(config=config)


def introduction(wildcards):
    """Return the paragraphs that introduce the report of this run."""
    devices = ", ".join(Path(folder).name for folder in config["recorded"])
    template = (ROOT / "workflow/report/introduction.txt").read_text(encoding="utf-8")
    return Environment().from_string(template).render(devices=devices, backend=BACKEND).splitlines()


def print_summary(failed):
    """Print what a run came to, as its last line: the first one of the report, or without a report what the rule `check`
    found. After a failure both are printed."""
    found = [path.read_text(encoding="utf-8").strip() for path in (SUMMARY, OUTCOME) if path.is_file()]
    print(*(found if failed else found[-1:]), sep="\n", file=sys.stderr)
