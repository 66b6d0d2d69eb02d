"""Compiling kernels: the cache, its damages and races, and what goes wrong."""

import contextlib
import grp
import hashlib
import logging
import os
import pwd
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from gpupc_impl import ownership
from gpupc_impl.backends import KernelCompilationError, KernelSource, open_backend
from gpupc_impl.backends.simt import build

TROUBLE = Path(__file__).parent / "kernels" / "trouble.cu"
ADD = """
import numpy as np
from gpupc_impl.backends import open_backend
backend = open_backend("host")
cells = backend.full(64, 1, np.int32)
backend.kernel({source!r}, "add_one")((1,), (64,), [cells, np.int32(64)])
assert (backend.download(cells) == 2).all()
"""


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache; the runtime, once loaded, needs none."""
    open_backend("host").kernel(TROUBLE, "nothing")
    monkeypatch.setenv("GPUPC_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "host"


@pytest.fixture
def source(tmp_path):
    """A kernel file that includes a header that includes another."""
    (tmp_path / "inner.cuh").write_text("constexpr int step = 1;\n")
    (tmp_path / "outer.cuh").write_text('  #  include "inner.cuh"\n')
    path = tmp_path / "add.cu"
    path.write_text(
        '#include "outer.cuh"\n#include "backends/simt/portable.cuh"\n'
        "__global__ void add(int* cells) { cells[threadIdx.x] += step; }\n"
    )
    return path


def add(source) -> int:
    backend = open_backend("host")
    cells = backend.full(4, 0, np.int32)
    backend.kernel(source, "add")((1,), (4,), [cells])
    return int(backend.download(cells)[0])


def test_a_kernel_is_compiled_once(cache, source, caplog):
    caplog.set_level(logging.INFO, "gpupc_impl.host")
    first, second = open_backend("host"), open_backend("host")
    kernel = first.kernel(source, "add")
    seconds = first.compile_seconds
    assert seconds > 0
    (entry,) = cache.iterdir()
    changed = entry.stat().st_mtime_ns
    assert first.kernel(source, "add") is kernel
    assert first.compile_seconds == seconds
    second.kernel(source, "add")
    assert [entry] == list(cache.iterdir())
    assert entry.stat().st_mtime_ns == changed
    (record,) = caplog.records
    assert record.message.startswith("compiled add of ")


def test_a_change_in_any_included_file_counts(cache, source):
    assert add(source) == 1
    (source.parent / "inner.cuh").write_text("constexpr int step = 5;\n")
    assert add(source) == 5
    assert len(list(cache.iterdir())) == 2


def foreign(entry):
    """Contents with a digest that fits, but nothing that loads."""
    return b"nonsense" + hashlib.sha256(b"nonsense").digest()


def flipped(entry):
    return entry[:2000] + bytes([entry[2000] ^ 1]) + entry[2001:]


@pytest.mark.parametrize("damage", [lambda entry: entry[: len(entry) // 2], lambda entry: b"", flipped, foreign])
def test_a_damaged_entry_is_built_again(cache, source, damage):
    entry = build.build_kernel(KernelSource(str(source), "add"))
    whole = entry.read_bytes()
    entry.write_bytes(damage(whole))
    assert add(source) == 1
    assert build.is_whole(entry)
    assert len(entry.read_bytes()) == len(whole)


def test_two_processes_may_compile_at_once(cache):
    command = [sys.executable, "-c", ADD.format(source=str(TROUBLE))]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for process in processes:
        _, said = process.communicate(timeout=120)
        assert process.returncode == 0, said
    entries = list(cache.iterdir())
    assert len(entries) == 2  # the runtime and the kernel
    assert all(build.is_whole(entry) for entry in entries)


def test_a_cache_that_cannot_be_written_is_named(source, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GPUPC_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(KernelCompilationError, match="set GPUPC_CACHE_DIR to a folder that can be written"):
        open_backend("host").kernel(source, "add")


def test_a_new_cache_is_the_callers_alone(cache, source):
    old = os.umask(0o002)
    try:
        entry = build.build_kernel(KernelSource(str(source), "add"))
    finally:
        os.umask(old)
    assert [path.stat().st_mode & 0o777 for path in (cache.parent, cache, entry)] == [0o700] * 3
    assert build.build_kernel(KernelSource(str(source), "add")) == entry


@pytest.mark.parametrize("which", ["cache", "host", "above"])
def test_a_cache_that_others_may_write_to_is_refused(cache, source, which, monkeypatch):
    build.build_kernel(KernelSource(str(source), "add"))
    folder = {"cache": cache.parent, "host": cache, "above": cache.parent.parent}[which]
    monkeypatch.setattr(ownership.grp, "getgrgid", lambda group: grp.struct_group(("team", "x", group, ["another"])))
    ownership._is_private.cache_clear()
    for mode in (0o777, 0o770):
        folder.chmod(mode)
        for kind in ["host"] if which == "host" else ["host", "cuda"]:
            with pytest.raises(KernelCompilationError, match=r"are not used: .* set GPUPC_CACHE_DIR to a folder"):
                build.open_cache(kind)
        with pytest.raises(KernelCompilationError, match="are not used"):
            build.build_kernel(KernelSource(str(source), "add"))
    folder.chmod(0o1777 if which == "above" else 0o755)
    assert build.build_kernel(KernelSource(str(source), "add")).exists()


def heed_interrupts():
    signal.signal(signal.SIGINT, signal.SIG_DFL)


SLOW_COMPILER = '#!/bin/sh\ncase "$*" in *--version*) echo slow; exit;; esac\nexec sleep 60\n'


@pytest.fixture
def compiling(cache, tmp_path):
    """A search, in a process group of its own, that has begun to compile with a compiler which takes a minute."""
    compiler, table = tmp_path / "compiler", tmp_path / "table.csv"
    compiler.write_text(SLOW_COMPILER)
    compiler.chmod(0o755)
    table.write_text("a,b,c\n" + "".join(f"{k % 7},{k % 5},{k * k % 11}\n" for k in range(30)))
    command = [sys.executable, "-m", "gpupc_impl", "skeleton", str(table), "--method", "cupc-s", "--backend", "host"]
    environment = {**os.environ, "CXX": str(compiler), "GPUPC_CACHE_DIR": str(cache.parent)}
    options = {"env": environment, "start_new_session": True, "stderr": subprocess.DEVNULL}
    # A shell that runs the tests in the background has them ignore SIGINT, which their children inherit.
    with subprocess.Popen(command, **options, preexec_fn=heed_interrupts) as process:
        try:
            begun, before = set(), None
            while not begun or begun != before:  # until all its threads wait for compilers
                assert process.poll() is None
                time.sleep(0.5)
                begun, before = set(cache.glob("building-*")), begun
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def test_ctrl_c_ends_a_search_that_has_more_to_compile(compiling):
    os.killpg(compiling.pid, signal.SIGINT)  # as a terminal does
    assert compiling.wait(50) == 130


def test_the_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("GPUPC_CACHE_DIR", "/somewhere")
    assert build.cache_folder() == Path("/somewhere")
    monkeypatch.delenv("GPUPC_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert build.cache_folder() == Path("/elsewhere/gpupc")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert build.cache_folder() == tmp_path / ".cache" / "gpupc"
    monkeypatch.delenv("HOME")
    assert build.cache_folder() == Path(pwd.getpwuid(os.getuid()).pw_dir) / ".cache" / "gpupc"
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)  # a user whom the system does not know
    with pytest.raises(KernelCompilationError, match="no home folder; set GPUPC_CACHE_DIR, or HOME"):
        build.open_cache("host")


@pytest.mark.parametrize(
    ("text", "expression", "message"),
    [
        ("__global__ void f() { nonsense(); }", "f", r"(?s)exit status 1\n.*c\+\+17.*add.cu:1.*nonsense"),
        ("__global__ void f() {}", "g<3>", "was not declared|undeclared identifier"),
        ("__global__ int f() { return 1; }", "f", "error"),
        ("struct S { int i; }; __global__ void f(S s) {}", "f", "Python passes these structs to f: none"),
        ("void lost(); __global__ void f() { lost(); }", "f", "compiled but cannot be loaded: .*lost"),
    ],
)
def test_what_does_not_compile_is_explained(cache, source, text, expression, message):
    source.write_text(text + "\n")
    with pytest.raises(KernelCompilationError, match=message):
        open_backend("host").kernel(source, expression)


def test_a_compiler_without_march_native_will_do(cache, source, tmp_path, monkeypatch):
    real = " ".join(build.find_compiler().command)
    wrapper = tmp_path / "compiler"
    wrapper.write_text(
        f'#!/bin/sh\ncase "$*" in *-march=native*) echo no native >&2; exit 1;; esac\nexec {real} "$@"\n'
    )
    wrapper.chmod(0o755)
    monkeypatch.setenv("CXX", str(wrapper))
    assert add(source) == 1


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="this switch is the only one here")
def test_the_portable_fiber_switch(tmp_path):
    """On other processors than x86-64 fibers switch by setjmp; here it is asked for."""
    words = Path(__file__).parent / "kernels" / "words.cu"
    script = f"""
import numpy as np
from gpupc_impl.backends import KernelLaunchError, open_backend
from gpupc_impl.backends.simt import build
build.BASE_FLAGS = (*build.BASE_FLAGS, "-DGPUPC_SETJMP")
backend = open_backend("host")
for _ in range(2):
    try:
        backend.kernel({str(TROUBLE)!r}, "barrier_against_warp")((8,), (64,), [])
    except KernelLaunchError as error:
        assert "deadlocked" in str(error)
    else:
        raise SystemExit("no deadlock")
    ones = backend.full(1024, 1, np.int32)
    backend.kernel({str(words)!r}, "scan")((1,), (1024,), [ones], 4096)
    assert (backend.download(ones) == np.arange(1, 1025)).all()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
