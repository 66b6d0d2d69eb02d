"""What an edit makes again, and what it leaves alone: one file after another is edited in a copy of the project."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytest.importorskip("snakemake")

ROOT = Path(__file__).parents[2]

VERSIONS = r"""
import json, sys
from gpupc_impl.core.registry import get_method
from gpupc_impl.measurement.digest import ROOT, code_version, digest

def versions():
    digest.cache_clear()
    scripts, gaussian = "workflow/scripts", ("gpupc_impl.gaussian.problem", "gpupc_impl.gaussian.large")
    methods = {"cupc-s": "cuda", "cupc-s on cores": "host", "gpupc": "cuda", "gpucmiknn-parallel": "cuda"}
    methods |= dict.fromkeys(("stable-serial", "discrete-serial", "causal-learn-discrete", "cmiknn-serial"), "cpu")
    return {name: code_version(get_method(name.split()[0]), backend) for name, backend in methods.items()} | {
        "generated data": digest(f"{scripts}/prepare.py", "datasets.generate", named=False),
        "fetched data": digest(f"{scripts}/fetch.py", named=False),
        "problems": digest(f"{scripts}/prepare.py", *gaussian, named=False),
        "records": digest(f"{scripts}/measure.py", named=False),
        "verification": digest(f"{scripts}/verify.py"),
        "cuPC": digest(f"{scripts}/make_output.py", "gpupc_impl.reporting.papers.cupc", named=False),
        "GPU-CMIknn": digest(f"{scripts}/make_output.py", "gpupc_impl.reporting.papers.cmiknn", named=False),
    }

def changed_by(path):
    text = path.read_text()
    path.write_text(text + ADDED.get(path.suffix, "\n"))
    changed = [what for what, version in versions().items() if version != before[what]]
    path.write_text(text)
    return changed

ADDED = {".py": "edited = 1\n"} | dict.fromkeys((".cu", ".cuh", ".cpp", ".hpp"), "int edited;\n")
before = versions()
print(json.dumps({name: changed_by(ROOT / name) for name in json.loads(sys.argv[1])}))
"""

GAUSSIAN = {"cupc-s", "cupc-s on cores", "stable-serial"}
DISCRETE = {"gpupc", "discrete-serial", "causal-learn-discrete"}
NONLINEAR = {"gpucmiknn-parallel", "cmiknn-serial"}
METHODS = GAUSSIAN | DISCRETE | NONLINEAR
ON_GPU = {"cupc-s", "gpupc", "gpucmiknn-parallel"}
DATA = {"generated data", "fetched data", "problems"}
PAPERS = {"cuPC", "GPU-CMIknn"}

EDITS = {
    # kernels and what runs them
    # gaussian/family.py, with which answers are tested again, names the kernel of single tests, which includes this
    "gpupc_impl/gaussian/kernels/fisher_z.cuh": {"cupc-s", "cupc-s on cores", "verification"},
    # engine/budget.py, with which nonlinear batches are planned, imports the graph
    "gpupc_impl/engine/kernels/combinations.cuh": {"cupc-s", "cupc-s on cores", "gpupc", "gpucmiknn-parallel"}
    | {"verification"},
    "gpupc_impl/backends/simt/runtime.cpp": {"cupc-s on cores"},
    "gpupc_impl/backends/cuda.py": ON_GPU,
    # what a search is: thresholds and separating sets are inside the clock
    "gpupc_impl/gaussian/problem.py": GAUSSIAN | {"problems", "verification"},
    "gpupc_impl/discrete/problem.py": DISCRETE | {"verification"},
    "gpupc_impl/core/result.py": METHODS | PAPERS | {"records", "verification"},
    "baselines/_levels.py": {"stable-serial", "discrete-serial"},
    "baselines/_fisher_z.py": {"stable-serial"},
    # how it is measured
    "gpupc_impl/measurement/clock.py": METHODS,
    "gpupc_impl/measurement/samples.py": {"records"},
    # data, verification, reports
    "datasets/generate.py": DATA,  # networks are sampled with it
    "datasets/readers.py": DATA,
    "gpupc_impl/gaussian/large.py": {"problems", "verification"},
    "gpupc_impl/gaussian/retest.py": {"verification"},
    "gpupc_impl/discrete/retest.py": {"verification"},
    "gpupc_impl/verification/compare.py": {"verification"},
    "gpupc_impl/verification/accuracy.py": {"GPU-CMIknn"},
    "gpupc_impl/core/orientation.py": {"GPU-CMIknn"},
    "gpupc_impl/reporting/tables.py": PAPERS,
    "gpupc_impl/reporting/paper.mplstyle": PAPERS,
    "gpupc_impl/reporting/papers/cmiknn.py": {"GPU-CMIknn"},
    # nothing depends on these, or has what it needs of them among its parameters
    "gpupc_impl/cli/__init__.py": set(),
    "gpupc_impl/api.py": set(),
    "gpupc_impl/gaussian/cupc_e.py": set(),
    "baselines/tigramite_searches.py": set(),
    "datasets/registry.yaml": set(),
    "datasets/wide.py": set(),  # another generator
    "workflow/pages/million.py": set(),
}
"""What a line more in a file changes the version of."""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A copy of the project, to be edited."""
    folder = tmp_path_factory.mktemp("project")
    for name in ("gpupc_impl", "baselines", "datasets", "workflow", "profiles", "config", "results/reported"):
        shutil.copytree(ROOT / name, folder / name)  # with what was compiled
    for name in ("Snakefile", "environment.yml"):
        shutil.copy(ROOT / name, folder / name)
    return folder


def run(project, *command, **options):
    """What a command prints, with the copy of the project in place of ours."""
    environment = {**os.environ, "PYTHONPATH": str(project), "GPUPC_MIRRORS": "", "PYTHONDONTWRITEBYTECODE": "1"}
    options |= {"env": environment, "capture_output": True, "text": True, "timeout": 600}
    done = subprocess.run([sys.executable, *map(str, command)], **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def changed(project):
    """By edited file, what has another version."""
    return json.loads(run(project, "-c", VERSIONS, json.dumps(list(EDITS)), cwd=project))


@pytest.mark.parametrize("path", EDITS)
def test_an_edit_changes_the_version_of_what_depends_on_it(changed, path):
    assert set(changed[path]) == EDITS[path]


CHAIN = ["prepare", "measure", "verify"]


@pytest.mark.slow  # the tests above look at the digests, which rules have among their parameters
def test_the_workflow_makes_again_what_an_edit_made_stale(project, tmp_path):
    spec = {"kind": "generated", "family": "gaussian", "generator": "generate.random_dag_gaussian"}
    spec |= {"parameters": {"p": 6, "m": 50, "density": 0.3, "seed": 1}, "licence": "MIT", "citation": "a test"}
    config = {"backend": "host", "offline": True, "datasets": {"tiny": {"spec": spec}}}
    config |= {"settings": {"gaussian": {"stable-serial": {}}}, "timing": {"repeats": 1}}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))

    def snakemake(*options):
        return run(
            project,
            *("-m", "snakemake", "--snakefile", project / "Snakefile", "--directory", tmp_path),
            *("--configfile", tmp_path / "config.yaml"),
            *("--cores", "2", "results/verification/gaussian.csv", *options),
        )

    def made_again(*names):
        """The rules that a dry run would run after edits of these files."""
        kept = {project / name: (project / name).read_bytes() for name in names}
        for path, content in kept.items():
            path.write_bytes(content + (b"\nedited = 1\n" if path.suffix == ".py" else b"\n"))
        printed = snakemake("--dry-run", "--quiet", "rules")
        for path, content in kept.items():
            path.write_bytes(content)
        return [rule for rule in CHAIN if f"\n{rule} " in printed]

    snakemake()
    assert made_again(*(path for path, stale in EDITS.items() if not stale)) == []
    assert made_again("baselines/_fisher_z.py") == ["measure", "verify"]
