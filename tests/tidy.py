"""clang-tidy on every kernel, as the host backend compiles it: ``python -m tests.tidy``, which `make lint` calls."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gpupc_impl.backends.base import PACKAGE_ROOT, KernelSource
from gpupc_impl.backends.simt.build import find_compiler, kernel_unit
from gpupc_impl.core.registry import listed_kernels, method_packages

ROOT = PACKAGE_ROOT.parent
TIDY = Path(sys.executable).with_name("clang-tidy")
LEVEL = 2
"""Up to which level kernels are looked at: each is another instance of the same template."""


def units() -> Iterator[tuple[str, str]]:
    """The translation unit of each kernel file with all its kernels, by a name."""
    kernels: dict[str, list[KernelSource]] = {}
    for kernel in listed_kernels(method_packages(), LEVEL):
        kernels.setdefault(str(kernel.source), []).append(kernel)
    for source, (first, *others) in kernels.items():
        more = (
            f"[[maybe_unused]] static const auto also_{k} = &{other.expression};\n" for k, other in enumerate(others)
        )
        yield source.replace("/", "-"), kernel_unit(first) + "".join(more)


def complaint(name: str, unit: str, folder: Path) -> str:
    """What clang-tidy says of a unit; nothing when all is well."""
    path = folder / f"{name}.cpp"
    path.write_text(unit)
    command = [TIDY, f"--config-file={ROOT / '.clang-tidy'}", "--quiet", path]
    compiled = ["--", "-x", "c++", "-std=c++17", "-pthread", "-I", PACKAGE_ROOT]
    done = subprocess.run([*command, *compiled], capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def main() -> int:
    compiler = find_compiler()
    if "ziglang" in compiler.command:
        print("clang-tidy: skipped; it needs the headers of g++ or clang++, and neither is here")
        return 0
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        said = list(pool.map(lambda each: complaint(*each, Path(folder)), units()))
    print("".join(said), end="")
    return 1 if any(said) else 0


if __name__ == "__main__":
    sys.exit(main())
