"""Generates gene expressions: very many variables that share regulators, generated block by block."""

from collections.abc import Iterator

import numpy as np

from datasets.dataset import BLOCK_BYTES, Dataset
from datasets.generate import check_number, check_whole, generated


def regulated_genes(p: int, n: int, seed: int, regulators: int, coupling: float, weakest: float = 0.0) -> Dataset:
    """Generate genes that depend on one of a few observed regulators, which depend on a hidden factor: n samples of p.

    These data replace the TCGA data of Out-of-Core, section 5.2. Regulator k, at position floor(k p / regulators), is
    R_k = sqrt(coupling) Z + sqrt(1 - coupling) E_k. Every other variable is V = L R + sqrt(1 - L^2) E with a random
    regulator R and a loading L of random sign, |L| uniform in [weakest, 1]. Z, E_k and E are independent standard
    normal.

    Two genes of one regulator have the correlation L L', and two genes of different regulators have the correlation
    coupling L L'; in both cases the regulator of either gene separates them. `coupling` therefore determines which
    edges level 0 leaves. At alpha 0.01 and n = 3189, a coupling of 0.41 leaves two thirds of all edges, as the paper
    reports; a coupling of 0 leaves four fifths of the edges between genes of one regulator and, by chance, one in a
    hundred of the other edges. Level 1 leaves little more than the edges between genes and their regulators and, with a
    coupling, those among regulators. Genes with weak loadings also keep edges by chance, since no common neighbour
    separates them; `weakest` = 0.7 without coupling suits searches of all levels.

    One PCG64 stream gives the structure and another one the samples, row by row, so that data sets that differ only in
    n have the same first samples. There is no true_dag, since p x p would be larger than the values.
    """
    values = np.empty((n, p))
    start = 0
    for block in rows(p, n, seed, regulators, coupling, weakest):
        values[start : start + len(block)] = block
        start += len(block)
    loadings = f", {weakest=}" if weakest else ""
    source = f"regulated genes, {p=}, {n=}, {seed=}, {regulators=}, {coupling=}{loadings}"
    return generated("gaussian", values, source)


def rows(p: int, n: int, seed: int, regulators: int, coupling: float, weakest: float = 0.0) -> Iterator[np.ndarray]:
    """Yield the samples of `regulated_genes` in blocks of up to 64 MiB, on whose size the values do not depend."""
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
