"""What a process keeps of kernels that it has loaded: as long as no file that went into them is written to."""

import threading
from pathlib import Path

import numpy as np
import pytest

from gpupc_impl.backends import KernelCompilationError, host, open_backend
from gpupc_impl.backends.compilations import Compilations, reported
from gpupc_impl.backends.machine import available_cores
from gpupc_impl.backends.simt import build
from gpupc_impl.backends.sources import SourceCache

KERNEL = '#include "step.cuh"\nextern "C" __global__ void advance(int* x) { x[0] += STEP; }\n'


@pytest.fixture
def source(tmp_path):
    (tmp_path / "step.cuh").write_text("#define STEP 1\n")
    (tmp_path / "advance.cu").write_text(KERNEL)
    return tmp_path / "advance.cu"


@pytest.fixture
def compiled(monkeypatch, tmp_path):
    """Kernels that the host backend built, in order, none of which is known or on disk before."""
    monkeypatch.setenv("GPUPC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(host.HostBackend, "_loaded", SourceCache())
    built, build_kernel = [], build.build_kernel

    def noted(kernel, *sanitizers):
        built.append(kernel.expression)
        return build_kernel(kernel, *sanitizers)

    monkeypatch.setattr(build, "build_kernel", noted)
    return built


def advanced(source) -> int:
    """What a new backend makes of 0."""
    backend = open_backend("host")
    x = backend.full(1, 0, np.int32)
    backend.kernel(source, "advance")([1], [1], [x])
    return int(backend.download(x)[0])


def test_backends_share_what_is_loaded(source, compiled):
    assert [advanced(source) for _ in range(3)] == [1, 1, 1]
    assert compiled == ["advance"]


@pytest.mark.parametrize("name", ["step.cuh", "advance.cu"])
def test_what_was_written_to_is_compiled_again(source, compiled, name):
    assert advanced(source) == 1
    text = (source.parent / name).read_text()
    (source.parent / name).write_text(text.replace("STEP 1", "STEP 22").replace("+= STEP", "+= 22 * STEP"))
    assert [advanced(source) for _ in range(2)] == [22, 22]
    assert len(compiled) == 2


def test_sources_that_are_gone_are_missed(source, compiled):
    assert advanced(source) == 1
    source.unlink()
    with pytest.raises(KernelCompilationError, match=r"kernel source .*advance\.cu' does not exist"):
        advanced(source)


def fails() -> int:
    raise KernelCompilationError("no")


def test_failures_are_not_kept(source):
    known: SourceCache[int] = SourceCache()

    def made(key: str, path: Path, number: int) -> int:
        return known.get(key, [path], lambda: number, lambda compiled: compiled)

    with pytest.raises(KernelCompilationError):
        known.get("key", [source], fails, int)
    assert made("key", source, 3) == 3
    assert known.get("key", [source], fails, int) == 3
    assert made("other", source, 4) == 4
    assert [made("key", source.parent / "none.cu", n) for n in (5, 6)] == [3, 3]
    assert [made("gone", source.parent / "none.cu", n) for n in (5, 6)] == [5, 6]


def test_what_was_prefetched_is_compiled_once(source):
    known: SourceCache[int] = SourceCache()
    compiled = []
    for _ in range(2):
        known.prefetch("key", [source], lambda: compiled.append("key") or 3)
    known.compilations.finish()
    assert known.is_ready("key", [source])
    assert known.get("key", [source], lambda: compiled.append("again"), lambda number: number + 1) == 4
    assert compiled == ["key"]


def test_a_failure_shows_where_the_kernel_is_requested(source):
    known: SourceCache[int] = SourceCache()
    known.prefetch("key", [source], fails)
    known.compilations.finish()
    with pytest.raises(KernelCompilationError, match="no"):
        known.get("key", [source], lambda: 3, int)
    assert known.get("key", [source], lambda: 3, int) == 3


def test_what_was_prefetched_before_a_change_is_not_used(source):
    known: SourceCache[int] = SourceCache()
    known.prefetch("key", [source], lambda: 1)
    source.write_text(KERNEL + "// changed\n")
    assert not known.is_ready("key", [source])
    assert known.get("key", [source], lambda: 2, int) == 2


def test_waiting_is_reported_and_queued_requests_are_overtaken():
    compilations, begin, reports = Compilations(), threading.Event(), []
    for number in range(available_cores()):
        compilations.prefetch(number, begin.wait)
    compilations.prefetch("queued", lambda: "thread")
    assert compilations.result("queued", lambda: "at once") == "at once"

    def report(done: int, requested: int) -> None:
        reports.append((done, requested))
        begin.set()

    with reported(report):
        assert compilations.result(0, begin.wait)
    assert reports == [(1, available_cores() + 1), (0, 0)]
    compilations.finish()
    compilations.cancel()
    assert not compilations.is_ready(0)
