"""What is declared agrees: pyproject.toml, constraints.txt, environment.yml, and what the code imports."""

import functools
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
CONDA_NAMES = {"clang-tidy": "clang-tools", "nvidia-cuda-nvrtc-cu12": "cuda-nvrtc"}
IMPORT_NAMES = {
    "causal-learn": "causallearn",
    "cupy-cuda12x": "cupy",
    "cupy-cuda13x": "cupy",
    "pandas-stubs": "pandas",
    "scikit-learn": "sklearn",
    "pyyaml": "yaml",
    "types-jsonschema": "jsonschema",
    "types-psutil": "psutil",
}
"""What is imported of a package, or with the types of a package of types, where that is not its own name."""

TOOLS = {
    "cryptography": ("gpupc_impl/distributed/local_cluster.py", "cryptography"),  # Dask makes certificates with it
    "anndata": ("gpupc_impl/tables/binary.py", '"anndata", "anndata"'),  # imported by that name
    "asyncssh": ("tests/conformance/test_distributed_ssh.py", 'importorskip("asyncssh"'),  # Dask's SSHCluster needs it
    "openpyxl": ("gpupc_impl/tables/binary.py", '"openpyxl", "excel"'),  # pandas reads with it
    "pyarrow": ("gpupc_impl/tables/binary.py", '"pyarrow", "parquet"'),
    "clang-format": ("Makefile", "$(BIN)/clang-format"),
    "clang-tidy": ("tests/tidy.py", 'with_name("clang-tidy")'),
    "mkdocs": ("Makefile", "$(BIN)/mkdocs"),
    "mkdocs-material": ("mkdocs.yml", "name: material"),
    "mkdocstrings-python": ("mkdocs.yml", "- mkdocstrings:"),
    "mypy": ("Makefile", "$(BIN)/mypy"),
    "nvidia-cuda-nvrtc": ("gpupc_impl/backends/cuda_device.py", "nvidia-cuda-nvrtc for CUDA 13"),  # CuPy loads it
    "nvidia-cuda-nvrtc-cu12": ("gpupc_impl/backends/nvrtc.py", 'find_spec("nvidia")'),
    "pgmpy": ("datasets/networks.py", 'distribution("pgmpy")'),
    "pre-commit": ("CONTRIBUTING.md", "pre-commit install"),
    "pygments": ("Makefile", "$(SNAKEMAKE) --report"),  # which colours the code with it
    "pytest-benchmark": ("Makefile", "--benchmark-only"),
    "pytest-cov": ("Makefile", "--cov"),
    "pytest-xdist": ("Makefile", "--dist loadgroup"),
    "ruff": ("Makefile", "$(BIN)/ruff"),
    "snakemake-executor-plugin-cluster-generic": ("profiles/cluster-generic/config.yaml", "executor: cluster-generic"),
    "snakemake-executor-plugin-slurm": ("profiles/slurm/config.yaml", "executor: slurm"),
    "tqdm": ("gpupc_impl/views/progress.py", 'require("tqdm.auto"'),
    "snakefmt": ("Makefile", "$(BIN)/snakefmt"),
    "ziglang": ("gpupc_impl/backends/simt/build.py", 'find_spec("ziglang")'),
}
"""Packages that are used without an import: the file, and how it uses them."""

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


@pytest.mark.parametrize(
    "package", sorted({name_of(e) for g in [PROJECT["dependencies"], *EXTRAS.values()] for e in g})
)
def test_every_dependency_is_used(package):
    if package in TOOLS:
        path, use = TOOLS[package]
        assert use in (ROOT / path).read_text()
        return
    module = IMPORT_NAMES.get(package, package)
    pattern = re.compile(rf"^\s*(import|from) {module}\b", re.MULTILINE)
    assert any(map(pattern.search, sources())), f"nothing imports {module}"


@functools.cache
def sources():
    """The text of every module and rule."""
    return [
        path.read_text()
        for folder in ("gpupc_impl", "baselines", "datasets", "workflow", "tests", ".")
        for pattern in ("*.py", "*.smk", "Snakefile")
        for path in ((ROOT / folder).glob(pattern) if folder == "." else (ROOT / folder).rglob(pattern))
    ]


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
