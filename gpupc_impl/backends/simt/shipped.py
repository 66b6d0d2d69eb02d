"""Libraries of the host backend that come with a wheel: the CPUs that they are for, and how they are found, unpacked
and compiled ahead."""

import functools
import platform
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gpupc_impl.backends import shipped
from gpupc_impl.backends.arguments import Struct, declaration_checks
from gpupc_impl.backends.machine import cpu_facts
from gpupc_impl.backends.simt import build
from gpupc_impl.backends.sources import source_name, sources_of

_V2 = frozenset({"cx16", "lahf_lm", "pni", "popcnt", "sse4_1", "sse4_2", "ssse3"})
_V3 = _V2 | {"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"}
_V4 = _V3 | {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"}
TARGETS: Mapping[str, Mapping[str, frozenset[str]]] = {
    "x86_64": {"x86-64-v4": _V4, "x86-64-v3": _V3, "x86-64-v2": _V2},
    "aarch64": {"armv8-a": frozenset()},
}
"""By the machine's architecture: the values of ``-march``, the best first, each with the flags that Linux must list for
the CPU."""

_RUNTIME = build.SIMT / "runtime.cpp"
_FLAGS = (
    *build.BASE_FLAGS,
    "-O3",
    "-shared",
    "-s",
    "-ffunction-sections",  # so that the linker can leave out a source's other kernels
    "-Wl,--gc-sections,--as-needed,-z,noseparate-code",
)


def target() -> str | None:
    """The best target that this machine's CPU can run and that has an archive."""
    return next((name for name in runnable_targets() if shipped.archive_of(name) is not None), None)


def runnable_targets() -> list[str]:
    """The targets that this machine's CPU can run, the best first."""
    return [name for name, features in TARGETS.get(platform.machine(), {}).items() if features <= _features()]


def compiler() -> str | None:
    """The compiler of the libraries for this machine's CPU, and their target; None if there is no archive."""
    name = target()
    archive = name and shipped.archive_of(name)
    return f"{archive.compiler}, ahead for {name}" if archive else None


@functools.cache
def _features() -> frozenset[str]:
    """The flags that Linux lists for every core."""
    return frozenset.intersection(*(frozenset(line.split()) for line in cpu_facts("flags") or [""]))


def kernel(source: Path, expression: str, structs: Sequence[Struct], constants: Mapping[str, int]) -> Path | None:
    """The library of a kernel, unpacked into the cache; None if no archive for this CPU has it."""
    digest_of = functools.partial(kernel_digest, source, expression, structs, constants)
    return _unpacked(f"{expression} of {source_name(source)}", digest_of)


def runtime() -> Path | None:
    """The library of the runtime, unpacked into the cache; None if no archive for this CPU has it."""
    return _unpacked("the runtime", runtime_digest)


def _unpacked(label: str, digest_for: Callable[[str], str]) -> Path | None:
    """A library of the archive for this CPU in the cache, given its content digest for a target."""
    name = target()
    archive = name and shipped.archive_of(name)
    if not name or not archive or (digest := digest_for(name)) not in archive.entries:
        return None

    def unpack(output: Path, native: tuple[str, ...]) -> None:
        output.write_bytes(archive.content(digest))

    try:
        return build.cached(label, [digest], unpack, ".so", "unpacked")
    except shipped.DamagedArchive:
        return None


def kernel_digest(
    source: Path, expression: str, structs: Sequence[Struct], constants: Mapping[str, int], target: str
) -> str:
    """The content digest of the library of a kernel."""
    unit = _kernel_unit(source, expression, structs, constants)
    return shipped.content_digest(target, _FLAGS, unit, sources_of(*build.BESIDE_KERNELS, source))


def runtime_digest(target: str) -> str:
    """The content digest of the library of the runtime."""
    return shipped.content_digest(target, _FLAGS, sources_of(_RUNTIME))


def compile_kernel(
    source: Path,
    expression: str,
    structs: Sequence[Struct],
    constants: Mapping[str, int],
    target: str,
    output: Path,
) -> None:
    """Compile the library of a kernel for an archive."""
    unit = _kernel_unit(source, expression, structs, constants)
    build.compile_text(unit, (*_FLAGS, f"-march={target}", "-o", str(output)))


def compile_runtime(target: str, output: Path) -> None:
    """Compile the library of the runtime for an archive."""
    flags = (*_FLAGS, "-ftls-model=initial-exec", f"-march={target}")
    build.run_compiler((*flags, str(_RUNTIME), "-o", str(output)))


def _kernel_unit(source: Path, expression: str, structs: Sequence[Struct], constants: Mapping[str, int]) -> str:
    return build.kernel_unit(source, expression, declaration_checks({expression: structs}, constants))
