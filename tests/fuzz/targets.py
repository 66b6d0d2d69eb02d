"""What is fuzzed: readers, with right files to damage and the errors that may come.

A target reads a file made of any bytes. An answer is right, and so is one of the target's errors; anything else is a
fault.
"""

from __future__ import annotations

import functools
import gzip
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas

from datasets import bif, registry
from datasets.dataset import Dataset, DatasetUnavailable, RegistryError
from datasets.readers import read_npz, read_rdata
from gpupc_impl import DiscreteProblem, GaussianProblem, pc
from gpupc_impl.core.checkpoint import Checkpoint, SearchState
from gpupc_impl.core.family import load_problem
from gpupc_impl.core.knowledge import BackgroundKnowledge
from gpupc_impl.core.orientation import CPDAG
from gpupc_impl.core.pc_stable import LevelOutcome
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.core.result import InvalidSkeleton, Skeleton
from gpupc_impl.intake import read_input
from gpupc_impl.kernel.problem import KernelProblem
from gpupc_impl.measurement.isolate import Outcome
from gpupc_impl.measurement.published import open_published
from gpupc_impl.measurement.record import InvalidRecord, Limits, Record, load_tests
from gpupc_impl.measurement.samples import Samples
from gpupc_impl.mixed.problem import MixedProblem
from gpupc_impl.nonlinear.problem import NonlinearProblem
from gpupc_impl.tables import DataError, read_numpy, read_text
from tests.fuzz import folder_targets
from tests.fuzz.damage import Target, written
from workflow.lib.config import InvalidConfig, check_config, read_config

# --- right files -----------------------------------------------------------------------------------------------------

ROOT = Path(__file__).parents[2]
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


def _tables() -> list[bytes]:
    lines = ["a,b,c", "1,2,3", "4.5,-1e3,.5", "7,8,9"]
    return [
        "\n".join(lines).encode(),
        "\r\n".join(lines).encode(),
        "\n".join(lines).replace(",", ";").encode(),
        "\n".join(lines).replace(",", "\t").encode(),
        "\n".join(["\ufeffx y", '"1" 10', "-.5 2", "\u0663 3"]).encode(),
    ]


def _written_numbers() -> list[bytes]:
    """Tables whose columns are written in various ways: decimal commas, separated thousands, percents, labels."""
    return [
        b"a;b\n1,5;2\n-3,25;4\n1.000,5;6\n",
        b"a,b,c\n1,5%,red\n2,7.5%,blue\n3,NA,red\n4,12%,\n",
        "a\tb\n1\u00a0000\t01\n2\u202f000,5\t1\n".encode(),
        b"a,b\n" + b"".join(b"%d,%d\n" % (k % 3, k * 10**17) for k in range(12)) + b"low,1\n",
        b'"a b","=c"\n"1,000.5",1e3\n"2,000",-inf\n',
    ]


def _frames() -> list[bytes]:
    frame = pandas.DataFrame({"a": [1.5, 2.5, 3.5], "b": ["x", "y", "x"], "c": [1, 2, 3]})
    return [written(lambda path: frame.to_parquet(path), "seed.parquet")]


def _sheets() -> list[bytes]:
    frame = pandas.DataFrame({"a": [1.5, 2.5, 3.5], "b": ["x", "y", "x"], "c": [1, 2, 3]})
    return [written(lambda path: frame.to_excel(path, index=False), "seed.xlsx")]


def _knowledge() -> list[bytes]:
    return [
        b"required_edges:\n- [a, b]\nforbidden_directions:\n- [b, c]\ntiers: [[a], [b, c]]\n",
        b"forbidden_edges: &x [[0, 1], [1, 2]]\nrequired_directions: [[2, 0]]\n",
    ]


def _arrays() -> list[bytes]:
    kinds = (MATRIX, MATRIX.astype(np.float32).T, MATRIX.astype(">i8"), MATRIX > 2, np.asfortranarray(MATRIX))
    return [written(functools.partial(_save_array, array), "seed.npy") for array in kinds]


def _save_array(array: np.ndarray, path: Path) -> None:
    np.save(path, array)


def _archives() -> list[bytes]:
    return [
        written(lambda path: np.savez(path, x=MATRIX, names=["a", "b", "c"])),
        written(lambda path: np.savez_compressed(path, x=MATRIX)),
        written(lambda path: np.savez(path, x=MATRIX, y=MATRIX[:2])),
    ]


def _workspaces() -> list[bytes]:
    import rdata

    frame = pandas.DataFrame(MATRIX, columns=["a", "b", "c"])
    tables = ({"frame": frame}, {"x": MATRIX}, {"l": {"x": MATRIX, "y": [1, "z"]}, "n": 3})
    packed = [written(lambda path, table=table: rdata.write_rda(path, table), "seed.rda") for table in tables]
    return [gzip.decompress(content) for content in packed]


def _datasets() -> list[bytes]:
    given = {"samples": 30, "variables": 3, "licence": "none", "citation": "none"}
    facts = {"kind": "generated", **given}
    whole = Dataset("d", MATRIX, ("a", "b", "c"), "gaussian", facts=facts, true_dag=np.triu(np.ones((3, 3), bool), 1))
    labelled = Dataset(
        "d", (MATRIX % 2).astype(np.uint8), ("a", "b", "c"), "discrete", labels=(("n", "y"),) * 3, facts=facts
    )
    return [written(whole.save), written(labelled.save)]


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
        KernelProblem.from_data(draw.normal(size=(12, 3))),
    ]
    return [written(problem.save) for problem in found]


def _results() -> list[bytes]:
    found = pc(
        np.random.default_rng(0).normal(size=(30, 4)) @ np.triu(np.ones((4, 4))), method="stable-serial", pmax=True
    )
    return [written(found.save), written(found.skeleton.save)]


def _checkpoints() -> list[bytes]:
    outcomes = [LevelOutcome(5, 3, 6), LevelOutcome(4, 2, 9, np.array([[0, 1]], np.int32), np.array([[2]], np.int32))]
    adjacency = ~np.eye(4, dtype=bool)
    for i, j in ((2, 3), (0, 1)):  # removed at levels 0 and 1
        adjacency[i, j] = adjacency[j, i] = False
    return [
        written(
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


def _read_input(path: Path) -> None:
    read_input(path, missing="drop-rows")


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

    return [written(write, "seed.json"), written(write_failure, "seed.json")]


TARGETS: Mapping[str, Target] = {
    "csv": Target(_read_numbers, (DataError,), (".csv", ".csv", ".csv.gz", ".csv.bz2", ".csv.xz"), _tables),
    "labels": Target(_read_labels, (DataError,), (".csv", ".tsv", ".csv.gz"), _tables),
    "table": Target(_read_input, (DataError, InvalidProblem), (".csv", ".tsv", ".csv.gz"), _written_numbers),
    "parquet": Target(_read_input, (DataError, InvalidProblem), (".parquet",), _frames),
    "xlsx": Target(_read_input, (DataError, InvalidProblem), (".xlsx",), _sheets),
    "knowledge": Target(BackgroundKnowledge.from_file, (InvalidProblem,), (".yaml",), _knowledge),
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
    **folder_targets.TARGETS,
}
