"""Code that all rules share: the project on the Python path, the checked config, and its plan."""

import dataclasses
import os
import re
import sys
import uuid
import warnings
from functools import cache, partial
from pathlib import Path

from jinja2 import Environment
from snakemake.exceptions import WorkflowError

ROOT = Path(workflow.basedir)

# Scripts run in separate processes, which must find the project even if it is not installed.
sys.path.insert(0, str(ROOT))
os.environ.update(PYTHONPATH=os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]))

from gpupc_impl.backends import resolve_backend
from gpupc_impl.measurement.digest import digest
from gpupc_impl.measurement.environment import RUN
from gpupc_impl.reporting.catalogue import entries
from workflow.lib import job_limits
from workflow.lib.ahead import KERNELS, PARTS, write_searches
from workflow.lib.config import complete
from workflow.lib.core_sets import LEAST_CORES, use_core_sets
from workflow.lib.deadline import ESTIMATES, deadline, stop_at
from workflow.lib.durations import write_estimates
from workflow.lib.plan import Plan, records, recorded_folders, recorded_plans
from workflow.lib.problems import makers
from workflow.lib.single_tests import cases

os.environ.setdefault(RUN, uuid.uuid4().hex)

try:
    complete(config)
    DEADLINE = deadline()
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
TIMELINES = PLAN.timelines()
LIMITS = config["timing"], config["limits"], config["cluster"]
LARGE = {
    graph: name for name, experiment in PLAN.experiments.items() if experiment.large for graph in experiment.graphs
}

# The resource `timing_slot` determines how many jobs measure at a time. Several such jobs share the cores evenly with
# jobs that prepare problems. With a deadline, problems are prepared one after another in the order of the measurements;
# otherwise all problems would be prepared before the first measurement.
CORES = workflow.cores or 1
SLOTS = int(getattr(workflow.global_resources.get("timing_slot"), "value", None) or 1)
MEASURING_CORES = CORES if SLOTS == 1 else max(1, CORES // (SLOTS + 1))
# References are measured beside the GPU's measurements: several jobs measure at a time, and wait for each other's cores.
REFERENCES_BESIDE = (
    config["timing"]["references_beside"]
    and BACKEND == "cuda"
    and CORES >= LEAST_CORES
    and (SLOTS, DEADLINE) == (1, None)
    and workflow.local_exec
)
if REFERENCES_BESIDE:
    MEASURING_CORES = 1  # Such a job waits most of the time, and measures on a core set (workflow/lib/core_sets.py).
MEASURING = {"timing_slot": int(not REFERENCES_BESIDE), "gpu": int(BACKEND == "cuda" and not REFERENCES_BESIDE)}
# What a measurement waits for. Beside a GPU, the first references compile what is not ready.
COMPILED = expand("results/compiled/{part}.ok", part=[KERNELS] if REFERENCES_BESIDE else PARTS)
# The searches of the jobs that measure, which are written when a run begins.
SEARCHES = Path("results/searches.json")
PREPARING_CORES = 1 if DEADLINE is None else MEASURING_CORES
# The priority of fetching and verifying: with a deadline, or beside measurements that leave cores, these come first.
FIRST = 2 * len(PLAN.order) + 2 if REFERENCES_BESIDE or DEADLINE is not None else 0


def priority_of(name):
    """Return the priority of preparing a family or experiment, one below that of measuring it."""
    return 0 if DEADLINE is None else 2 * (len(PLAN.order) - PLAN.order.index(name))


def one_of(names):
    """Return a regular expression that matches these names, and nothing if there are none."""
    return "|".join(map(re.escape, names)) or "(?!)"


wildcard_constraints:
    dataset=one_of(PLAN.measured),


def code_of(script, entries=(), family=None):
    """Return the digest of a script that works on data sets: of its imports, of the data sets' generators and of the
    modules that prepare the family's problems. Other generators and families, which the script finds by name, do not
    count."""
    return digest(f"workflow/scripts/{script}", *makers(entries, family), named=False)


def attempt_of(wildcards, attempt):
    """Return the number of the attempt: a cluster's job that was ended is tried again
    (gpupc_impl/measurement/samples.py)."""
    return attempt


def graphs_of(experiment, wildcards):
    """Return the graphs that a job generates, by name: a large graph, otherwise all graphs of an experiment."""
    chosen = [wildcards.dataset] if experiment.large else experiment.graphs
    return {name: experiment.graphs[name] for name in chosen}


def mirrored_graphs(experiment, wildcards):
    """Return the copies in mirror folders of the files from which graphs are made."""
    return PLAN.mirrored(graphs_of(experiment, wildcards).values())


def parameters_of_graphs(name, wildcards):
    """Return the parameters of the problems of an experiment's graphs."""
    return [PLAN.source_of(name, graph)[1] for graph in graphs_of(PLAN.experiments[name], wildcards)]


def matrices_of(name, targets):
    """Return the files with the correlation matrices of an experiment's large graphs; none for other problems."""
    return expand("results/problems/{dataset}.npy", dataset=targets) if name in LARGE.values() else []


def records_of_dataset(dataset):
    """Return the records of one of the config's data sets, or of an experiment's large graph."""
    if dataset not in LARGE:
        return PLAN.records_of([dataset])
    return records([dataset], PLAN.experiments[LARGE[dataset]].settings)


def limits_of_tests(table):
    """Return the resources of a cluster's node for a job that times a table of single tests."""
    implementations = CI_TESTS["implementations"].values()
    cells = len(implementations) * len(cases(CI_TESTS["tables"][table]))
    longest = max(choice.get("time_limit_s", CI_TESTS["time_limit_s"]) for choice in implementations)
    return job_limits.for_single_tests(cells, len(implementations), longest, *LIMITS[1:])


def limits_of_timeline(dataset):
    """Return the resources of a cluster's node for a job that records a timeline."""
    return job_limits.for_searches(TIMELINES[dataset], 1, 1, *LIMITS)


def in_report(path, category, label, caption="output"):
    """Mark a file that the report includes."""
    return report(path, caption=f"../report/{caption}.rst", category=category, labels={"result": label})


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


def files_of(entry, wildcards):
    """Return the input files of a table or figure: those of this machine by kind, and all recorded ones."""
    sources = sources_of(entry)
    if not sources:
        raise WorkflowError(f"{entry.name}: the config does not measure it, and no recorded runs have it")
    of_others = [path for each in sources if each.recorded for paths in each.files.values() for path in paths]
    of_machine = [each.files for each in sources if not each.recorded]
    return {"recorded": of_others, **(of_machine[0] if of_machine else {})}


def described_sources(entry, wildcards):
    return [dataclasses.asdict(source) for source in sources_of(entry)]


def every_output(wildcards):
    """Return all files of the tables and figures for which this machine or a recorded device has runs."""
    return [path for entry in entries().values() if sources_of(entry) for path in entry.outputs().values()]


def introduction(wildcards):
    """Return the paragraphs that introduce the report of this run."""
    devices = ", ".join(Path(folder).name for folder in config["recorded"])
    kernels = "The kernels ran on a GPU here."
    if BACKEND != "cuda":
        kernels = (
            "Here the kernels ran on CPU cores. Their sources are the same, but their times say nothing about a GPU."
        )
    first = f"The runs recorded on {devices} come first, under headings that are green for GPUs, and those of this machine follow. "
    return [
        "The report reproduces four papers on GPU versions of the PC algorithm. Every method ran on the same prepared "
        "data, and every skeleton was compared edge by edge with another setting's, unless no other finished (°).",
        f"{first if devices else ''}{kernels} A number marked ‡ was recorded with code that has changed since.",
    ]


def caption_of(entry):
    """Return the caption of a table or figure in the report under this config."""
    return Environment().from_string(entry.caption).render(config=config)
