"""Builds the libraries of authors' programs from clones that the user made: ``python -m baselines.peers.build --help``.

Nothing is downloaded. The clone's sources must have the checksums of the version for which the adapter was written. The
build needs nvcc, and no GPU.
"""

import argparse
import dataclasses
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

HERE = Path(__file__).parent


@dataclasses.dataclass(frozen=True)
class Program:
    """A program by other authors.

    Attributes:
        repository: the address at which the program is published.
        commit: the version that its adapter calls.
        sources: the files that are compiled or included, relative to the clone's root, with their sha256.
        flags: the flags of nvcc in the program's own build file.
        variable: the environment variable that its adapter reads.
        adapter: a file of this project that is compiled with the program.
    """

    repository: str
    commit: str
    sources: Mapping[str, str]
    flags: Sequence[str]
    variable: str
    adapter: str | None = None

    def mismatch(self, clone: Path) -> str | None:
        """Return why a folder is not a clone of this version; None if it is."""
        for name, expected in self.sources.items():
            file = clone / name
            if not file.is_file():
                return f"{clone} has no {name}: clone {self.repository} and check out {self.commit}"
            if hashlib.sha256(file.read_bytes()).hexdigest() != expected:
                return f"{file} is not that of commit {self.commit}: check it out in the clone of {self.repository}"
        return None

    def command(self, clone: Path, output: Path, architecture: str) -> list[str]:
        """Return the command that builds the library."""
        files = [clone / name for name in self.sources if name.endswith(".cu")]
        files += [HERE / self.adapter] if self.adapter else []
        folders = dict.fromkeys(f"-I{(clone / name).parent}" for name in self.sources)
        general = [f"-arch={architecture}", "--shared", "-Xcompiler", "-fPIC"]
        return ["nvcc", *self.flags, *general, *folders, "-o", str(output), *map(str, files)]


PROGRAMS = {
    "cupc": Program(
        repository="https://github.com/LIS-Laboratory/cupc",
        commit="8ed927c72e45fc20cc9f3956dcfa2d6ffa200316",
        sources={
            "cuPC-S.cu": "7ef864e75621260e76fb10d341cc54bc17e90c6c63d9e6cb60dac189889d21b1",
            "cuPC-S.h": "e0b6242cfe1128f87f0ced943a50d86cacdb739a91da5b7e2f8eb090ebac919c",
            "gpuerrors.h": "8abf9860397e7c358617420e761a356ebdc8976c1599557472949bb107d9d725",
        },
        flags=("-O3",),
        variable="GPUPC_CUPC_LIBRARY",
    ),
    "gpucmiknn": Program(
        repository="https://github.com/ChristopherSchmidt89/gpucmiknn",
        commit="9b4165cb3c0a8bd4553aae450b2acdf5dedd8157",
        sources={
            "pc_adjacency_search/src/gpucmiknn_cuda.cu": (
                "fd147a5ba5dc4fc17b9e3aeecd019a9f89b832083e7cf3243ec72a3a821007f8"
            ),
            "pc_adjacency_search/src/gpucmiknn.h": "1c7d5912137b8dd8ddd04e2dc85ce67c796801cd56e4f8d26f8e5a68ec2281de",
        },
        flags=("-O2", "-DNDEBUG", "-rdc=true", "--maxrregcount", "63"),
        variable="GPUPC_GPUCMIKNN_LIBRARY",
        adapter="gpucmiknn_authors.cu",
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m baselines.peers.build", description=__doc__.partition("\n")[0])
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("clone", type=Path, help="the folder of the clone")
    parser.add_argument("--output", type=Path, help="the library (default: libPROGRAM.so in the present folder)")
    parser.add_argument(
        "--arch", default="native", help="the GPU's architecture, such as sm_90 (default: this machine's)"
    )
    options = parser.parse_args(argv)
    program = PROGRAMS[options.program]
    if reason := program.mismatch(options.clone):
        parser.error(reason)
    if shutil.which("nvcc") is None:
        parser.error("nvcc is not on the PATH; install the CUDA toolkit, or build on a machine that has it (--arch)")
    output = (options.output or Path(f"lib{options.program}.so")).resolve()
    if code := subprocess.run(program.command(options.clone, output, options.arch), check=False).returncode:
        return code
    print(f"export {program.variable}={output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
