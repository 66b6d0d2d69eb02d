"""What is fuzzed: readers, with right files to damage and the errors that may come.

A target reads a file made of any bytes. An answer is right, and so is one of the target's errors; anything else is a
fault.
"""

from __future__ import annotations

import bz2
import dataclasses
import functools
import gzip
import io
import json
import lzma
import random
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas

from datasets import bif, registry
from datasets.dataset import Dataset, DatasetUnavailable, RegistryError
from datasets.readers import read_npz, read_rdata
from gpupc_impl import DiscreteProblem, GaussianProblem, pc
from gpupc_impl.core.checkpoint import Checkpoint, SearchState
from gpupc_impl.core.family import load_problem
from gpupc_impl.core.orientation import CPDAG
from gpupc_impl.core.pc_stable import LevelOutcome
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.core.result import InvalidSkeleton, Skeleton
from gpupc_impl.measurement.isolate import Outcome
from gpupc_impl.measurement.published import open_published
from gpupc_impl.measurement.record import InvalidRecord, Limits, Record, load_tests
from gpupc_impl.measurement.samples import Samples
from gpupc_impl.mixed.problem import MixedProblem
from gpupc_impl.nonlinear.problem import NonlinearProblem
from gpupc_impl.tables import DataError, read_numpy, read_text
from workflow.lib.config import InvalidConfig, check_config, read_config

ROOT = Path(__file__).parents[2]
PACKERS: Mapping[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


@dataclasses.dataclass(frozen=True)
class Target:
    """A reader.

    Attributes:
        read: takes the path of a file.
        errors: of ours, that may come.
        suffixes: the kinds of file; one that `PACKERS` has is packed after most of the damage.
        seeds: makes right files, of the first kind.
    """

    read: Callable[[Path], Any]
    errors: tuple[type[Exception], ...]
    suffixes: tuple[str, ...]
    seeds: Callable[[], list[bytes]]

    def input(self, chance: random.Random) -> tuple[bytes, str]:
        """A damaged file's content and suffix."""
        right = seeds(self)
        content, suffix = chance.choice(right), chance.choice(self.suffixes)
        if content[:2] == b"PK" and chance.random() < 0.7:
            content = _archive_damaged(chance, content)
        else:
            content = damaged(chance, content, right)
        packer = PACKERS.get(Path(suffix).suffix)
        if packer is not None:
            content = packer(content)
            if chance.random() < 0.3:
                content = damaged(chance, content, right)
        return content, suffix

    def accepts(self, path: Path) -> bool:
        """Whether there is an answer to a file; False when an error of ours came. Anything else is raised."""
        try:
            self.read(path)
        except self.errors:
            return False
        return True


@functools.cache
def seeds(target: Target) -> list[bytes]:
    return target.seeds()


# --- damage ----------------------------------------------------------------------------------------------------------

TOKENS = [
    *(
        b"",
        b"\0",
        b"\xff",
        b"\n",
        b"\r\n",
        b",",
        b";",
        b'"',
        b"'",
        b"{",
        b"}",
        b"[",
        b"]",
        b"(",
        b")",
        b":",
        b"-",
        b"|",
    ),
    *(b"nan", b"inf", b"-inf", b"1e400", b"null", b"true", b"9" * 400, b"9" * 5000, b"-1", b"0", b"4294967296", b"1_0"),
    *(
        b"&a ",
        b"*a",
        b"<<: ",
        b"!!python/object:os.system ",
        b"!!int ",
        b"? ",
        b"- ",
        b"{}",
        b"[]",
        b'"": ',
        b"\xc3\xa9",
    ),
    *(b"\x00\x00\x00\x00", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"PK\x03\x04", b"\x93NUMPY"),
    *(
        b"'shape': (1000000000, 1000000000)",
        b"'descr': '|O'",
        b"'descr': '<U1000000000'",
        b"(-1, -1)",
        b"=cmd|' /C calc'!A0",
    ),
    *(
        b"\xef\xbb\xbf",
        b"\xff\xfe",
        b"[" * 3000,
        b"{" * 3000,
        b"(" * 3000,
        b'{"a":' * 3000,
        b"\x1f\x8b",
        b"RDX3\n",
        b"\x1c",
    ),
]


def damaged(chance: random.Random, content: bytes, others: list[bytes]) -> bytes:
    """Bytes replaced, inserted, taken out, doubled, or exchanged with those of another file; perhaps cut off."""
    changed = bytearray(content)
    for _ in range(chance.choice((0, 1, 1, 1, 2, 3, 5, 9))):
        at = chance.randrange(len(changed) + 1)
        length = chance.choice((1, 1, 2, 4, 8, chance.randrange(1, 200)))
        kind = chance.randrange(6)
        if kind == 0:
            changed[at : at + 1] = bytes([chance.randrange(256)])
        elif kind == 1:
            token = chance.choice(TOKENS)
            changed[at : at + chance.choice((0, len(token)))] = token
        elif kind == 2:
            del changed[at : at + length]
        elif kind == 3:
            changed[at:at] = changed[at : at + length] * chance.choice((1, 1, 50))
        elif kind == 4:
            other = chance.choice(others)
            start = chance.randrange(len(other) + 1)
            changed[at : at + length] = other[start : start + length]
        elif at < len(changed):
            changed[at] ^= 1 << chance.randrange(8)
    if chance.random() < 0.2:
        del changed[chance.randrange(len(changed) + 1) :]
    return bytes(changed)


def _archive_damaged(chance: random.Random, content: bytes) -> bytes:
    """An archive with right checksums around damaged members, one of them perhaps missing, twice there or renamed."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    others = [member for _, member in members]
    at = chance.randrange(len(members))
    name, member = members[at]
    kind = chance.randrange(8)
    if kind == 0:
        del members[at]
    elif kind == 1:
        members.append((name, damaged(chance, member, others)))
    elif kind == 2:
        members[at] = (chance.choice(("x.npy", "../x.npy", "names.npy", "fields.npy", name[:-4])), member)
    elif kind == 3:
        members[at] = (name, chance.choice(others))
    else:
        members[at] = (name, damaged(chance, member, others))
    written = io.BytesIO()
    packing = chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
    with warnings.catch_warnings(), zipfile.ZipFile(written, "w", packing) as archive:
        warnings.simplefilter("ignore")  # of a member that is there twice
        for name, member in members:
            archive.writestr(name, member)
    return written.getvalue()


# --- right files -----------------------------------------------------------------------------------------------------

MATRIX = np.arange(12.0).reshape(4, 3)
BIF = b"""network small { }
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


def _written(write: Callable[[Path], None], name: str = "seed.npz") -> bytes:
    """What something writes to a path."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / name)
        return (Path(folder) / name).read_bytes()


def _tables() -> list[bytes]:
    lines = ["a,b,c", "1,2,3", "4.5,-1e3,.5", "7,8,9"]
    return [
        "\n".join(lines).encode(),
        "\r\n".join(lines).encode(),
        "\n".join(lines).replace(",", ";").encode(),
        "\n".join(lines).replace(",", "\t").encode(),
        "\n".join(["\ufeffx y", '"1" 10', "-.5 2", "\u0663 3"]).encode(),
    ]


def _arrays() -> list[bytes]:
    kinds = (MATRIX, MATRIX.astype(np.float32).T, MATRIX.astype(">i8"), MATRIX > 2, np.asfortranarray(MATRIX))
    return [_written(functools.partial(_save_array, array), "seed.npy") for array in kinds]


def _save_array(array: np.ndarray, path: Path) -> None:
    np.save(path, array)


def _archives() -> list[bytes]:
    return [
        _written(lambda path: np.savez(path, x=MATRIX, names=["a", "b", "c"])),
        _written(lambda path: np.savez_compressed(path, x=MATRIX)),
        _written(lambda path: np.savez(path, x=MATRIX, y=MATRIX[:2])),
    ]


def _workspaces() -> list[bytes]:
    import rdata

    frame = pandas.DataFrame(MATRIX, columns=["a", "b", "c"])
    tables = ({"frame": frame}, {"x": MATRIX}, {"l": {"x": MATRIX, "y": [1, "z"]}, "n": 3})
    packed = [_written(lambda path, table=table: rdata.write_rda(path, table), "seed.rda") for table in tables]
    return [gzip.decompress(content) for content in packed]


def _datasets() -> list[bytes]:
    given = {"samples": 30, "variables": 3, "licence": "none", "citation": "none"}
    facts = {"kind": "generated", **given}
    whole = Dataset("d", MATRIX, ("a", "b", "c"), "gaussian", facts=facts, true_dag=np.triu(np.ones((3, 3), bool), 1))
    labelled = Dataset(
        "d", (MATRIX % 2).astype(np.uint8), ("a", "b", "c"), "discrete", labels=(("n", "y"),) * 3, facts=facts
    )
    return [_written(whole.save), _written(labelled.save)]


def _problems() -> list[bytes]:
    draw = np.random.default_rng(0)
    found = [
        GaussianProblem.from_data(draw.normal(size=(30, 4))),
        DiscreteProblem.from_data(draw.integers(0, 3, (30, 4))),
        NonlinearProblem.from_data(draw.normal(size=(12, 3)), permutations=5, k_cmi=2, k_perm=3),
        MixedProblem.from_data(
            pandas.DataFrame({"a": draw.normal(size=12), "b": list("xyzxyzxyzxyz"), "c": draw.normal(size=12)}),
            permutations=5,
            k_cmi=2,
            k_perm=3,
        ),
    ]
    return [_written(problem.save) for problem in found]


def _results() -> list[bytes]:
    found = pc(
        np.random.default_rng(0).normal(size=(30, 4)) @ np.triu(np.ones((4, 4))), method="stable-serial", pmax=True
    )
    return [_written(found.save), _written(found.skeleton.save)]


def _checkpoints() -> list[bytes]:
    outcomes = [LevelOutcome(5, 3, 6), LevelOutcome(4, 2, 9, np.array([[0, 1]], np.int32), np.array([[2]], np.int32))]
    adjacency = ~np.eye(4, dtype=bool)
    for i, j in ((2, 3), (0, 1)):  # removed at levels 0 and 1
        adjacency[i, j] = adjacency[j, i] = False
    return [
        _written(
            lambda path, pmax=pmax: _checkpoint(path, pmax is not None).save(SearchState(adjacency, outcomes, pmax))
        )
        for pmax in (None, np.full((4, 4), 0.5))
    ]


def _checkpoint(path: Path, pmax: bool) -> Checkpoint:
    return Checkpoint(str(path), GaussianProblem.from_correlation(np.eye(4), n_samples=9), "canonical", pmax)


def _records() -> list[bytes]:
    """The shortest published records."""
    records = [record for path in _published("machines.json") for record in open_published(path.parent).records()]
    return sorted((json.dumps(record.to_json()).encode() for record in records), key=len)[:5]


def _single_tests() -> list[bytes]:
    """The smallest published tables of single tests."""
    return sorted((path.read_bytes() for path in _published("tests/*.json")), key=len)[:5]


def _published(name: str) -> list[Path]:
    return sorted((ROOT / "results/recorded").glob(f"*/{name}"))


def _registries() -> list[bytes]:
    return [
        b"""drawn:
  kind: network
  family: gaussian
  network: ecoli70
  samples: 100
made: {kind: generated, family: nonlinear, generator: nonlinear.pairs, parameters: {p: 3, m: 2.5, kind: "a"}}
""",
        b"""kept: &kept
  kind: file
  family: gaussian
  file: t.csv
  url: https://example.org/t.csv
  sha256: """
        + b"a" * 64
        + b"""
  reader: {format: csv, header: true}
  samples: 10
  variables: 3
  licence: CC0-1.0
  citation: >
    nobody
again: {<<: *kept, samples: 20}
""",
    ]


def _configs() -> list[bytes]:
    return [(ROOT / "tests/workflow" / name).read_bytes() for name in ("tiny.yaml", "families.yaml")]


# --- readers ---------------------------------------------------------------------------------------------------------


def _read_numbers(path: Path) -> None:
    read_text(path)


def _read_labels(path: Path) -> None:
    read_text(path, labels=True, row_names=True)


def _read_registry(path: Path) -> None:
    registry.validate(registry.parse(path.read_bytes().decode(errors="replace")), "given")


def _read_checkpoint(path: Path) -> None:
    _checkpoint(path, True).load()


def _read_sample(path: Path) -> None:
    """A stored sample of a measurement; a damaged one is as good as none."""
    samples = Samples(path.parent, {}, Limits())
    (samples.folder / "sample-0.json").write_bytes(path.read_bytes())
    (samples.folder / "failure.json").write_bytes(path.read_bytes())
    samples.take_over(lambda sample: sample.get("seconds", 2) <= 1)
    assert samples.taken in ([], [{"seconds": 0.5, "levels": [0.1]}])
    failure = samples.failure_before()
    assert failure in (None, Outcome("timeout", "it took too long"))


def _samples() -> list[bytes]:
    def write(path: Path) -> None:
        samples = Samples(path.parent, {}, Limits())
        samples.add({"seconds": 0.5, "levels": [0.1]})
        (samples.folder / "sample-0.json").rename(path)

    def write_failure(path: Path) -> None:
        samples = Samples(path.parent, {}, Limits())
        samples.keep_failure(Outcome("timeout", "it took too long"))
        (samples.folder / "failure.json").rename(path)

    return [_written(write, "seed.json"), _written(write_failure, "seed.json")]


TARGETS: Mapping[str, Target] = {
    "csv": Target(_read_numbers, (DataError,), (".csv", ".csv", ".csv.gz", ".csv.bz2", ".csv.xz"), _tables),
    "labels": Target(_read_labels, (DataError,), (".csv", ".tsv", ".csv.gz"), _tables),
    "npy": Target(read_numpy, (DataError,), (".npy",), _arrays),
    "npz": Target(read_npz, (DataError,), (".npz",), _archives),
    "rdata": Target(read_rdata, (DataError,), (".rda", ".rda.gz", ".rda.bz2", ".rda.xz"), _workspaces),
    "bif": Target(
        lambda path: bif.read_bif(path.read_bytes(), "small"), (DataError,), (".bif", ".bif.gz"), lambda: [BIF]
    ),
    "registry": Target(_read_registry, (RegistryError,), (".yaml",), _registries),
    "config": Target(lambda path: check_config(read_config(path)), (InvalidConfig,), (".yaml",), _configs),
    "dataset": Target(Dataset.load, (DataError, DatasetUnavailable), (".npz",), _datasets),
    "problem": Target(load_problem, (InvalidProblem,), (".npz",), _problems),
    "skeleton": Target(Skeleton.load, (InvalidSkeleton,), (".npz",), _results),
    "cpdag": Target(CPDAG.load, (InvalidSkeleton,), (".npz",), _results),
    "checkpoint": Target(_read_checkpoint, (InvalidProblem,), (".npz",), _checkpoints),
    "record": Target(Record.load, (InvalidRecord,), (".json",), _records),
    "tests": Target(load_tests, (InvalidRecord,), (".json",), _single_tests),
    "sample": Target(_read_sample, (), (".json",), _samples),
}
