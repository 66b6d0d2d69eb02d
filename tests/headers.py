"""What kernels include of the system's headers, read by the compiler once for all kernels with the same sanitizers.

To read them takes as long as to compile most kernels.
"""

from __future__ import annotations

import hashlib
import os
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
        flags = (*build.BASE_FLAGS, *build._optimisation(sanitizers), build._NATIVE)
        with tempfile.TemporaryDirectory(dir=known.parent) as folder:
            build.run_compiler((*flags, "-x", "c++-header", str(header), "-o", f"{folder}/read"))
            os.replace(f"{folder}/read", read)
    return [*compiler.command, "-include", str(header)]


def write(path: Path, content: bytes) -> None:
    """Write a file whole, if it is not there."""
    if not path.exists():
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(content)
        os.replace(file.name, path)
