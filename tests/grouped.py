"""Kernels of a source file compiled together for the sanitizers: what its kernels share takes most of the time of each.

A library of all of them finds by the number that ends its own name which of them it is, and is copied for each.
"""

import re
import shutil
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gpupc_impl.backends.base import PACKAGE_ROOT, KernelSource
from gpupc_impl.backends.host_kernels import HostKernel
from gpupc_impl.backends.simt import build
from gpupc_impl.backends.sources import source_name

CHOICE = """
#include <dlfcn.h>
namespace {
const simt::ExportedKernel& chosen() {
    Dl_info own;
    dladdr(reinterpret_cast<void*>(&chosen), &own);
    return kernels[atoi(strrchr(own.dli_fname, '-') + 1)];
}
}
extern "C" SIMT_API const simt::ExportedKernel simt_kernel;
const simt::ExportedKernel simt_kernel = chosen();
"""
TYPE = re.compile(r"\b(unsigned char|unsigned short|short|float|double|[2-9])\b")
"""What kernels that differ in it do alike: a type, or a level beyond the first."""
NO_RACES = ("-O0", "-DGPUPC_TSAN")  # flags for kernels in which nobody looks for races, beside those in which one does


def unit_of(source: Path, expressions: Iterable[str]) -> str:
    """The translation unit that exports one of a file's kernels, which its file's name tells."""
    lines = ["#include <stdlib.h>", "#include <string.h>"]
    lines += [f'#include "{name}"' for name in ("backends/simt/simt.hpp", source_name(source))]
    lines += ['#include "backends/simt/export.hpp"', "namespace {", "template <auto kernel>"]
    lines += ["constexpr simt::ExportedKernel exported = {&simt::Export<kernel>::codes[0].text,"]
    lines += ["    sizeof(simt::Export<kernel>::codes) / sizeof(simt::Code) - 1, simt::Export<kernel>::run};"]
    pointers = list(enumerate(expressions))
    lines += [f"constexpr auto kernel_{number} = &{expression};" for number, expression in pointers]
    lines += ["const simt::ExportedKernel kernels[] = {"]
    lines += [*(f"    exported<kernel_{number}>," for number, _ in pointers), "};", "}"]
    return "\n".join(lines) + CHOICE


def one_of_each(kernels: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Of kernels, as (source, expression), the first of those that differ only in types and levels beyond the first."""
    found: dict[tuple[str, str], tuple[str, str]] = {}
    for source, expression in kernels:
        found.setdefault((source, TYPE.sub("T", expression)), (source, expression))
    return set(found.values())


class Groups:
    """Builds kernels with the others of their file, where `build` would build each alone.

    Args:
        kernels: (source, expression) of each kernel; others are built alone.
        folder: for the copies.
        raced: those in which the thread sanitizer looks for races.
    """

    def __init__(self, kernels: Iterable[tuple[str, str]], folder: Path, raced: set[tuple[str, str]]):
        self.folder, self.alone = folder, build.build_kernel
        self.raced: dict[Path, dict[str, bool]] = {}
        for source, expression in map(tuple, kernels):
            self.raced.setdefault((PACKAGE_ROOT / source).resolve(), {})[expression] = (source, expression) in raced
        self.locks: dict[tuple[Path, bool], threading.Lock] = {}  # the first who asks has a group compiled

    def build_kernel(self, kernel: KernelSource, sanitizers: tuple[str, ...] = ()) -> Path:
        """In place of ``build.build_kernel``. Declarations of structs are not checked: all other tests do."""
        source, expression = kernel.path.resolve(), kernel.expression
        raced, for_races = self.raced.get(source, {}), sanitizers == ("thread",)
        if expression not in raced:
            return self.alone(kernel, sanitizers)
        plain = for_races and not raced[expression]
        members = [each for each in raced if not for_races or raced[each] != plain]
        unit = unit_of(source, members)
        flags = (*build.BASE_FLAGS, *(NO_RACES if plain else build._optimisation(sanitizers)), "-shared")

        def make(output: Path) -> None:
            native = build.for_this_cpu(build.find_compiler())
            build.compile_text(unit, (*flags, *native, "-o", str(output)))

        with self.locks.setdefault((source, plain), threading.Lock()):
            label, material = f"kernels of {source_name(source)}", build._material(unit, source, flags)
            whole = build.cached(label, material, make)
            self.folder.mkdir(exist_ok=True)
            copy = self.folder / f"{whole.stem}-{members.index(expression)}.so"
            if not copy.exists():  # another thread may have loaded it, which writing it again would crash
                shutil.copy(whole, copy)
        return copy


_required: set[str] = set()
_launched: set[str] = set()


def install(kernels: Iterable[tuple[str, str]], folder: str, room: str, every_variant: bool) -> None:
    """Have this process build these kernels in groups, and note which are launched."""
    kernels = list(map(tuple, kernels))
    raced = {kernel for kernel in (kernels if every_variant else one_of_each(kernels)) if room in kernel[0]}
    build.build_kernel = Groups(kernels, Path(folder), raced).build_kernel
    _required.update(expression for _, expression in kernels)
    launch = HostKernel._launch

    def noted(self: HostKernel, *launched: Any) -> None:
        _launched.add(self.name)
        launch(self, *launched)

    HostKernel._launch = noted


def check_launched() -> None:
    missed = sorted(_required - _launched)
    assert not missed, f"not launched: {missed}"
