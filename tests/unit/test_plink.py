"""Genotypes in PLINK's files, written by bed-reader."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from gpupc_impl import InvalidProblem, skeleton
from gpupc_impl.core import mapped
from gpupc_impl.core.rows import RowStream
from gpupc_impl.intake import read_input
from gpupc_impl.tables import DataError, streams

bed_reader = pytest.importorskip("bed_reader", reason="bed-reader (the extra plink) is not installed")

NAMES = ("rs1", "rs2", "rs3", "rs4")


@pytest.fixture
def genotypes() -> np.ndarray:
    """Genotypes of 200 people, of which neighbouring ones are linked."""
    rng = np.random.default_rng(1)
    values = [rng.binomial(2, 0.4, 200)]
    for _ in NAMES[1:]:
        values.append(np.where(rng.random(200) < 0.6, values[-1], rng.binomial(2, 0.4, 200)))
    return np.array(values, float).T


def write(path, values) -> None:
    bed_reader.to_bed(path, values, properties={"sid": NAMES[: values.shape[1]]})


@pytest.mark.parametrize("family", ["auto", "discrete"])
def test_genotypes_are_counts(genotypes, tmp_path, family):
    path = tmp_path / "cohort.bed"
    write(path, genotypes)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # They are not doubted.
        found = skeleton(path, family=family, backend="host" if family == "discrete" else "auto", max_level=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = skeleton(
            genotypes.astype(int), family="gaussian" if family == "auto" else family, names=NAMES, max_level=1
        )
    assert found == expected
    assert found.names == NAMES
    assert 0 < found.n_edges < 6


@pytest.mark.parametrize("streamed", [False, True])
def test_missing_genotypes(genotypes, tmp_path, monkeypatch, streamed):
    path = tmp_path / "cohort.bed"
    genotypes[[3, 90], 2] = np.nan
    write(path, genotypes)
    if streamed:
        monkeypatch.setattr(streams, "STREAMED_BYTES", 0)
        monkeypatch.setattr(mapped, "PIECE_BYTES", 30 * 4 * 8)
    assert isinstance(read_input(path, missing="pairwise").values, RowStream) == streamed
    with pytest.raises(InvalidProblem, match=r"2 value\(s\) missing in 1 column\(s\) \('rs3'\), .*row 4 of"):
        skeleton(path)
    with pytest.warns(UserWarning, match="2 of 200 samples have missing values"):
        found = skeleton(path, missing="drop-rows", method="stable-serial")
    assert found == skeleton(genotypes[~np.isnan(genotypes).any(axis=1)], names=NAMES, method="stable-serial")
    pairwise = skeleton(path, missing="pairwise")
    assert pairwise == skeleton(genotypes, names=NAMES, missing="pairwise")


def test_damaged_files(genotypes, tmp_path):
    write(tmp_path / "cohort.bed", genotypes)
    (tmp_path / "cohort.bim").unlink()
    with pytest.raises(DataError, match=r"cohort\.bed is not a readable \.bed file: FileNotFoundError: .*cohort\.bim"):
        skeleton(tmp_path / "cohort.bed")
    bed_reader.to_bed(tmp_path / "same.bed", genotypes, properties={"sid": ["."] * 4})
    with pytest.raises(DataError, match=r"variable names must differ; repeated: \."):
        skeleton(tmp_path / "same.bed")
