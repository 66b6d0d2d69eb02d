"""What is declared agrees: pyproject.toml, constraints.txt, environment.yml, and what the code imports."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
CONDA_NAMES = {"clang-tidy": "clang-tools", "nvidia-cuda-nvrtc-cu12": "cuda-nvrtc"}
USES = {
    **{"causal-learn": "causallearn", "cupy-cuda12x": "cupy", "cupy-cuda13x": "cupy", "mkdocs-material": "material"},
    **{"mkdocstrings-python": "mkdocstrings", "pandas-stubs": "pandas", "pyyaml": "yaml", "scikit-learn": "sklearn"},
    **{"pytest-cov": "skip-covered", "pytest-xdist": "loadgroup", "types-psutil": "psutil"},
    **{"types-jsonschema": "jsonschema", "pygments": "--report"},  # it colours the code of Snakemake's report
    "snakemake-executor-plugin-cluster-generic": "cluster-generic",
    "snakemake-executor-plugin-slurm": "executor: slurm",
}
"""The word by which a package is used, where that is not its own name."""

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


def name_of(requirement):
    return re.match(r"[A-Za-z0-9._-]+", requirement).group().lower()


def pinned_versions():
    """The versions in constraints.txt by package."""
    pins = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+]+", pin) for pin in pins)
    return {name_of(pin).replace("_", "-"): pin.partition("==")[2] for pin in pins}


def test_conda_environment_names_the_same_packages_in_the_same_versions():
    listed = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    conda = dict(re.fullmatch(r"([\w.-]+) ?=*(.*)", entry).groups() for entry in listed)
    others = {"python", "pip", "setuptools", "cxx-compiler"}
    declared = {name_of(entry) for entry in [*PROJECT["dependencies"], *EXTRAS["reproduce"], *EXTRAS["test"]]}
    # CuPy is an extra for each CUDA version here.
    assert conda.keys() - others == {"cupy", *(CONDA_NAMES.get(name, name) for name in declared)}
    pinned = pinned_versions() | {"cupy": pinned_versions()["cupy-cuda12x"]}
    for name in conda.keys() & pinned.keys() - others:
        assert conda[name] == pinned[name], name


def test_every_dependency_is_pinned_exactly():
    declared = {name_of(entry) for group in [PROJECT["dependencies"], *EXTRAS.values()] for entry in group}
    assert declared <= pinned_versions().keys()


def test_every_dependency_is_used():
    """It is imported, or named by what uses it without an import."""
    others = (":!pyproject.toml", ":!constraints.txt", ":!environment.yml", ":!tests/unit/test_packaging.py", ":!*.md")
    for package in {name_of(entry) for group in [PROJECT["dependencies"], *EXTRAS.values()] for entry in group}:
        pattern = ["--word-regexp", "--fixed-strings", "-e", USES.get(package, package)]
        found = subprocess.run(["git", "grep", "--quiet", *pattern, "--", *others], cwd=ROOT)
        assert found.returncode == 0, f"nothing uses {package}"


def test_versions_agree():
    import gpupc_impl

    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert gpupc_impl.__version__ == PROJECT["version"] == citation["version"]


def test_a_container_has_what_it_needs():
    """The rules of hadolint that matter here, by reading: no builder is needed."""
    text = (ROOT / "Dockerfile").read_text()
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    steps = [tuple(line.split(maxsplit=1)) for line in lines if line and not line.startswith("#")]
    named = dict(steps)  # the last of each kind
    assert re.fullmatch(r"nvidia/cuda:[\d.]+-runtime-ubuntu[\d.]+@sha256:[0-9a-f]{64}", named["FROM"])
    (installing,) = (what for step, what in steps if "apt-get install" in what)
    assert "--no-install-recommends" in installing
    assert installing.endswith("rm -rf /var/lib/apt/lists/*")
    (pip,) = (what for step, what in steps if "pip install" in what)
    assert "--no-cache-dir" in pip
    assert set(re.search(r"\.\[([\w,]+)\]", pip)[1].split(",")) <= EXTRAS.keys()
    for sources in (what.split()[:-1] for step, what in steps if step == "COPY"):
        assert all((ROOT / source).exists() for source in sources)
    assert named["USER"] != "root"
    assert named["ENTRYPOINT"] == '["gpupc"]'
    assert any("gpupc compile" in what for step, what in steps if step == "RUN")


def test_the_catalog_of_workflows_names_a_config_that_is_there():
    usage = yaml.safe_load((ROOT / ".snakemake-workflow-catalog.yml").read_text())["usage"]
    assert (ROOT / usage["mandatory-flags"]["flags"].split()[-1]).is_file()
    assert usage["software-stack-deployment"]["conda"] == ("conda:" in (ROOT / "workflow/Snakefile").read_text())


def test_the_wheel_has_every_file_that_is_no_module():
    """Kernels, schemas, styles, and the mark that types are shipped."""
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "gpupc_impl/py.typed" in listed
    for path in map(Path, listed.split()):
        if path.suffix != ".py":
            package, inner = path.parts[0], path.relative_to(path.parts[0])
            assert any(inner.match(pattern) for pattern in patterns[package]), f"no wheel would hold {path}"


def test_style_of_python():
    """ruff, snakefmt and mypy have nothing to say."""
    here = Path(sys.executable).parent
    checks = ("ruff check", "ruff format --check", "snakefmt --check Snakefile workflow", "mypy")
    for program, *options in map(str.split, checks):
        done = subprocess.run([here / program, *options], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_style():
    """All that `make lint` runs: snakemake --lint, clang-format and clang-tidy as well."""
    done = subprocess.run(["make", "lint"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
