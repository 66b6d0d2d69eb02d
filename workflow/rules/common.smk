"""What the rules share: the project on the Python path, the config checked, and who is measured on what."""

import functools
import hashlib
import os
import re
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.utils import validate

ROOT = Path(workflow.basedir)

# Scripts run in processes of their own; they find the project whether or not it is installed.
sys.path.insert(0, str(ROOT))
os.environ.update(PYTHONPATH=os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]))

from datasets import registry as dataset_registry
from datasets.fetch import mirrored_paths
from gpupc_impl.backends import resolve_backend
from gpupc_impl.core.records import code_version
from gpupc_impl.core.registry import get_method
from workflow.scripts.check_config import check_config

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


def one_of(names):
    """A regular expression that matches these names, and nothing when there are none."""
    return "|".join(map(re.escape, names)) or "(?!)"


wildcard_constraints:
    dataset=one_of(MEASURED),


def records_of(datasets):
    """The records of data sets: every setting of their families."""
    return [
        f"results/records/{name}/{setting}.json" for name in datasets for setting in SETTINGS[ENTRIES[name]["family"]]
    ]


def problem_parameters(wildcards):
    """What, beside the data, makes a problem: see the problem classes in gpupc_impl.core.problem."""
    choice = config["datasets"][wildcards.dataset]
    parameters = {key: choice.get(key, config[key]) for key in ("alpha", "max_level")}
    if ENTRIES[wildcards.dataset]["family"] == "gaussian":
        parameters["df_convention"] = config["df_convention"]
    return parameters


def code_versions(family):
    """Versions of the methods' code: editing a method measures it again, and nothing else does."""
    found = {setting: get_method(choice.get("method", setting)) for setting, choice in SETTINGS[family].items()}
    return {setting: code_version(m, "cpu" if m.backends == ("cpu",) else BACKEND) for setting, m in found.items()}


@functools.cache
def sources_version(*patterns):
    """Digest of library files that a rule's output depends on beside its script."""
    files = sorted(path for pattern in patterns for path in (ROOT / "gpupc_impl").glob(pattern))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


ANALYSIS = sources_version("analysis/*.py", "analysis/*.mplstyle")


def mirrored(wildcards):
    """Copies of a data set's file in mirror folders: where one appears, a data set that was missing is tried again."""
    return [str(path) for path in mirrored_paths(ENTRIES[wildcards.dataset], config["mirrors"])]


def table(name, label, category):
    """The files of a table; its HTML stands in the report."""
    shown = report(
        f"results/tables/{name}.html",
        caption=f"../report/{name}.rst",
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
