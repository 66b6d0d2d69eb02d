"""Genotypes in PLINK's files."""

import os
import warnings

import numpy as np
import pytest

from gpupc_impl import InvalidProblem, skeleton
from gpupc_impl.core.rows import RowStream
from gpupc_impl.intake import read_input
from gpupc_impl.tables import DataError, read_table
from tests.unit.test_streams import small_pieces

NAMES = ("rs1", "rs2", "rs3", "rs4")


@pytest.fixture
def genotypes() -> np.ndarray:
    """Genotypes of 199 people, of which neighbouring ones are linked."""
    rng = np.random.default_rng(1)
    values = [rng.binomial(2, 0.4, 199)]
    for _ in NAMES[1:]:
        values.append(np.where(rng.random(199) < 0.6, values[-1], rng.binomial(2, 0.4, 199)))
    return np.array(values, float).T


@pytest.fixture
def cohort(genotypes, tmp_path):
    path = tmp_path / "cohort.bed"
    write(path, genotypes)
    return path


def write(path, values, names=NAMES) -> None:
    """Write the three files bit by bit, as the format's description says."""
    data = bytearray(b"\x6c\x1b\x01")
    for column in values.T:
        bits = "".join({2: "00", 1: "01", 0: "11"}.get(value, "10") for value in column)  # the low bit first
        bits += "0" * (-len(bits) % 8)
        data += bytes(int(bits[k : k + 8][::-1], 2) for k in range(0, len(bits), 8))
    path.write_bytes(data)
    path.with_suffix(".bim").write_text("".join(f"1\t{name}\t0\t{k}\tA\tG\n" for k, name in enumerate(names)))
    path.with_suffix(".fam").write_text("".join(f"f{k} i{k} 0 0 0 -9\n" for k in range(len(values))))


def test_the_example_of_the_formats_description(tmp_path):
    path = tmp_path / "test.bed"
    path.write_bytes(bytes.fromhex("6c1b01 dc0f e70f 6b01"))
    path.with_suffix(".bim").write_text("1 snp1 0 1 G A\n1 snp2 0 2 1 2\n1 snp3 0 3 A C\n")
    people = [f"{family} {person} 0 0 1 0" for family in (1, 2) for person in (1, 2, 3)]
    path.with_suffix(".fam").write_text("\n".join(people))
    table = read_table(path)
    # GG, AA, 00, AA, AA, AA; 22, 00, 12, 22, 22, 22; CC, AC, AC, 00, 00, AA
    expected = [[2, 0, np.nan, 0, 0, 0], [0, np.nan, 1, 0, 0, 0], [0, 1, 1, np.nan, np.nan, 2]]
    np.testing.assert_array_equal(table.values, np.transpose(expected))
    assert table.names == ["snp1", "snp2", "snp3"]
    np.testing.assert_array_equal(read_table(path, transpose=True).values, expected)


@pytest.mark.parametrize("family", ["auto", "discrete"])
def test_genotypes_are_counts(genotypes, cohort, family):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # They are not doubted.
        found = skeleton(cohort, family=family, backend="host" if family == "discrete" else "auto", max_level=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        chosen = "gaussian" if family == "auto" else family
        expected = skeleton(genotypes.astype(int), family=chosen, names=NAMES, max_level=1)
    assert found == expected
    assert found.names == NAMES
    assert 0 < found.n_edges < 6


@pytest.mark.parametrize("streamed", [False, True])
def test_missing_genotypes(genotypes, tmp_path, monkeypatch, streamed):
    path = tmp_path / "cohort.bed"
    genotypes[[3, 90], 2] = np.nan
    write(path, genotypes)
    if streamed:
        small_pieces(monkeypatch, rows=30)
    assert isinstance(read_input(path, missing="pairwise").values, RowStream) == streamed
    with pytest.raises(InvalidProblem, match=r"2 value\(s\) missing in 1 column\(s\) \('rs3'\), .*row 4 of"):
        skeleton(path)
    with pytest.warns(UserWarning, match="2 of 199 samples have missing values"):
        found = skeleton(path, missing="drop-rows", method="stable-serial")
    assert found == skeleton(genotypes[~np.isnan(genotypes).any(axis=1)], names=NAMES, method="stable-serial")
    pairwise = skeleton(path, missing="pairwise")
    assert pairwise == skeleton(genotypes, names=NAMES, missing="pairwise")


def test_what_plink_writes_otherwise(genotypes, cohort):
    """Variants without genetic distances, and families whose names are not UTF-8."""
    variants, samples = cohort.with_suffix(".bim"), cohort.with_suffix(".fam")
    variants.write_text(variants.read_text().replace("\t0\t", "\t", 4))
    samples.write_bytes(samples.read_bytes().replace(b"f1", b"f\xff"))
    table = read_table(cohort)
    np.testing.assert_array_equal(table.values, genotypes)
    assert table.names == list(NAMES)


def test_pieces_are_the_table(genotypes, cohort, monkeypatch):
    small_pieces(monkeypatch, rows=30)
    pieces = list(read_input(cohort).values.read())
    assert [len(piece) for piece in pieces] == 7 * [28] + [3]
    np.testing.assert_array_equal(np.concatenate(pieces), genotypes)


@pytest.mark.parametrize("suffix", [".fam", ".bim"])
@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.removesuffix("\n"),
        lambda text: text + "\n \n",
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("\n", "\r"),
        lambda text: text.replace("\t", " "),
        lambda text: "#FID\tIID\n" + text,
    ],
    ids=["no last line end", "blank lines", "CRLF", "CR", "spaces", "a comment"],
)
def test_no_person_and_no_variant_comes_or_goes_with_a_line_end(genotypes, cohort, suffix, change):
    path = cohort.with_suffix(suffix)
    path.write_bytes(change(path.read_text()).encode())
    np.testing.assert_array_equal(read_table(cohort).values, genotypes)


@pytest.mark.parametrize(
    ("suffix", "change", "message"),
    [
        (".fam", lambda data: data[: data.rindex(b"f198")], "bits after the 198 samples of its .fam that are not zero"),
        (".fam", lambda data: data * 2, "but 4 variants of its .bim and 398 samples of its .fam take 403"),
        (".bim", lambda data: data[: data.rindex(b"1\trs4")], "has 203 bytes, but 3 variants"),
        (".bim", lambda data: b"chromosome\n" + data, r"cohort.bim, line 1 has 1 cells; it must have 5 or 6"),
        (".bim", lambda data: data.replace(b"rs2", b"rs\xff"), r"cohort.bim is not text in UTF-8"),
        (".bim", lambda data: data.replace(b"rs2", b"rs1"), r"variable names must differ; repeated: rs1"),
        (".bim", lambda data: data.replace(b"rs2", b" "), r"cohort.bim, line 2 has 5 cells; it must have 6"),
        (".bed", lambda data: data + b"\0", "cohort.bed has 204 bytes, but"),
        (".bed", lambda data: b"", "cohort.bed is not a readable .bed file: it begins with nothing"),
        (".bed", lambda data: b"\x6c\x1b\0" + data[3:], r"begins with 6c 1b 00; plink --bfile cohort --make-bed"),
    ],
)
def test_files_that_do_not_fit_together(cohort, suffix, change, message):
    path = cohort.with_suffix(suffix)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DataError, match=message):
        skeleton(cohort)


def test_tables_without_people_or_variants(cohort, tmp_path):
    for people, variants in ((0, 4), (4, 0), (0, 0)):
        write(tmp_path / "none.bed", np.ones((people, variants)), NAMES[:variants])
        with pytest.raises(InvalidProblem):
            skeleton(tmp_path / "none.bed")


@pytest.mark.parametrize("suffix", [".fam", ".bim", ".bed"])
def test_no_pipe_and_no_device_is_read_in_place_of_a_file(cohort, suffix):
    path = cohort.with_suffix(suffix)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=path.name):
        skeleton(cohort)
    os.mkfifo(path)
    with pytest.raises(OSError, match=f"no regular file.*{path.name}"):
        skeleton(cohort)
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(OSError, match=f"no regular file.*{path.name}"):
        skeleton(cohort)


def test_a_file_that_becomes_shorter_while_it_is_read(genotypes, cohort, monkeypatch):
    write(cohort, np.tile(genotypes, (200, 1)))  # more than a buffer holds
    small_pieces(monkeypatch, rows=30)
    chunks = read_input(cohort).values.chunks()
    next(chunks)
    os.truncate(cohort, 30_000)
    with pytest.raises(DataError, match=r"cohort\.bed became shorter while it was read"):
        list(chunks)
