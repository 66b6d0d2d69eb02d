"""What a process keeps of kernels that it has loaded: as long as no file that went into them is written to."""

import numpy as np
import pytest

from gpupc_impl.backends import KernelCompilationError, host, open_backend
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
    monkeypatch.setattr(host, "_loaded", SourceCache())
    built, build_kernel = [], build.build_kernel
    monkeypatch.setattr(build, "build_kernel", lambda *what: (built.append(what[1]), build_kernel(*what))[1])
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


def test_another_cache_gets_its_own(source, compiled, monkeypatch, tmp_path):
    assert advanced(source) == 1
    monkeypatch.setenv("GPUPC_CACHE_DIR", str(tmp_path / "other"))
    assert advanced(source) == 1
    assert len(list((tmp_path / "other" / "host").glob("*.so"))) == 1


def test_failures_are_not_kept(source):
    known: SourceCache[int] = SourceCache()

    def fails() -> int:
        raise KernelCompilationError("no")

    with pytest.raises(KernelCompilationError):
        known.get("key", [source], fails)
    assert known.get("key", [source], lambda: 3) == 3
    assert known.get("key", [source], fails) == 3
    assert known.get("other", [source], lambda: 4) == 4
    assert [known.get("key", [source.parent / "none.cu"], lambda n=n: n) for n in (5, 6)] == [3, 3]
    assert [known.get("gone", [source.parent / "none.cu"], lambda n=n: n) for n in (5, 6)] == [5, 6]
