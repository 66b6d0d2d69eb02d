"""Kernels of a source file compiled together for the sanitizers: what its kernels share takes most of the time of each.

A library or program of all of them finds by the number that ends its own name which of them it is, and is copied for
each.
"""

import shutil
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from gpupc_impl.backends.base import PACKAGE_ROOT
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


class Groups:
    """Builds kernels with the others of their file, where `build` would build each alone.

    Args:
        kernels: (source, expression) of each kernel; others are built alone.
        folder: for the copies.
    """

    def __init__(self, kernels: Iterable[tuple[str, str]], folder: Path):
        self.folder, self.alone = folder, (build.build_kernel, build.build_replay)
        self.members: dict[Path, list[str]] = defaultdict(list)
        for source, expression in dict.fromkeys(map(tuple, kernels)):
            self.members[(PACKAGE_ROOT / source).resolve()].append(expression)
        self.locks = {source: threading.Lock() for source in self.members}  # the first who asks has a group compiled

    def build_kernel(self, source: Path, expression: str, structs: Any, sanitizers: tuple[str, ...], *others) -> Path:
        """In place of ``build.build_kernel``. Declarations of structs are not checked: all other tests do."""
        if expression not in self.members[source]:
            return self.alone[0](source, expression, structs, sanitizers, *others)
        return self._copy(source, expression, sanitizers, ("-shared",), ".so", lambda: ())

    def build_replay(self, source: Path, expression: str) -> Path:
        """In place of ``build.build_replay``."""
        source = source.resolve()
        if expression not in self.members[source]:
            return self.alone[1](source, expression)
        return self._copy(source, expression, ("thread",), (), "", build.replay_objects)

    def _copy(
        self,
        source: Path,
        expression: str,
        sanitizers: tuple[str, ...],
        more: tuple[str, ...],
        suffix: str,
        objects: Callable[[], Iterable[Path]],
    ) -> Path:
        members = self.members[source]
        unit, flags = unit_of(source, members), (*build.BASE_FLAGS, *build._optimisation(sanitizers), *more)
        beside = (source, build.SIMT / "runtime.cpp", build.SIMT / "replay.cpp")

        def make(output: Path, native: tuple[str, ...]) -> None:
            build.compile_text(unit, (*flags, *native, *map(str, objects()), "-o", str(output)))

        with self.locks[source]:
            whole = build.cached(
                f"kernels of {source_name(source)}", build._material(unit, beside, flags), make, suffix
            )
            self.folder.mkdir(exist_ok=True)
            copy = self.folder / f"{whole.stem}-{members.index(expression)}{suffix}"
            if not copy.exists():  # another thread may have loaded it, which writing it again would crash
                shutil.copy(whole, copy)
        return copy


def install(kernels: Iterable[tuple[str, str]], folder: str) -> None:
    """Have this process build these kernels in groups."""
    build.build_kernel = Groups(kernels, Path(folder)).build_kernel
