"""What is fuzzed of folders that hold several files: one file is damaged, the others are right."""

from __future__ import annotations

import functools
import re
import shutil
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.distributed import shards
from gpupc_impl.measurement.checking import check
from gpupc_impl.measurement.publish import MergeError, merge, publish
from gpupc_impl.studies import bootstrap
from gpupc_impl.tables import DataError, read_table
from tests.fuzz.damage import Target

Files = Mapping[str, bytes]


def _files(folder: Path) -> Files:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _folder(path: Path, name: str, files: Files) -> Path:
    """A new folder beside a damaged file with these files, of which the one of that name is the damaged one."""
    folder = path.parent / "folder"
    shutil.rmtree(folder, ignore_errors=True)
    for each, content in {**files, name: path.read_bytes()}.items():
        (folder / each).parent.mkdir(parents=True, exist_ok=True)
        (folder / each).write_bytes(content)
    return folder


# --- runs ------------------------------------------------------------------------------------------------------------


@functools.cache
def _runs() -> tuple[Files, Files]:
    """The results of a workflow, and the same published."""
    from tests.unit.measurement import test_publish

    with tempfile.TemporaryDirectory() as folder:
        tree = test_publish.put(Path(folder) / "results", skeleton=True)
        test_publish.put(tree, test_publish.on(2, dataset="e", setting="other"))
        (tree / "sharing.csv").write_text("dataset,setting,rows,sets\nd,s,1,2\nd,s,2,1\n")
        (tree / "timelines").mkdir()
        (tree / "timelines/d.csv").write_text("level,block\n0,1\n")
        publish(tree, Path(folder) / "published")
        return _files(tree), _files(Path(folder) / "published")


def _read_results(name: str, path: Path) -> None:
    publish(_folder(path, name, _runs()[0]), _nothing(path))


def _read_published(name: str, path: Path) -> None:
    folder = _folder(path, name, _runs()[1])
    check(folder)
    merge([folder], _nothing(path))


def _nothing(path: Path) -> Path:
    """A path beside a file, where nothing is."""
    into = path.parent / "into"
    shutil.rmtree(into, ignore_errors=True)
    return into


RESULTS = ("experiments.json", "problems/d.json", "verification/gaussian.csv", "records/d/s.npz", "records/d/s.json")
PUBLISHED = ("records/gaussian.jsonl", "machines.json", "datasets.json", "skeletons/gaussian.zip", "sharing.csv")


# --- what a search reads back ----------------------------------------------------------------------------------------

OUTCOME = {"tests": 3, "seconds": 0.5}
ARRAYS = {"pairs": np.array([[0, 1], [1, 2]], np.int32), "sets": np.zeros((2, 2), np.int32)}


def _shard(folder: Path) -> Path:
    (folder / "level-2").mkdir(exist_ok=True)
    return folder / "level-2" / "00001.npz"


def _shards() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        shards.write(_shard(Path(folder)), "search", OUTCOME, ARRAYS)
        return [_shard(Path(folder)).read_bytes()]


def _read_shard(path: Path) -> None:
    """A damaged shard is as good as none."""
    shard = _shard(path.parent)
    path.rename(shard)
    kept: dict[str, np.ndarray] = {}
    outcome = shards.read(shard, "search", lambda outcome, arrays: kept.update(arrays))
    if outcome is not None:
        assert outcome == OUTCOME
        assert kept.keys() == ARRAYS.keys()
        assert all((kept[name] == array).all() for name, array in ARRAYS.items())
    shard.rename(path)


DATA = np.random.default_rng(0).normal(size=(20, 3)) @ np.triu(np.ones((3, 3)))


def _bootstrapped(folder: Path) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = bootstrap.bootstrap(DATA, 1, folder=folder, method="stable-serial", progress=False)
    return np.stack([result.directed, result.undirected])


@functools.cache
def _resamples() -> tuple[Files, Any]:
    with tempfile.TemporaryDirectory() as folder:
        counts = _bootstrapped(Path(folder))
        return _files(Path(folder)), counts


def _read_resample(name: str, path: Path) -> None:
    """A damaged resample is searched again, with the same result."""
    files, counts = _resamples()
    assert (_bootstrapped(_folder(path, name, files)) == counts).all()


# --- genotypes -------------------------------------------------------------------------------------------------------

GENOTYPES: Files = {
    "cohort.bed": bytes.fromhex("6c1b01 dc0f e70f 6b01"),
    "cohort.bim": b"1\tsnp1\t0\t1\tG\tA\n1\tsnp2\t0\t2\t1\t2\n1\tsnp3\t0\t3\tA\tC\n",
    "cohort.fam": b"1 1 0 0 1 0\n1 2 0 0 1 0\n1 3 0 0 1 0\n2 1 0 0 1 0\n2 2 0 0 1 0\n2 3 0 0 1 0\n",
}
"""The example of PLINK's description of the format."""


def _read_genotypes(name: str, path: Path) -> None:
    """The table has a row for each line that is left of the samples, and a column for each variant's."""
    folder = _folder(path, name, GENOTYPES)
    table = read_table(folder / "cohort.bed")
    values = np.asarray(table.values)
    texts = [(folder / f"cohort.{each}").read_bytes() for each in ("fam", "bim")]
    lines = [re.findall(rb"(?:^|[\r\n])[ \t\v\f]*[^\s#]", text) for text in texts]
    assert values.shape == tuple(map(len, lines))
    assert np.isin(values[~np.isnan(values)], (0, 1, 2)).all()


TARGETS: Mapping[str, Target] = {
    **{
        f"plink{Path(name).suffix}": Target(
            functools.partial(_read_genotypes, name),
            (DataError,),
            (Path(name).suffix,),
            functools.partial(lambda name: [GENOTYPES[name]], name),
        )
        for name in GENOTYPES
    },
    **{
        f"results-{Path(name).name}": Target(
            functools.partial(_read_results, name),
            (MergeError,),
            (Path(name).suffix,),
            functools.partial(lambda name: [_runs()[0][name]], name),
        )
        for name in RESULTS
    },
    **{
        f"published-{Path(name).name}": Target(
            functools.partial(_read_published, name),
            (MergeError,),
            (Path(name).suffix,),
            functools.partial(lambda name: [_runs()[1][name]], name),
        )
        for name in PUBLISHED
    },
    "shard": Target(_read_shard, (), (".npz",), _shards),
    "resample": Target(
        functools.partial(_read_resample, "000000.npz"), (), (".npz",), lambda: [_resamples()[0]["000000.npz"]]
    ),
    "resample-settings": Target(
        functools.partial(_read_resample, "bootstrap.json"),
        (InvalidProblem,),
        (".json",),
        lambda: [_resamples()[0]["bootstrap.json"]],
    ),
}
