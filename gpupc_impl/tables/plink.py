"""Reads the genotypes of PLINK: a ``.bed``, beside which lie a ``.bim`` with the variants and a ``.fam`` with the
samples (https://www.cog-genomics.org/plink/1.9/formats)."""

import contextlib
import io
import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np

from gpupc_impl.core import mapped_arrays
from gpupc_impl.core.files import read_bytes
from gpupc_impl.core.rows import RowStream
from gpupc_impl.integers import ceil_div
from gpupc_impl.ownership import open_regular
from gpupc_impl.tables.checks import DataError, checked_names

MAGIC, SAMPLE_MAJOR_MAGIC = b"\x6c\x1b\x01", b"\x6c\x1b\x00"
COUNTS = np.array([2.0, np.nan, 1.0, 0.0])  # of allele 1 by the two bits of a genotype; NaN: missing


def open_genotypes(path: Path) -> tuple[RowStream, list[str]]:
    samples = sum(1 for _ in _rows(path.with_suffix(".fam"), (6,)))
    variants = path.with_suffix(".bim")  # Genetic distances, its third column, may be missing.
    try:
        names = [cells[1].decode() for cells in _rows(variants, (5, 6))]
    except UnicodeDecodeError as error:
        raise DataError(f"{variants} is not text in UTF-8: {error}") from error
    shape = samples, len(names)
    with _open_bed(path, shape):  # Errors are raised before anything is read.
        pass
    at_once = 4 * max(1, mapped_arrays.PIECE_BYTES // (32 * max(1, len(names))))

    def read() -> Iterator[np.ndarray]:
        with _open_bed(path, shape) as file:
            for rows in mapped_arrays.pieces(samples, at_once):
                yield _counts(path, file, rows, shape)

    return RowStream(shape, read), checked_names(names, path)


def _rows(path: Path, widths: Collection[int]) -> Iterator[list[bytes]]:
    """Yield every line's cells, always one of these numbers of them; blank lines and those with # are skipped."""
    for number, line in enumerate(re.split(b"\r\n|\r|\n", read_bytes(path)), 1):
        cells = line.split()
        if not cells or cells[0].startswith(b"#"):
            continue
        if len(cells) not in widths:
            known = " or ".join(map(str, widths))
            raise DataError(f"{path}, line {number} has {len(cells)} cells; it must have {known}")
        widths = (len(cells),)
        yield cells


@contextlib.contextmanager
def _open_bed(path: Path, shape: tuple[int, int]) -> Iterator[io.BufferedReader]:
    samples, variants = shape
    with open_regular(path) as file:
        magic = file.read(len(MAGIC))
        if magic != MAGIC:
            other = f"; plink --bfile {path.stem} --make-bed --out NEW writes it anew" * (magic == SAMPLE_MAJOR_MAGIC)
            raise DataError(f"{path} is not a readable .bed file: it begins with {magic.hex(' ') or 'nothing'}{other}")
        size, expected = os.fstat(file.fileno()).st_size, len(MAGIC) + variants * ceil_div(samples, 4)
        if size != expected:
            raise DataError(
                f"{path} has {size:,} bytes, but {variants:,} variants of its .bim and {samples:,} samples of its "
                f".fam take {expected:,}: it is damaged, or the three files do not belong together"
            )
        yield file


def _counts(path: Path, file: io.BufferedReader, rows: slice, shape: tuple[int, int]) -> np.ndarray:
    """Read (samples, variants) float64 counts of allele 1 of some samples, the first of which begins a byte."""
    samples, variants = shape
    first, last = rows.start // 4, ceil_div(rows.stop, 4)
    stored = np.empty((variants, last - first), np.uint8)
    for k in range(variants):
        file.seek(len(MAGIC) + k * ceil_div(samples, 4) + first)
        if file.readinto(stored[k]) != last - first:
            raise DataError(f"{path} became shorter while it was read; leave it unchanged, and read it again")
    stored = np.ascontiguousarray(stored.T)
    counts = np.empty((last - first, 4, variants))
    for k in range(4):
        np.take(COUNTS, stored >> 2 * k & 3, out=counts[:, k])
    counts = counts.reshape(4 * (last - first), variants)
    length = rows.stop - rows.start
    if (counts[length:] != COUNTS[0]).any():
        raise DataError(
            f"{path} has bits after the {samples:,} samples of its .fam that are not zero: the .fam has too few lines, "
            "or the files do not belong together"
        )
    return counts[:length]
