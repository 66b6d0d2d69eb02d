"""Simulates gene expressions on a known network of regulators and their targets."""

from collections.abc import Sequence

import numpy as np

from datasets.dataset import Dataset
from datasets.generate import check_number, check_whole


def saturating_genes(
    network: np.ndarray, names: Sequence[str], m: int, seed: int, weakest: float, strongest: float, noise: float
) -> Dataset:
    """Simulate genes that respond to the sum of their regulators with saturation.

    These data replace DREAM5-Insilico of cuPC's Table 1, which GeneNetWeaver simulated on the network of E. coli. The
    file of that network names every pair of genes in both directions, so the gene with more neighbours is the regulator
    here, and of two with equally many the earlier one; the graph is therefore acyclic.

    A gene without regulators is standard normal. Any other gene is V_j = u / (1 + |u|) + noise N_j with N_j standard
    normal and u = sum over its regulators k of w_kj V_k. The magnitude of w_kj is uniform in [weakest, strongest],
    divided by the number of targets of k, and its sign is random: a regulator of hundreds of genes moves each of them
    little. With equal effects everywhere, the row of such a regulator would keep hundreds of edges, and from level 3 on
    it would have too many conditioning sets for any machine.

    Only sums, products and quotients are computed, term by term, so the values have the same bits on every machine. One
    PCG64 stream gives the effects and another one the noise, so data sets that differ only in m share graph and
    effects.

    Args:
        network: (p, p), not zero at [i, j] or [j, i] if one of genes i and j regulates the other; the diagonal is
            ignored.
    """
    check_whole(1, m=m)
    check_whole(0, seed=seed)
    check_number(0, 1e6, weakest=weakest, strongest=strongest, noise=noise)
    if weakest > strongest:
        raise ValueError(f"weakest must be at most strongest = {strongest}, not {weakest}")
    paired = (network != 0) | (network.T != 0)
    np.fill_diagonal(paired, False)
    order = np.argsort(-paired.sum(axis=0), kind="stable")  # regulators before their targets
    place = np.argsort(order)
    dag = paired & (place[:, None] < place)
    targets = dag.sum(axis=1)
    effects = np.random.Generator(np.random.PCG64([seed, 0]))
    rows = np.random.Generator(np.random.PCG64([seed, 1])).standard_normal((len(dag), m))
    for gene in order:
        regulators = np.flatnonzero(dag[:, gene])
        if not regulators.size:
            continue
        weights = effects.uniform(weakest, strongest, regulators.size) / targets[regulators]
        weights = np.where(effects.random(regulators.size) < 0.5, -weights, weights)
        total = np.zeros(m)
        for regulator, weight in zip(regulators, weights, strict=True):
            total += weight * rows[regulator]
        rows[gene] = total / (1 + np.abs(total)) + noise * rows[gene]
    stated = f"{m=}, {seed=}, {weakest=}, {strongest=}, {noise=}"
    source = f"generated: genes with saturating responses on a known network, {stated}"
    return Dataset("generated", rows.T, tuple(names), "gaussian", dag, {"source": source})
