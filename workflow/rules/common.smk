"""What the rules share: the project on the Python path, the config checked, and its plan."""

import os
import re
import sys
from pathlib import Path

from jinja2 import Environment
from snakemake.exceptions import WorkflowError

ROOT = Path(workflow.basedir)

# Scripts run in processes of their own; they find the project whether or not it is installed.
sys.path.insert(0, str(ROOT))
os.environ.update(PYTHONPATH=os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]))

from gpupc_impl.backends import resolve_backend
from gpupc_impl.measurement.digest import digest
from workflow.lib.config import complete
from workflow.lib.plan import Plan, records
from workflow.lib.problems import makers

try:
    complete(config)
except ValueError as error:
    raise WorkflowError(f"config: {error}") from None

ENVIRONMENT = f"{ROOT}/environment.yml"  # used with `--software-deployment-method conda`, else our own interpreter
BACKEND = config["backend"] = resolve_backend(config["backend"])  # the report names what `auto` became
PLAN = Plan(config)
OUTPUTS = PLAN.outputs()
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


def in_report(path, category, label, caption="output"):
    """A file that stands in the report."""
    return report(path, caption=f"../report/{caption}.rst", category=category, labels={"result": label})


def caption_of(entry):
    """What the report says of a table or figure under this config."""
    return Environment().from_string(entry.caption).render(config=config)
