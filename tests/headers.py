"""What kernels include of the system's headers, read by the compiler once for all kernels with the same sanitizers.

To read them takes as long as to compile most kernels. ``python -m tests.headers build/quick/system.hpp`` reads them for
`quick-c++`, with which `make test` compiles.
"""

import hashlib
import os
import sys
import tempfile
from pathlib import Path

from gpupc_impl.backends.simt import build

HEADERS = """
#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <type_traits>
#include <utility>
#ifdef __AVX512VPOPCNTDQ__
#include <immintrin.h>
#endif
"""


def command(*sanitizers: str) -> list[str]:
    """How to call the compiler for kernels with these sanitizers; GCC with the headers, which it has read then."""
    compiler = build.find_compiler()
    if "clang" in compiler.version:
        return [*compiler.command]
    digest = hashlib.sha256(repr((compiler, HEADERS)).encode()).hexdigest()
    header = build.open_cache("headers") / digest / "system.hpp"
    known = header.with_name("system.hpp.gch")  # a folder: GCC takes the one that was read with its flags
    known.mkdir(parents=True, exist_ok=True)
    write(header, HEADERS.encode())
    read = known / ",".join(sanitizers)
    if not read.exists():
        read_once(header, read, build._optimisation(sanitizers))
    return [*compiler.command, "-include", str(header)]


def read_once(header: Path, read: Path, optimisation: tuple[str, ...]) -> None:
    """Have GCC read a header, as it does for kernels, and write what it has read."""
    flags = (*build.BASE_FLAGS, *optimisation, *build.for_this_cpu(build.find_compiler()))
    with tempfile.TemporaryDirectory(dir=header.parent) as folder:
        build.run_compiler((*flags, "-x", "c++-header", str(header), "-o", f"{folder}/read"))
        os.replace(f"{folder}/read", read)


def write(path: Path, content: bytes) -> None:
    """Write a file whole, if it is not there."""
    if not path.exists():
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(content)
        os.replace(file.name, path)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.parent.mkdir(parents=True, exist_ok=True)
    write(target, HEADERS.encode())
    if "clang" not in build.find_compiler().version:
        read_once(target, Path(f"{target}.gch"), ("-O1",))
