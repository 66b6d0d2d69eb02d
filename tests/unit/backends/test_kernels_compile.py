"""Every kernel, compiled as the CUDA backend compiles it, for the architectures we support. Needs no device."""

import re
from pathlib import Path

import numpy as np
import pytest

from gpupc_impl.backends import KernelCompilationError, KernelSource, Pointer, Struct, nvrtc
from gpupc_impl.backends.base import PACKAGE_ROOT
from gpupc_impl.backends.nvrtc import NvrtcLibrary, find_library
from gpupc_impl.backends.sources import ASSERTIONS, sources_of
from gpupc_impl.gaussian.level_kernels import GENERAL_LEVELS
from gpupc_impl.integers import round_up
from workflow.lib.shipped import all_kernels

MAX_LEVEL = 10
USUAL_LEVEL = 3
"""Kernels of deeper levels, which differ from those of this one in a number, are compiled in slow tests."""
HASTE = "--Ofast-compile=max"
"""NVRTC's option for machine code that is not optimised, in a twentieth of the time; slow tests compile without it."""


def kernels_up_to(level: int) -> dict[str, list[KernelSource]]:
    """The kernels of each source."""
    kernels: dict[str, list[KernelSource]] = {}
    for kernel in all_kernels(level):
        kernels.setdefault(kernel.source, []).append(kernel)
    return kernels


KERNELS = kernels_up_to(MAX_LEVEL)


@pytest.fixture(scope="module")
def library() -> NvrtcLibrary:
    path = find_library()
    if path is None:
        pytest.skip("NVRTC is not installed; pip install nvidia-cuda-nvrtc-cu12")
    return NvrtcLibrary(path)


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("GPUPC_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "cuda"


def by_level() -> list:
    """Sources with kernels, to be compiled together: those of the usual levels, and in slow tests the others."""
    groups = []
    for source, usual in kernels_up_to(USUAL_LEVEL).items():
        groups.append(pytest.param(usual, id=source))
        names = {kernel.expression for kernel in usual}
        if deeper := [kernel for kernel in KERNELS[source] if kernel.expression not in names]:
            groups.append(pytest.param(deeper, id=f"{source}-deeper", marks=pytest.mark.slow))
    return groups


@pytest.mark.parametrize("kernels", by_level())
def test_every_kernel_compiles(library, kernels, monkeypatch):
    monkeypatch.setattr(nvrtc, "NVRTC_OPTIONS", (*nvrtc.NVRTC_OPTIONS, HASTE))
    assert check_kernels(library, kernels, "sm_80").startswith(b"\x7fELF")


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
@pytest.mark.parametrize("source", KERNELS)
def test_every_kernel_compiles_as_it_runs(library, source, architecture):
    assert check_kernels(library, KERNELS[source], architecture).startswith(b"\x7fELF")


def check_kernels(library, kernels, architecture):
    """Compile kernels, and look at what Python reads of them and at their arithmetic; returns the image."""
    image, entries, ptx = nvrtc.compile_source(library, kernels, architecture)
    assert len({entry.name for entry in entries.values()}) == len(kernels)
    for kernel in kernels:
        entry = entries[kernel.expression]
        assert len(nvrtc.parameters(entry, kernel.structs)) == len(entry.parameters) > 0
    # Arithmetic without a rounding mode may be contracted, and ftz flushes: neither happens on the host backend. The
    # approximation from which `quotient` starts (statistic.cuh) exists with ftz alone; the bound in level_one_tile.cu
    # covers the roots that are flushed.
    assert re.findall(r"\b(?:add|sub|mul)\.f(?:32|64)|(?<!rcp\.approx)(?<!sqrt\.approx)\.ftz\b", ptx) == []
    return image


def test_every_kernel_file_is_used():
    used = {PACKAGE_ROOT / name for name in sources_of(*(PACKAGE_ROOT / source for source in (ASSERTIONS, *KERNELS)))}
    there = {path for suffix in ("*.cu", "*.cuh") for path in PACKAGE_ROOT.rglob(suffix)}
    assert there - used == set()


def test_every_level_is_listed():
    expressions = {kernel.expression for kernels in KERNELS.values() for kernel in kernels}
    for level in range(1, MAX_LEVEL + 1):
        own, general = f"Exactly<{level}>", f"UpTo<{round_up(level, GENERAL_LEVELS)}>"
        assert any(own in expression or general in expression for expression in expressions)


KERNEL = """
#include "header.cuh"
template <class T, int L>
__global__ void scale(const T* in, T* out, long long n, T factor, int offset, unsigned char flag, bool last) {
    if (n > offset) out[0] = in[0] * factor + VALUE * L + flag + last;
}
__global__ void nothing() {}
"""


@pytest.fixture
def source(tmp_path) -> str:
    (tmp_path / "header.cuh").write_text("#define VALUE 1\n")
    path = tmp_path / "scale.cu"
    path.write_text(KERNEL)
    return str(path)


def test_entries_tell_names_and_parameters(library, source):
    kernels = [KernelSource(source, expression) for expression in ("scale<double, 3>", "scale<float, 2>", "nothing")]
    _, entries, _ = nvrtc.compile_source(library, kernels, "sm_80")
    assert entries["scale<double, 3>"].parameters == ("u64", "u64", "u64", "f64", "u32", "u8", "u8")
    assert entries["scale<float, 2>"].parameters == ("u64", "u64", "u64", "f32", "u32", "u8", "u8")
    assert entries["nothing"] == nvrtc.CompiledKernel("_Z7nothingv", ())


STRUCTS = """
struct Pair {
    int first;
    const float* second;
};
template <class T>
struct Outer {
    Pair pair;
    T value;
};
template <class T>
__global__ void take(const __grid_constant__ Outer<T> outer, int* out, const Pair pair) {
    out[0] = outer.pair.first + pair.first;
}
"""
PAIR = Struct("Pair", first=np.int32, second=Pointer(np.float32))


def test_structs_are_checked_against_their_declarations(library, tmp_path):
    path = tmp_path / "structs.cu"
    path.write_text(STRUCTS)
    outer = Struct("Outer<double>", pair=PAIR, value=np.float64)
    kernel = KernelSource(str(path), "take<double>", (outer, PAIR))
    _, entries, _ = nvrtc.compile_source(library, [kernel], "sm_90")
    entry = entries["take<double>"]
    assert entry.parameters == ("b8[24]", "u64", "b8[16]")
    first, pointer, last = nvrtc.parameters(entry, kernel.structs)
    assert (first, last) == (outer, PAIR)
    assert pointer.encode(None, int) == bytes(8)
    for structs, said in (
        ((PAIR, outer), "Python passes these structs to take<double>: Pair, Outer<double>"),
        (
            (outer, Struct("Pair", first=np.int32, second=Pointer(np.float64))),
            r"declares second of Pair as double\* at byte 8",
        ),
        ((Struct("Outer<double>", pair=PAIR), PAIR), "Outer<double> has 16 bytes as Python declares it"),
    ):
        with pytest.raises(KernelCompilationError, match=said):
            nvrtc.compile_source(library, [kernel._replace(structs=structs)], "sm_90")


@pytest.mark.parametrize(
    ("text", "expression", "said"),
    [
        ("__global__ void broken() { int x = ; }", "broken", "expected an expression"),
        ("__global__ void broken() {}", "mended", '"mended" is undefined'),
        ('#include "missing.cuh"\n__global__ void broken() {}', "broken", "missing.cuh"),
    ],
)
def test_errors_hold_what_the_compiler_said(library, cache, tmp_path, text, expression, said):
    path = tmp_path / "broken.cu"
    path.write_text(text)
    with pytest.raises(KernelCompilationError, match="does not compile") as caught:
        nvrtc.compile_image(library, KernelSource(str(path), expression), "sm_90")
    for part in (expression, "broken.cu", "NVRTC", "-fmad=false", "-arch=sm_90", said):
        assert part in str(caught.value)


def test_a_missing_source_is_named(library, cache, tmp_path):
    with pytest.raises(KernelCompilationError, match=r"nowhere\.cu' does not exist"):
        nvrtc.compile_image(library, KernelSource(str(tmp_path / "nowhere.cu"), "kernel"), "sm_90")


def test_architecture_for_a_device(library):
    newest = max(library.getSupportedArchs())
    assert nvrtc.target_architecture(library, "90") == "sm_90"
    assert nvrtc.target_architecture(library, str(newest + 100)) == f"compute_{newest}"
    assert nvrtc.target_architecture(library, "20") is None


def test_a_newer_device_gets_ptx(library, source):
    image, entries, ptx = nvrtc.compile_source(library, [KernelSource(source, "nothing")], "compute_80")
    assert image.decode() == ptx
    assert f".entry {entries['nothing'].name}" in ptx


def test_cache_sees_changes_in_included_files(library, cache, source):
    compiled = [nvrtc.compile_image(library, KernelSource(source, "nothing"), "sm_80") for _ in range(2)]
    assert [image.cached for image in compiled] == [False, True]
    assert compiled[0].kernels == compiled[1].kernels
    assert compiled[0].path == compiled[1].path
    (Path(source).parent / "header.cuh").write_text("#define VALUE 2\n")
    assert not nvrtc.compile_image(library, KernelSource(source, "nothing"), "sm_80").cached
    assert not nvrtc.compile_image(library, KernelSource(source, "nothing"), "sm_90").cached


@pytest.mark.parametrize("suffix", [".cubin", ".json"])
@pytest.mark.parametrize("damage", [b"", b"{}", b"\x7fELF and more", None])
def test_a_damaged_cache_entry_is_built_again(library, cache, source, suffix, damage):
    before = nvrtc.compile_image(library, KernelSource(source, "nothing"), "sm_80")
    path = before.path.with_suffix(suffix)
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage)
    assert not nvrtc.compile_image(library, KernelSource(source, "nothing"), "sm_80").cached
    assert nvrtc.compile_image(library, KernelSource(source, "nothing"), "sm_80").kernels == before.kernels


def test_a_cache_that_cannot_be_written_is_named(library, source, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("GPUPC_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(KernelCompilationError, match="set GPUPC_CACHE_DIR"):
        nvrtc.compile_image(library, KernelSource(source, "nothing"), "sm_80")
