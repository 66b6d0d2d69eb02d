"""Builds the libraries of authors' programs from clones that the user made: ``python -m baselines.peers.build --help``.
Nothing is downloaded. The clone's sources must have the checksums of the version for which the adapter was written. The
build needs nvcc, or for a program without kernels g++, and no GPU."""

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
    """A program by other authors, in the version that its adapter calls."""

    repository: str
    commit: str
    sources: Mapping[str, str]  # files and folders compiled or included, relative to the clone, with their `_sha256`
    flags: Sequence[str]  # the compiler's flags in the program's own build file
    variable: str  # the environment variable that its adapter reads
    adapter: str | None = None  # a file of this project that is compiled with the program
    compiler: str = "nvcc"
    compiled: Sequence[str] = ()  # files of the folders in `sources` that are compiled, as all .cu files in it are

    def mismatch(self, clone: Path) -> str | None:
        """Return why a folder is not a clone of this version; None if it is."""
        for name, expected in self.sources.items():
            path = clone / name
            if not path.exists():
                return f"{clone} has no {name}: clone {self.repository} and check out {self.commit} with its submodules"
            if _sha256(path) != expected:
                return f"{path} is not that of commit {self.commit}: check it out in the clone of {self.repository}"
        return None

    def command(self, clone: Path, output: Path, architecture: str) -> list[str]:
        files = [clone / name for name in (*self.sources, *self.compiled) if name.endswith((".cu", ".cpp"))]
        files += [HERE / self.adapter] if self.adapter else []
        paths = [clone / name for name in self.sources]
        folders = dict.fromkeys(f"-I{path.parent if path.suffix else path}" for path in paths)
        general = [f"-arch={architecture}", "-Xcompiler"] if self.compiler == "nvcc" else []
        general += ["-fPIC", "--shared"]
        return [self.compiler, *self.flags, *general, *folders, "-o", str(output), *map(str, files)]


def _sha256(path: Path) -> str:
    """Return the sha256 of a file, or of the list of a folder's files with theirs."""
    if path.is_file():
        return hashlib.sha256(path.read_bytes()).hexdigest()
    files = sorted(file for file in path.rglob("*") if file.is_file())
    listed = "".join(f"{_sha256(file)} {file.relative_to(path).as_posix()}\n" for file in files)
    return hashlib.sha256(listed.encode()).hexdigest()


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
    "fastpgm": Program(
        repository="https://github.com/jjiantong/FastPGM",
        commit="743f2b2247d89c4661eaefa852ccbc207ed7cb40",
        sources={
            "include": "b426a094ad2114eca80f2a08de59bc4257aae6cd3cc58fcffa199e945496ddf3",
            "lib/gcem/include": "dad40f6ea85a998082628c6716a7370ef25ce1554f689b8720d8b281480f9250",
            "lib/stats/include": "5ff2c288609ed97580691cf1d171b670dd4d83168e26b469b77b271e91d760e1",
            "src/fastpgm": "411d13475ed28039918e4c37b5d712847d62dc922ccb82e60f3fbdd089b7519c",
        },
        flags=("-std=c++14", "-O3", "-DNDEBUG", "-fopenmp"),
        variable="GPUPC_FASTPGM_LIBRARY",
        adapter="fastpgm.cpp",
        compiler="g++",
        compiled=[
            *(f"src/fastpgm/{name}.cpp" for name in ("ChoiceGenerator", "Dataset", "Edge", "Network", "common")),
            *(f"src/fastpgm/{name}.cpp" for name in ("ContinuousNode", "DiscreteNode", "Node")),
            *(f"src/fastpgm/structure_learning/{name}.cpp" for name in ("CellTable", "IndependenceTest")),
            *(f"src/fastpgm/structure_learning/{name}.cpp" for name in ("PCStable", "StructureLearning")),
        ],
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m baselines.peers.build", description=__doc__.partition("\n")[0])
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("clone", type=Path, help="the folder of the clone")
    parser.add_argument("--output", type=Path, help="the library (default: libPROGRAM.so in the present folder)")
    parser.add_argument(
        "--arch", default="native", help="the GPU's architecture for nvcc, such as sm_90 (default: this machine's)"
    )
    options = parser.parse_args(argv)
    program = PROGRAMS[options.program]
    if reason := program.mismatch(options.clone):
        parser.error(reason)
    if shutil.which(program.compiler) is None:
        maker = "GCC" if program.compiler == "g++" else "the CUDA toolkit"
        parser.error(f"{program.compiler} is not on the PATH; install {maker}, or build where it is (--arch)")
    output = (options.output or Path(f"lib{options.program}.so")).resolve()
    if code := subprocess.run(program.command(options.clone, output, options.arch), check=False).returncode:
        return code
    print(f"export {program.variable}={output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
