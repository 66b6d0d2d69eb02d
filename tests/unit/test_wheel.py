"""Kernels that were compiled ahead: the same answers as from those compiled here, and never a stale or foreign one."""

import json
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import numpy as np
import pytest

import gpupc_impl
from gpupc_impl.backends import BackendUnavailable, KernelSource, nvrtc, open_backend, shipped
from gpupc_impl.backends.host import HostBackend, HostKernel
from gpupc_impl.backends.nvrtc import NvrtcLibrary, find_library
from gpupc_impl.backends.simt import build
from gpupc_impl.gaussian import level_graph
from tests.graphs import chain
from workflow.lib.shipped import LEVEL, all_kernels, build_archive

ROOT = Path(__file__).parents[2]
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
pytestmark = pytest.mark.xdist_group("wheel")

SEARCH = """
import json, sys
import numpy as np
import gpupc_impl
found = gpupc_impl.skeleton(np.load("data.npy"), method="cupc-s", backend="host", max_level=1)
sets = [[*map(int, pair), [*map(int, members)]] for pair, members in sorted(found.sepsets.items())]
print(json.dumps([found.adjacency.tolist(), sets, gpupc_impl.__file__]))
"""
"""A search by the kernels of the fixture `archives`, in a process of its own."""

FAMILIES = """
import time
import numpy as np
import pandas as pd
import gpupc_impl
rng = np.random.default_rng(3)
numbers = rng.normal(size=(120, 6))
numbers[:, 1:] += numbers[:, :-1]
categories = (numbers > 0).astype(np.uint8)
table = pd.DataFrame(numbers).assign(site=np.where(categories[:, 0], "north", "south"))
table.columns = map(str, table.columns)
for data, options in (
    (numbers, {}),
    (categories, {"family": "discrete"}),
    (numbers, {"family": "nonlinear"}),
    (table, {"family": "mixed"}),
):
    start = time.perf_counter()
    found = gpupc_impl.skeleton(data, backend="host", **options)
    print(options.get("family", "gaussian"), f"{time.perf_counter() - start:.2f} s", found.edges_per_level)
"""
PLOT = 'found.plot().figure.savefig("picture.png")'


@pytest.fixture(scope="module")
def target() -> str:
    """The best target of this machine."""
    if not shipped.runnable_targets():
        pytest.skip("no target for this machine's CPU")
    return shipped.runnable_targets()[0]


@pytest.fixture(scope="module")
def archives(target, tmp_path_factory) -> Path:
    """A folder with the archive of the few kernels that `SEARCH` needs."""
    into = tmp_path_factory.mktemp("shipped")
    between = "count_degrees", "compact", "remove_separated", "list_separated", *level_graph.KERNELS
    needed = ("level_zero", *between, "cupc_s<Exactly<1>>")
    sources = ("gaussian/", "engine/")
    kernels = [each for each in all_kernels(1) if each.expression in needed and each.source.startswith(sources)]
    build_archive(target, kernels, into, jobs=2)
    return into


@pytest.fixture(scope="module")
def runtime(target, tmp_path_factory) -> Path:
    """A folder with an archive of the runtime alone."""
    return build_archive(target, [], tmp_path_factory.mktemp("runtime"), jobs=1).parent


@pytest.fixture
def data(tmp_path) -> np.ndarray:
    values = chain(200, 10)
    np.save(tmp_path / "data.npy", values)
    return values


@pytest.fixture
def without_compiler(tmp_path, monkeypatch) -> dict[str, str]:
    """An environment with no compiler and an empty cache."""
    environment = {**os.environ, "PATH": str(tmp_path), "GPUPC_CACHE_DIR": str(tmp_path / "cache")}
    environment.pop("CXX", None)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path))
        patch.delenv("CXX", raising=False)
        try:
            build.find_compiler()
        except BackendUnavailable:
            return environment
    pytest.skip("ziglang is installed beside this Python")


def run(code: str, folder: Path, environment: dict[str, str], python: str | Path = sys.executable) -> str:
    done = subprocess.run([python, "-c", code], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_search(data: np.ndarray, output: str) -> str:
    """Compare what `SEARCH` printed with a search by kernels that are compiled here; returns the package's path."""
    adjacency, sets, path = json.loads(output)
    here = gpupc_impl.skeleton(data, method="cupc-s", backend="host", max_level=1)
    assert adjacency == here.adjacency.tolist()
    assert sets == [[*pair, list(members)] for pair, members in sorted(here.sepsets.items())]
    assert len(sets) > 10
    return path


@pytest.mark.slow
def test_a_wheel_needs_neither_compiler_nor_source_tree(archives, target, data, tmp_path, without_compiler):
    wheel = build_wheel(archives, tmp_path)
    assert wheel.name.split("-")[2:4] == ["py3", "none"]
    assert re.fullmatch(r"manylinux_2_\d+_\w+", wheel.stem.split("-")[4])
    with zipfile.ZipFile(wheel) as file:  # as pip unpacks it, but for what it compiles
        file.extractall(tmp_path / "site")
    path = check_search(data, run(SEARCH, tmp_path, {**without_compiler, "PYTHONPATH": str(tmp_path / "site")}))
    assert path.startswith(str(tmp_path / "site"))


def build_wheel(archives: Path, folder: Path) -> Path:
    """A wheel with these archives."""
    source = copy_source(folder)
    environment = {**os.environ, "GPUPC_SHIPPED_DIR": str(archives)}
    subprocess.run([*PIP, "wheel", "--no-deps", "--wheel-dir", folder / "dist", source], env=environment, check=True)
    (wheel,) = (folder / "dist").iterdir()
    return wheel


def copy_source(folder: Path) -> Path:
    """What git knows of the files that make a wheel, so that nothing else can come into it."""
    source = folder / "source"
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    needed = ("gpupc_impl/", "gpupc.py", "baselines/", "pyproject.toml", "setup.py", "README.md", "LICENSE")
    for name in files:
        if name.startswith(needed):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    return source


@pytest.mark.slow
def test_what_pip_installs_from_source_compiles_on_first_use(data, tmp_path, without_compiler):
    pip = [*PIP, "install", "--no-deps", "--target", tmp_path / "site", copy_source(tmp_path)]
    subprocess.run(pip, check=True)
    environment = {**without_compiler, "PYTHONPATH": str(tmp_path / "site"), "PATH": os.environ["PATH"]}
    path = check_search(data, run(SEARCH, tmp_path, environment))
    assert path.startswith(str(tmp_path / "site"))
    command = [sys.executable, tmp_path / "site" / "bin" / "gpupc", "--version"]
    version = subprocess.run(command, env=environment, capture_output=True, text=True).stdout.strip()
    assert version == gpupc_impl.__version__


@pytest.mark.slow
def test_every_family_in_an_empty_environment(target, tmp_path, without_compiler, monkeypatch):
    """Installed as users do, with what the extra `plots` needs."""
    archives = ROOT / "build" / "shipped-by-tests"
    build_archive(target, kernels_of(FAMILIES, monkeypatch), archives, jobs=os.cpu_count() or 1)
    wheel = build_wheel(archives, tmp_path)
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    install = [python, *PIP[1:], "install", "--no-compile", "-c", ROOT / "constraints.txt", f"{wheel}[plots]"]
    subprocess.run(install, env={name: os.environ[name] for name in os.environ if name != "PYTHONPATH"}, check=True)
    without_compiler.pop("PYTHONPATH", None)
    print(output := run(FAMILIES + PLOT, tmp_path, without_compiler, python))
    assert [line.split()[0] for line in output.splitlines()] == ["gaussian", "discrete", "nonlinear", "mixed"]
    assert (tmp_path / "picture.png").stat().st_size > 1000


def kernels_of(code: str, monkeypatch) -> list[KernelSource]:
    """The kernels that a program asks of the host backend; `make wheel` compiles all of them."""
    requested = set()
    get_kernel = HostBackend.kernel

    def record(backend: HostBackend, source: str, expression: str, *more) -> HostKernel:
        requested.add((source, expression))
        return get_kernel(backend, source, expression, *more)

    with monkeypatch.context() as patch:
        patch.setattr(HostBackend, "kernel", record)
        exec(code, {})
    kernels = [kernel for kernel in all_kernels(LEVEL) if kernel[:2] in requested]
    assert {kernel[:2] for kernel in kernels} == requested
    return kernels


@pytest.fixture
def step(tmp_path) -> KernelSource:
    """A kernel in a file that includes another."""
    (tmp_path / "step.cuh").write_text("constexpr int step = 1;\n")
    path = tmp_path / "add.cu"
    path.write_text(
        '#include "step.cuh"\n#include "backends/simt/portable.cuh"\n'
        "__global__ void add(int* cells) { cells[threadIdx.x] += step; }\n"
    )
    return KernelSource(str(path), "add")


@pytest.fixture
def with_step(runtime, target, step, tmp_path) -> Path:
    """An archive of that kernel in `tmp_path`."""
    shutil.copy(runtime / f"{target}.zip", tmp_path)  # it has the runtime, which is not compiled again then
    return build_archive(target, [step], tmp_path, jobs=1)


@pytest.fixture
def unpacked(tmp_path, monkeypatch, caplog):
    """Runs a kernel with the archives of `tmp_path`: its result, and how its library was had."""
    monkeypatch.setenv("GPUPC_SHIPPED_DIR", str(tmp_path))
    monkeypatch.setenv("GPUPC_CACHE_DIR", str(tmp_path / "cache"))
    caplog.set_level("INFO", "gpupc_impl.host")

    def add(kernel: KernelSource) -> tuple[int, str]:
        caplog.clear()
        backend = open_backend("host")
        cells = backend.full(1, 0, np.int32)
        backend.kernel(*kernel)((1,), (1,), [cells])
        verbs = [record.message.split()[0] for record in caplog.records if " add of " in record.message]
        return int(backend.download(cells)[0]), ", ".join(verbs)

    return add


def test_no_compiler_is_needed_for_what_an_archive_has(step, with_step, unpacked, target, tmp_path, without_compiler):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", without_compiler["PATH"])
        patch.delenv("CXX", raising=False)
        assert unpacked(step) == (1, "unpacked")
        assert open_backend("host").describe()["compiler"].endswith(f", ahead for {target}")
        with pytest.raises(BackendUnavailable, match=r"kernel \(add\) has to be compiled here: no C\+\+ compiler"):
            unpacked(step._replace(expression="(add)"))


def test_a_library_of_other_sources_is_not_loaded(step, with_step, tmp_path, unpacked):
    assert unpacked(step) == (1, "unpacked")
    (tmp_path / "step.cuh").write_text("constexpr int step = 2;\n")
    assert unpacked(step) == (2, "compiled")


def test_a_library_for_another_cpu_is_not_loaded(step, with_step, target, tmp_path, unpacked):
    if len(shipped.runnable_targets()) == 1:
        pytest.skip("this machine's CPU has one target")
    with_step.rename(tmp_path / f"{shipped.runnable_targets()[-1]}.zip")
    assert unpacked(step) == (1, "compiled")


def test_a_library_with_other_declarations_is_not_loaded(step, with_step, unpacked):
    assert unpacked(step._replace(constants={"step": 1})) == (1, "compiled")


@pytest.mark.parametrize("damaged", [slice(400, 420), slice(None)], ids=["a-part", "all"])
def test_a_damaged_archive_is_not_used(step, with_step, unpacked, damaged):
    content = bytearray(with_step.read_bytes())
    content[damaged] = bytes(len(content[damaged]))
    with_step.write_bytes(content)
    assert unpacked(step) == (1, "compiled")


def test_an_archive_is_extended(step, with_step, target, tmp_path):
    """What it has stays; a binary that no kernel has any more goes."""
    first = shipped.Archive(with_step)
    other = step._replace(expression="(add)")
    both = shipped.Archive(build_archive(target, [step, other], tmp_path, jobs=1))
    assert len(both.entries) == len(first.entries) + 1
    assert all(both.content(digest) == first.content(digest) for digest in first.entries)
    last = shipped.Archive(build_archive(target, [other], tmp_path, jobs=1))
    assert len(last.entries) == len(first.entries)
    assert last.entries.keys() < both.entries.keys()


@pytest.fixture
def library(tmp_path, monkeypatch) -> NvrtcLibrary:
    path = find_library()
    if path is None:
        pytest.skip("NVRTC is not installed; pip install nvidia-cuda-nvrtc-cu12")
    monkeypatch.setenv("GPUPC_SHIPPED_DIR", str(tmp_path))
    monkeypatch.setenv("GPUPC_CACHE_DIR", str(tmp_path / "cache"))
    return NvrtcLibrary(path)


def test_images_are_found_by_their_content(library, step, tmp_path, monkeypatch):
    build_archive("sm_80", [step], tmp_path, jobs=1)
    ahead = nvrtc.compile_image(library, step, "sm_80")
    image, compiled, _ = nvrtc.compile_source(library, [step], "sm_80")
    assert ahead.cached
    assert (ahead.path.read_bytes(), ahead.kernels) == (image, compiled)
    assert not nvrtc.compile_image(library, step, "sm_90").cached
    (tmp_path / "step.cuh").write_text("constexpr int step = 2;\n")
    assert not nvrtc.compile_image(library, step, "sm_80").cached


@pytest.mark.parametrize(("made_by", "cached"), [("11.8", True), ("12.0", True), ("99.0", False)])
def test_an_image_of_a_later_nvrtc_is_not_loaded(library, step, tmp_path, made_by, cached):
    path = build_archive("sm_80", [step], tmp_path, jobs=1)
    archive = shipped.Archive(path)
    binaries = {d: (entry.member, archive.content(d), entry.kernels) for d, entry in archive.entries.items()}
    shipped.write_archive(path, made_by, binaries)
    image = nvrtc.compile_image(library, step, "sm_80")
    assert image.cached == cached
