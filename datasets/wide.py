"""Generated gene expressions: very many variables that share regulators, drawn block by block."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from datasets.dataset import BLOCK_BYTES, Dataset
from datasets.generate import check_number, check_whole


def regulated_genes(p: int, n: int, seed: int, regulators: int, coupling: float, weakest: float = 0.0) -> Dataset:
    """Genes that follow one of a few regulators, which are measured too and follow a hidden factor.

    A stand-in for the TCGA data of Out-of-Core, section 5.2. Regulator k, at position floor(k p / regulators), is
    R_k = sqrt(coupling) Z + sqrt(1 - coupling) E_k; every other variable has a regulator drawn at random and
    follows it with a loading L of either sign, |L| uniform in [weakest, 1], V = L R + sqrt(1 - L^2) E; Z, E_k, E
    independent standard normal.

    Two genes of one regulator correlate as L L', two of different ones as coupling L L', and either's regulator
    separates them. So `coupling` decides what level 0 leaves, at alpha 0.01 and n = 3189: with 0.41, two thirds of all
    edges, as the paper reports; with 0, four fifths of the edges between genes of one regulator, and one in a hundred
    of the others by chance. Level 1 leaves little more than the edges from genes to their regulators and, with a
    coupling, those among regulators. Of genes with weak loadings it also leaves edges by chance, since nothing that
    they have in common with others separates them; `weakest` = 0.7 and no coupling are for searches of all levels.

    Args:
        p: number of variables, at least 1.
        n: number of samples, at least 2.
        seed: integer >= 0: of one PCG64 stream for the structure and one for the samples, row by row. Sets that
            differ in n only have the same first samples.
        regulators: 1 to p.
        coupling: correlation of any two regulators, in [0, 1].
        weakest: least magnitude of a loading, in [0, 1].

    Returns:
        values (n, p); names V0, V1, ... No true_dag: its p x p would be larger than the values.

    Raises:
        ValueError: an argument is out of range.
    """
    values = np.empty((n, p))
    start = 0
    for block in rows(p, n, seed, regulators, coupling, weakest):
        values[start : start + len(block)] = block
        start += len(block)
    loadings = f", {weakest=}" if weakest else ""
    return Dataset(
        name=f"regulated-p{p}-n{n}-seed{seed}",
        values=values,
        names=tuple(f"V{i}" for i in range(p)),
        family="gaussian",
        facts={"source": f"generated: regulated genes, {p=}, {n=}, {seed=}, {regulators=}, {coupling=}{loadings}"},
    )


def rows(p: int, n: int, seed: int, regulators: int, coupling: float, weakest: float = 0.0) -> Iterator[np.ndarray]:
    """The samples of `regulated_genes`, some at a time: (at most 64 MiB of samples, p) float64.

    The values do not depend on the size of the blocks.

    Raises:
        ValueError: an argument is out of range; on the first block.
    """
    check_whole(1, p=p, regulators=regulators)
    check_whole(2, n=n)
    check_whole(0, seed=seed)
    check_number(0, 1, coupling=coupling, weakest=weakest)
    if regulators > p:
        raise ValueError(f"regulators must be at most p = {p}, not {regulators}")
    structure = np.random.Generator(np.random.PCG64([seed, 0]))
    position = np.arange(regulators) * p // regulators
    module = structure.integers(regulators, size=p)
    loading = structure.uniform(-1.0, 1.0, p)
    loading = np.copysign(weakest + (1 - weakest) * np.abs(loading), loading)
    residual = np.sqrt(1 - loading * loading)

    noise = np.random.Generator(np.random.PCG64([seed, 1]))
    size = max(1, BLOCK_BYTES // (8 * p))
    for start in range(0, n, size):
        drawn = noise.standard_normal((min(size, n - start), p + 1))
        factor, block = drawn[:, :1], drawn[:, 1:]
        regulator = np.sqrt(coupling) * factor + np.sqrt(1 - coupling) * block[:, position]
        block *= residual
        block += regulator[:, module] * loading
        block[:, position] = regulator
        yield block
