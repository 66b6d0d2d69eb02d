"""Damages files of every kind that the project reads, and reads them: ``python -m tests.fuzz --minutes 60`` (``make
fuzz``).

An answer is right, and so is one of the target's errors; anything else is a fault. Each turn of a target is a process
with limits of memory and of time for an input, so that a crash, a hang or a file that asks for too much is one more
fault and not the end. Each input that is a fault is kept in ``build/fuzz``.
"""

import argparse
import bz2
import dataclasses
import functools
import gzip
import io
import json
import lzma
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas

from datasets import bif
from datasets.dataset import Dataset, DatasetUnavailable
from datasets.readers import read_npz, read_rdata
from gpupc_impl import DiscreteProblem, GaussianProblem, pc
from gpupc_impl.core.checkpoint import Checkpoint, SearchState
from gpupc_impl.core.family import load_problem
from gpupc_impl.core.knowledge import BackgroundKnowledge
from gpupc_impl.core.orientation import CPDAG
from gpupc_impl.core.pc_stable import LevelOutcome
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.core.result import InvalidSkeleton, Skeleton
from gpupc_impl.core.result_folder import ResultFolder
from gpupc_impl.intake import read_input
from gpupc_impl.kernel.problem import KernelProblem
from gpupc_impl.measurement.publish import InvalidFolder, check, publish
from gpupc_impl.measurement.published import open_published
from gpupc_impl.measurement.record import InvalidRecord, Record, load_tests
from gpupc_impl.mixed.problem import MixedProblem
from gpupc_impl.nonlinear.problem import NonlinearProblem
from gpupc_impl.studies import bootstrap
from gpupc_impl.tables import DataError, TableFormat, read_numbers, read_numpy, read_table
from workflow.lib.config import InvalidConfig, check_config, read_config

ROOT = Path(__file__).parents[1]
MEMORY_BYTES = 1 << 30  # address space that a turn may take beyond what it has when it begins
INPUT_SECONDS = 10
PACKERS: Mapping[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


@dataclasses.dataclass(frozen=True)
class Target:
    """A reader of files, the errors that may come, the suffixes of its files, and a maker of right ones."""

    read: Callable[[Path], Any]
    errors: tuple[type[Exception], ...]
    suffixes: tuple[str, ...]
    seeds: Callable[[], list[bytes]]

    def input(self, chance: random.Random) -> tuple[bytes, str]:
        """Return a damaged file's content and suffix."""
        right = seeds(self)
        content, suffix = chance.choice(right), chance.choice(self.suffixes)
        if content[:2] == b"PK" and chance.random() < 0.7:
            content = _archive_damaged(chance, content)
        else:
            content = damaged(chance, content, right)
        return PACKERS.get(Path(suffix).suffix, bytes)(content), suffix

    def accepts(self, path: Path) -> bool:
        """Return whether there is an answer to a file; False for one of the errors. Anything else is raised."""
        try:
            self.read(path)
        except self.errors:
            return False
        return True


@functools.cache
def seeds(target: Target) -> list[bytes]:
    return target.seeds()


WORDS = (
    "\xff , ; \" ' { } [ ] ( ) : - | nan inf -inf 1e400 null true -1 0 4294967296 1_0 &a *a <<: "
    "!!python/object:os.system !!int ? - {} [] \"\": \xc3\xa9 PK\x03\x04 \x93NUMPY 'descr': '|O' '<U1000000000' "
    "(-1,-1) 'shape': =cmd|'/C \xef\xbb\xbf \xff\xfe \x1f\x8b RDX3\n (1000000000,1000000000)"
)
LONG = ["9" * 5000, *(mark * 3000 for mark in ("[", "{", "(", '{"a":'))]
BINARY = ["", "\0", "\n", "\r\n", "\x1c", "\0\0\0\0", "\xff\xff\xff\xff", "\x7f\xff\xff\xff", "\x80\0\0\0"]
TOKENS = [token.encode("latin-1") for token in (*WORDS.split(" "), *LONG, *BINARY)]


def damaged(chance: random.Random, content: bytes, others: list[bytes]) -> bytes:
    """Return bytes some of which are replaced, inserted, removed, doubled or taken from another file, or cut off."""
    changed = bytearray(content)
    for _ in range(chance.choice((0, 1, 1, 1, 2, 3, 5, 9))):
        at, length = chance.randrange(len(changed) + 1), chance.choice((1, 1, 2, 4, 8, chance.randrange(1, 200)))
        token, other = chance.choice(TOKENS), chance.choice(others)
        start = chance.randrange(len(other) + 1)
        part, new = chance.choice(
            [
                (slice(at, at + 1), bytes([chance.randrange(256)])),
                (slice(at, at + chance.choice((0, len(token)))), token),
                (slice(at, at + length), b""),
                (slice(at, at), changed[at : at + length] * chance.choice((1, 1, 50))),
                (slice(at, at + length), other[start : start + length]),
            ]
        )
        changed[part] = new
    return bytes(changed[: chance.randrange(len(changed) + 1)] if chance.random() < 0.2 else changed)


def _archive_damaged(chance: random.Random, content: bytes) -> bytes:
    """Return an archive with right checksums in which a member is damaged, missing, renamed, or there twice."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    others, at = [member for _, member in members], chance.randrange(len(members))
    (name, member), renamed = members[at], chance.choice(("x.npy", "../x.npy", "names.npy", "fields.npy"))
    broken = (name, damaged(chance, member, others))
    members[at : at + 1] = chance.choice(
        [[], [(name, member), broken], [(renamed, member)], [(name, chance.choice(others))], *[[broken]] * 4]
    )
    written = io.BytesIO()
    packing = chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(written, "w", packing) as archive:
        for name, member in members:
            archive.writestr(name, member)
    return written.getvalue()


def written(write: Callable[[Path], None], name: str = "seed.npz") -> bytes:
    """Return what something writes to a path."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / name)
        return (Path(folder) / name).read_bytes()


MATRIX = np.arange(12.0).reshape(4, 3)
FRAME = pandas.DataFrame({"a": [1.5, 2.5, 3.5], "b": ["x", "y", "x"], "c": [1, 2, 3]})
LINES = "a,b,c\n1,2,3\n4.5,-1e3,.5\n7,8,9"
TABLES = [LINES, LINES.replace("\n", "\r\n"), LINES.replace(",", ";"), '\ufeffx y\n"1" 10\n-.5 2\n\u0663 3']
# Columns that are written in various ways: decimal commas, separated thousands, percents, labels.
WRITINGS = [
    "a;b\n1,5;2\n-3,25;4\n1.000,5;6\n",
    "a,b,c\n1,5%,red\n2,7.5%,blue\n3,NA,red\n4,12%,\n",
    "a\tb\n1\u00a0000\t01\n2\u202f000,5\t1\n",
    "a,b\n" + "".join(f"{k % 3},{k * 10**17}\n" for k in range(12)) + "low,1\n",
    '"a b","=c"\n"1,000.5",1e3\n"2,000",-inf\n',
]
KNOWLEDGE = [
    "required_edges:\n- [a, b]\nforbidden_directions:\n- [b, c]\ntiers: [[a], [b, c]]\n",
    "forbidden_edges: &x [[0, 1], [1, 2]]\nrequired_directions: [[2, 0]]\n",
]
BIF = """network small { }
variable a { type discrete [ 2 ] { yes, no }; }
variable b { type discrete [ 2 ] { yes, no }; }
probability ( a ) {
  table 0.2, 0.8;
}
probability ( b | a ) {
  (yes) 0.5, 0.5;
  (no) 0.1, 0.9;
}
"""
# The example of PLINK's description of the format.
GENOTYPES = {
    "cohort.bed": bytes.fromhex("6c1b01 dc0f e70f 6b01"),
    "cohort.bim": b"1\tsnp1\t0\t1\tG\tA\n1\tsnp2\t0\t2\t1\t2\n1\tsnp3\t0\t3\tA\tC\n",
    "cohort.fam": b"1 1 0 0 1 0\n1 2 0 0 1 0\n1 3 0 0 1 0\n2 1 0 0 1 0\n2 2 0 0 1 0\n2 3 0 0 1 0\n",
}


def _arrays() -> list[bytes]:
    kinds = (MATRIX, MATRIX.astype(np.float32).T, MATRIX.astype(">i8"), MATRIX > 2, np.asfortranarray(MATRIX))
    return [written(functools.partial(np.save, arr=array), "seed.npy") for array in kinds]


def _workspaces() -> list[bytes]:
    import rdata

    tables = ({"frame": FRAME[["a", "c"]]}, {"x": MATRIX}, {"l": {"x": MATRIX, "y": [1, "z"]}, "n": 3})
    return [
        gzip.decompress(written(lambda path, table=table: rdata.write_rda(path, table), "seed.rda")) for table in tables
    ]


def _datasets() -> list[bytes]:
    facts = {"kind": "generated", "samples": 30, "variables": 3, "licence": "none", "citation": "none"}
    dag, names = np.triu(np.ones((3, 3), bool), 1), ("a", "b", "c")
    codes = (MATRIX % 2).astype(np.uint8)
    return [
        written(Dataset("d", MATRIX, names, "gaussian", facts=facts, true_dag=dag).save),
        written(Dataset("d", codes, names, "discrete", labels=(("n", "y"),) * 3, facts=facts).save),
    ]


def _problems() -> list[bytes]:
    draw = np.random.default_rng(0)
    frame = pandas.DataFrame({"a": draw.normal(size=12), "b": list("xyzxyzxyzxyz"), "c": draw.normal(size=12)})
    few: dict[str, Any] = {"permutations": 5, "k_cmi": 2, "k_perm": 3}
    found = [
        GaussianProblem.from_data(draw.normal(size=(30, 4))),
        DiscreteProblem.from_data(draw.integers(0, 3, (30, 4))),
        NonlinearProblem.from_data(draw.normal(size=(12, 3)), **few),
        MixedProblem.from_data(frame, **few),
        KernelProblem.from_data(draw.normal(size=(12, 3))),
    ]
    return [written(problem.save) for problem in found]


DATA = np.random.default_rng(0).normal(size=(30, 4)) @ np.triu(np.ones((4, 4)))


def _results() -> list[bytes]:
    found = pc(DATA, method="stable-serial", pmax=True)
    return [written(found.save), written(found.skeleton.save)]


def _checkpoints() -> list[bytes]:
    outcomes = [LevelOutcome(5, 3, 6), LevelOutcome(4, 2, 9, np.array([[0, 1]], np.int32), np.array([[2]], np.int32))]
    adjacency = ~np.eye(4, dtype=bool)
    for i, j in ((2, 3), (0, 1)):  # removed at levels 0 and 1
        adjacency[i, j] = adjacency[j, i] = False
    state = SearchState(adjacency, outcomes, np.full((4, 4), 0.5))
    return [written(lambda path: _checkpoint(path).save(state))]


def _checkpoint(path: Path) -> Checkpoint:
    return Checkpoint(str(path), GaussianProblem.from_correlation(np.eye(4), n_samples=9), "canonical", True)


def _recorded(pattern: str) -> list[Path]:
    return sorted((ROOT / "results/recorded").glob(f"*/{pattern}"))


def _records() -> list[bytes]:
    """Return the shortest published records."""
    records = [record for path in _recorded("machines.json") for record in open_published(path.parent).records()]
    return sorted((json.dumps(record.to_json()).encode() for record in records), key=len)[:5]


def _of_folder(name: str, read: Callable[[Path], Any], errors: Any, files: Callable[[], Mapping[str, bytes]]) -> Target:
    """Return the target whose reader gets a folder with one damaged file, that of this name."""

    def read_damaged(path: Path) -> None:
        folder = path.parent / "folder"
        shutil.rmtree(folder, ignore_errors=True)
        for each, content in {**files(), name: path.read_bytes()}.items():
            (folder / each).parent.mkdir(parents=True, exist_ok=True)
            (folder / each).write_bytes(content)
        read(folder)

    return Target(read_damaged, errors, (Path(name).suffix,), lambda: [files()[name]])


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@functools.cache
def _published() -> dict[str, bytes]:
    from tests.unit.measurement import test_publish

    with tempfile.TemporaryDirectory() as folder:
        tree = test_publish.put(Path(folder) / "results", skeleton=True)
        publish(tree, Path(folder) / "published")
        return _files(Path(folder) / "published")


def _read_published(folder: Path) -> None:
    check(folder)
    shutil.rmtree(folder.parent / "into", ignore_errors=True)
    publish(folder, folder.parent / "into")


def _read_genotypes(folder: Path) -> None:
    values = np.asarray(read_table(folder / "cohort.bed").values)
    assert np.isin(values[~np.isnan(values)], (0, 1, 2)).all()


def _bootstrapped(folder: Path) -> np.ndarray:
    with warnings.catch_warnings(action="ignore"):
        result = bootstrap.bootstrap(DATA, 1, folder=folder, method="stable-serial", progress=False)
    return np.stack([result.directed, result.undirected])


@functools.cache
def _resamples() -> tuple[dict[str, bytes], np.ndarray]:
    with tempfile.TemporaryDirectory() as folder:
        counts = _bootstrapped(Path(folder))
        return _files(Path(folder)), counts


def _read_resample(folder: Path) -> None:
    """A damaged resample is searched again, with the same result."""
    assert (_bootstrapped(folder) == _resamples()[1]).all()


OUTCOME = {"tests": 3, "seconds": 0.5}
SHARD = {"pairs": np.array([[0, 1]], np.int32), "sets": np.zeros((1, 2), np.int32)}


def _shards() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        ResultFolder(Path(folder), "search", {}).write("shard", OUTCOME, SHARD)
        return {"shard.npz": (Path(folder) / "shard.npz").read_bytes()}


def _read_shard(folder: Path) -> None:
    """A damaged shard is as good as none."""
    found = ResultFolder(folder, "search", {}).read("shard", lambda outcome, arrays: (outcome, arrays))
    assert found is None or (found[0] == OUTCOME and all((found[1][name] == SHARD[name]).all() for name in SHARD))


TEXT = (".csv", ".tsv", ".csv.gz", ".csv.bz2", ".csv.xz")
INPUT = (functools.partial(read_input, missing="drop-rows"), (DataError, InvalidProblem))


_labels = functools.partial(read_table, form=TableFormat(row_names=True), kind="labels")
_archive = functools.partial(np.savez, x=MATRIX, names=["a", "b", "c"])


def _configs() -> list[bytes]:
    return [(ROOT / "tests/workflow" / name).read_bytes() for name in ("tiny.yaml", "families.yaml")]


def _single_tests() -> list[bytes]:
    return sorted((path.read_bytes() for path in _recorded("tests/*.json")), key=len)[:5]


def _encoded(*texts: str) -> Callable[[], list[bytes]]:
    return lambda: [text.encode() for text in texts]


TARGETS: Mapping[str, Target] = {
    "csv": Target(read_numbers, (DataError,), TEXT, _encoded(*TABLES)),
    "labels": Target(_labels, (DataError,), TEXT, _encoded(*TABLES)),
    "table": Target(*INPUT, TEXT, _encoded(*WRITINGS)),
    "parquet": Target(*INPUT, (".parquet",), lambda: [written(FRAME.to_parquet, "seed.parquet")]),
    "xlsx": Target(*INPUT, (".xlsx",), lambda: [written(lambda path: FRAME.to_excel(path, index=False), "seed.xlsx")]),
    "knowledge": Target(BackgroundKnowledge.from_file, (InvalidProblem,), (".yaml",), _encoded(*KNOWLEDGE)),
    "npy": Target(read_numpy, (DataError,), (".npy",), _arrays),
    "npz": Target(read_npz, (DataError,), (".npz",), lambda: [written(_archive)]),
    "rdata": Target(read_rdata, (DataError,), (".rda", ".rda.gz", ".rda.bz2", ".rda.xz"), _workspaces),
    "bif": Target(
        lambda path: bif.read_bif(path.read_bytes(), "small"), (DataError,), (".bif", ".bif.gz"), _encoded(BIF)
    ),
    "config": Target(lambda path: check_config(read_config(path)), (InvalidConfig,), (".yaml",), _configs),
    "dataset": Target(Dataset.load, (DataError, DatasetUnavailable), (".npz",), _datasets),
    "problem": Target(load_problem, (InvalidProblem,), (".npz",), _problems),
    "skeleton": Target(Skeleton.load, (InvalidSkeleton,), (".npz",), _results),
    "cpdag": Target(CPDAG.load, (InvalidSkeleton,), (".npz",), _results),
    "checkpoint": Target(lambda path: _checkpoint(path).load(), (InvalidProblem,), (".npz",), _checkpoints),
    "record": Target(Record.load, (InvalidRecord,), (".json",), _records),
    "tests": Target(load_tests, (InvalidRecord,), (".json",), _single_tests),
    **{name: _of_folder(name, _read_genotypes, (DataError,), lambda: GENOTYPES) for name in GENOTYPES},
    **{
        name: _of_folder(name, _read_published, (InvalidFolder,), _published)
        for name in ("records/gaussian.jsonl", "machines.json", "datasets.json", "skeletons/gaussian.zip")
    },
    "shard": _of_folder("shard.npz", _read_shard, (), _shards),
    "resample": _of_folder("000000.npz", _read_resample, (), lambda: _resamples()[0]),
    "bootstrap": _of_folder("bootstrap.json", _read_resample, (InvalidProblem,), lambda: _resamples()[0]),
}


class TooLong(BaseException):
    """An input took more than `INPUT_SECONDS`; no reader catches it."""


def _too_long(*_: Any) -> None:
    raise TooLong(f"no answer after {INPUT_SECONDS} s")


def turn(name: str, seconds: float, seed: int, folder: Path, keep: Path) -> None:
    """Try damaged files on one target; the process ends with an error after the first fault, whose input is kept."""
    target, chance = TARGETS[name], random.Random(f"{name} {seed}")
    os.nice(10)
    warnings.simplefilter("ignore")  # NumPy's of odd headers
    for right in seeds(target):  # before the limit: libraries reserve address space when they are first used
        path = folder / f"input{target.suffixes[0]}"
        path.write_bytes(right)
        target.accepts(path)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY_BYTES,) * 2)
    signal.signal(signal.SIGALRM, _too_long)
    start = time.monotonic()
    while time.monotonic() < start + seconds:
        content, suffix = target.input(chance)
        path, kept = folder / f"input{suffix}", keep / f"{name.replace('/', '-')}-{seed}{suffix}"
        path.write_bytes(content)
        kept.write_bytes(content)  # before it is read, since the process may crash
        signal.alarm(INPUT_SECONDS)
        try:
            target.accepts(path)
        except BaseException:
            print(f"{name}: {kept}\n{traceback.format_exc(limit=-3)}", file=sys.stderr, flush=True)
            sys.exit(1)
        finally:
            signal.alarm(0)
        kept.unlink()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", default=list(TARGETS), help="which targets (default: all)")
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=0, help="other files for another number (default: 0)")
    parser.add_argument("--turn-seconds", type=float, default=15, help="length of a turn (default: 15)")
    parser.add_argument("--keep", type=Path, default=Path("build/fuzz"), help="folder for inputs that are faults")
    options = parser.parse_args()
    if unknown := set(options.targets) - TARGETS.keys():
        parser.error(f"no target {', '.join(sorted(unknown))}; known: {', '.join(TARGETS)}")
    # The threads that NumPy makes on a machine of many cores would take the address space that a turn may have.
    os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    options.keep.mkdir(parents=True, exist_ok=True)
    faults, number, end = 0, 0, time.monotonic() + 60 * options.minutes
    while time.monotonic() < end:
        name, seed = options.targets[number % len(options.targets)], options.seed + 1000 * number
        with tempfile.TemporaryDirectory() as folder:
            arguments = (name, options.turn_seconds, seed, Path(folder), options.keep)
            process = multiprocessing.get_context("spawn").Process(target=turn, args=arguments)
            process.start()
            process.join()
        faults += process.exitcode != 0
        number += 1
    print(f"{number} turns, {faults} with a fault")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
