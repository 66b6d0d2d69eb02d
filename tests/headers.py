"""What kernels include of the system's headers, read by the compiler once for all tests.

To read them takes as long as to compile most kernels. GCC looks into a folder of what it has read, and takes what was
read with the flags that it is called with; where it finds nothing, it reads the headers as ever.
"""

from __future__ import annotations

import hashlib
import os
import shlex
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


def name_compiler() -> None:
    """Have CXX name the compiler with these headers, here and in every process started from here."""
    compiler = build.find_compiler()
    if "clang" in compiler.version:
        return
    digest = hashlib.sha256(repr((compiler, HEADERS)).encode()).hexdigest()
    header = build.open_cache("headers") / digest / "system.hpp"
    header.with_name("system.hpp.gch").mkdir(parents=True, exist_ok=True)
    write(header, HEADERS.encode())
    os.environ["CXX"] = shlex.join([*compiler.command, "-include", str(header)])
    read()


def read(*sanitizers: str) -> None:
    """Read the headers for kernels with these sanitizers, if the compiler is GCC and they have not been read."""
    *_, last = build.find_compiler().command
    known = Path(f"{last}.gch")
    name = ",".join(sanitizers) or "none"
    if known.is_dir() and not (known / name).exists():
        flags = (*build._BASE_FLAGS, *build._optimisation(sanitizers), build._NATIVE)
        with tempfile.TemporaryDirectory(dir=known.parent) as folder:
            build.run_compiler((*flags, "-x", "c++-header", last, "-o", f"{folder}/read"))
            os.replace(f"{folder}/read", known / name)


def write(path: Path, content: bytes) -> None:
    """Write a file whole, if it is not there."""
    if not path.exists():
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(content)
        os.replace(file.name, path)
