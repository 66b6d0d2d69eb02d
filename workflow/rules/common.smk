"""What the rules share: the project on the Python path, the config checked, and who is measured on what."""

import os
import re
import sys
from pathlib import Path
from typing import NamedTuple

from snakemake.exceptions import WorkflowError
from snakemake.utils import validate

ROOT = Path(workflow.basedir)

# Scripts run in processes of their own; they find the project whether or not it is installed.
sys.path.insert(0, str(ROOT))
os.environ.update(PYTHONPATH=os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]))

from datasets import registry as dataset_registry
from datasets.fetch import mirrored_paths
from gpupc_impl.backends import resolve_backend
from gpupc_impl.core.family import get_family
from gpupc_impl.core.registry import get_method
from gpupc_impl.measurement.digest import code_version, digest
from workflow.scripts.check_config import check_config
from workflow.scripts.experiments import expand as expand_experiments

try:
    check_config(config, ROOT / "workflow/schemas/config.schema.yaml")
except ValueError as error:
    raise WorkflowError(f"config: {error}") from None
validate(config, "../schemas/config.schema.yaml")  # fills in the defaults

ENVIRONMENT = f"{ROOT}/environment.yml"  # used with `--software-deployment-method conda`, else our own interpreter
BACKEND = config["backend"] = resolve_backend(config["backend"])  # the report names what `auto` became

ENTRIES = {name: dataset_registry.resolve(name, choice.get("spec")) for name, choice in config["datasets"].items()}
FETCHED = [name for name, entry in ENTRIES.items() if entry["kind"] == "file"]
SIMULATED = [name for name in ENTRIES if name not in FETCHED]

SETTINGS = config["settings"]
FAMILIES = {family: [name for name, entry in ENTRIES.items() if entry["family"] == family] for family in SETTINGS}
MEASURED = [name for names in FAMILIES.values() for name in names]
EXPERIMENTS = expand_experiments(config)
CI_TESTS = config["ci_tests"]
CI_TESTS_VERIFICATION = "results/verification/ci_tests.csv"
PERCENTILE_TABLES = {f"cmiknn_table{k}": f"cmiknn_table{k + 5}" for k in range(1, 5)}


def one_of(names):
    """A regular expression that matches these names, and nothing when there are none."""
    return "|".join(map(re.escape, names)) or "(?!)"


wildcard_constraints:
    dataset=one_of(MEASURED),


def record_paths(datasets, settings):
    return [f"results/records/{name}/{setting}.json" for name in datasets for setting in settings]


def records_of(datasets):
    """The records of data sets: every setting of their families."""
    return [path for name in datasets for path in record_paths([name], SETTINGS[ENTRIES[name]["family"]])]


def records_of_experiment(name):
    """The records that an experiment adds."""
    return record_paths(EXPERIMENTS[name].datasets, EXPERIMENTS[name].settings)


def references_of_experiment(name):
    """The records that the skeletons of an experiment are compared with: the first reference's, where there is one."""
    if EXPERIMENTS[name].graphs:
        return []
    settings = SETTINGS[EXPERIMENTS[name].family]
    references = [
        setting for setting, choice in settings.items() if get_method(choice.get("method", setting)).reference
    ]
    return record_paths(EXPERIMENTS[name].datasets, references[:1])


class Measurement(NamedTuple):
    """The same settings, to be measured on each of some data sets.

    Attributes:
        targets: what stands for the data set in paths: the wildcard, for a job a data set, or all names, for one job
            for all of them (the graphs of an experiment, which are many and small).
    """

    family: str
    datasets: list
    settings: dict
    targets: list
    log: str
    subject: str
    repeats: int


def measurements():
    """What is measured, by name: the data sets with all settings of their family, then each experiment."""
    repeats = config["timing"]["repeats"]
    found = {}
    for name, (family, datasets, settings, graphs) in {
        **{family: (family, datasets, SETTINGS[family], {}) for family, datasets in FAMILIES.items()},
        **{name: experiment[:4] for name, experiment in EXPERIMENTS.items()},
    }.items():
        found[name] = Measurement(
            family,
            datasets,
            settings,
            targets=datasets if graphs else ["{dataset}"],
            log=f"logs/measure_{name}.log" if graphs else f"logs/measure_{name}/{{dataset}}.log",
            subject=f"the graphs of {name}" if graphs else "{wildcards.dataset}",
            repeats=config["experiments"].get(name, {}).get("repeats", repeats),
        )
    return found


def problem_parameters(family, choice):
    """What, beside the data, makes a problem of a data set: see the problem classes."""
    own = {key: choice[key] for key in ("alpha", "max_level") if key in choice} | choice.get("problem", {})
    return {key: config[key] for key in ("alpha", "max_level")} | config["problems"].get(family, {}) | own


def code_versions(settings):
    """Versions of the methods' code: editing a method measures it again, and nothing else does."""
    found = {setting: get_method(choice.get("method", setting)) for setting, choice in settings.items()}
    return {setting: code_version(m, "cpu" if m.backends == ("cpu",) else BACKEND) for setting, m in found.items()}


def code_of(script, entries=(), family=None):
    """Digest of a script that works on data sets: what it imports, their generators and how their family makes problems.

    Of what the script finds by name, other generators and families, nothing counts.
    """
    generators = {f"datasets.{entry['generator'].partition('.')[0]}" for entry in entries if "generator" in entry}
    makers = [get_family(family).problem, get_family(family).prepare_large] if family else []
    problems = {maker.__module__ for maker in makers}
    return digest(f"workflow/scripts/{script}", *sorted(generators | problems), named=False)


def mirrored(wildcards):
    """Copies of a data set's file in mirror folders: where one appears, a data set that was missing is tried again."""
    return [str(path) for path in mirrored_paths(ENTRIES[wildcards.dataset], config["mirrors"])]


def table(name, label, category, caption=None):
    """The files of a table; its HTML stands in the report."""
    shown = report(
        f"results/tables/{name}.html",
        caption=f"../report/{caption or name}.rst",
        category=category,
        labels={"result": label},
    )
    return {"csv": f"results/tables/{name}.csv", "md": f"results/tables/{name}.md", "html": shown}


def figure(name, label, category):
    """The files of a figure; its SVG stands in the report."""
    shown = report(
        f"figures/{name}.svg",
        caption=f"../report/{name}.rst",
        category=category,
        labels={"result": label},
    )
    return {"svg": shown, "png": f"figures/{name}.png"}
