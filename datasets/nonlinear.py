"""Generates nonlinear data: additive noise models as MANM-CS draws them, in the settings of GPU-CMIknn, section 5.1.

The package (manm-cs 0.1.7) is not used, because it reseeds from the operating system, so that its samples cannot be
reproduced, and because it draws one number at a time. This module draws from the same model with the same defaults,
from one seeded stream.
"""

import math
from typing import NamedTuple

import numpy as np

from datasets.dataset import DataError, Dataset, graph_of
from datasets.generate import LARGEST_VALUE, check_number, check_whole, generated

DENSITIES = (0.1, 0.2, 0.3, 0.4, 0.5)  # the edge densities from which section 5.1 chooses
TANH_TERMS, TANH_HALVINGS = 12, 3


class Node(NamedTuple):
    """V = sum over k of weights[k] * FUNCTIONS[functions[k]](V[parents[k]]) + N, with N standard normal."""

    parents: np.ndarray
    functions: np.ndarray
    weights: np.ndarray


def additive_noise(
    p: int, n: int, seed: int, density: float | None = None, degree: float | None = None, standardize: bool = True
) -> Dataset:
    """Generate data of a random graph of continuous variables with linear, quadratic and tanh dependences, n samples of
    p (the paper's N) in topological order.

    This is GPU-CMIknn, section 5.1, with the defaults of MANM-CS: every pair i < j has an edge i -> j with probability
    `density`; each edge has one of the three functions with equal probability, and a weight uniform in [-1, -0.5] or
    [0.5, 1]; a variable is the sum over its parents of weight times function, plus standard normal noise.

    Repeated squares overflow: 18 of 20 graphs of 50 variables exceed 1e150. Each variable is therefore standardised
    before its children are drawn. MANM-CS standardises not at all (`standardize=False`, where DataError names the first
    variable to exceed 1e150) or all variables at the end.

    One PCG64 stream gives first the density, then the graph, then the noise variable by variable, so data sets that
    differ only in n or `standardize` share their graph. Sums are correctly rounded or accumulated parent by parent, and
    tanh is made of basic operations, so that all machines have the same bits.

    Args:
        density: edge probability, in [0, 1]; by default one of 0.1, 0.2, ..., 0.5 with equal probability.
        degree: the average number of neighbours, instead of a density; the sparse graphs of Table 10 have 1.5.
    """
    check_whole(1, p=p)
    check_whole(2, n=n)
    check_whole(0, seed=seed)
    if density is not None and degree is not None:
        raise ValueError("density and degree are given; one decides the other")
    rng = np.random.Generator(np.random.PCG64(seed))
    chosen = float(rng.choice(DENSITIES))
    if degree is not None:
        check_number(0, p - 1, degree=degree)
        chosen = degree / max(p - 1, 1)
    elif density is not None:
        check_number(0, 1, density=density)
        chosen = density
    nodes = random_nodes(rng, p, chosen)
    values = sample(rng, nodes, n, standardize)
    source = f"GPU-CMIknn section 5.1, {p=}, {n=}, density={chosen:.6g}, {seed=}, {standardize=}"
    return generated("nonlinear", values, source, true_dag=dag(nodes), density=chosen)


def random_nodes(rng: np.random.Generator, p: int, density: float) -> list[Node]:
    """Return the p nodes of a random graph, in topological order."""
    nodes = []
    for i in range(p):
        parents = np.flatnonzero(rng.random(i) < density)
        functions = rng.integers(len(FUNCTIONS), size=parents.size)
        signs = rng.integers(2, size=parents.size) * 2 - 1
        nodes.append(Node(parents, functions, signs * rng.uniform(0.5, 1.0, parents.size)))
    return nodes


def dag(nodes: list[Node]) -> np.ndarray:
    """Return the (p, p) bool matrix of nodes, [i, j] if i is a parent of j."""
    return graph_of(dict(enumerate(node.parents for node in nodes)))


def sample(rng: np.random.Generator, nodes: list[Node], n: int, standardize: bool) -> np.ndarray:
    """Return (n, len(nodes)) float64 samples; DataError names a variable that exceeds 1e150."""
    rows = rng.standard_normal((len(nodes), n))  # Each variable is a row here, so that every pass is contiguous.
    for variable, node in enumerate(nodes):
        row = rows[variable]
        with np.errstate(over="ignore", invalid="ignore"):  # The check below reports an overflow.
            row += signal(node, rows)
        largest = np.abs(row).max()
        if not largest <= LARGEST_VALUE:
            raise DataError(
                f"variable {variable} of {len(nodes)} reaches {largest:.0e}; above {LARGEST_VALUE:.0e} distances "
                "overflow: standardise, or use fewer variables or a lower density"
            )
        if standardize:
            row -= math.fsum(row) / n
            row /= math.sqrt(math.fsum(row * row) / (n - 1))
    return np.ascontiguousarray(rows.T)


def signal(node: Node, rows: np.ndarray) -> np.ndarray:
    """Return the sum of a node's functions of its parents, which are rows of (variables, n): (n,)."""
    total = np.zeros(rows.shape[1])
    for parent, function, weight in zip(node.parents, node.functions, node.weights, strict=True):
        total += weight * FUNCTIONS[function](rows[parent])
    return total


def tanh(x: np.ndarray) -> np.ndarray:
    """Compute tanh by basic operations, to within 4e-16, since the last bits of libraries differ.

    Lambert's continued fraction y / (1 + y^2 / (3 + y^2 / (5 + ...))) gives tanh(y) for y = x / 8. Applying tanh(2y) =
    2 tanh(y) / (1 + tanh(y)^2) three times gives tanh(x). Beyond 20, tanh rounds to 1.
    """
    y = np.clip(x, -20.0, 20.0) / 2**TANH_HALVINGS
    square = y * y
    fraction = np.full_like(y, 2.0 * TANH_TERMS + 1)
    for term in range(TANH_TERMS - 1, -1, -1):
        fraction = (2 * term + 1) + square / fraction
    y /= fraction
    for _ in range(TANH_HALVINGS):
        y = 2 * y / (1 + y * y)
    return y


FUNCTIONS = (np.positive, np.square, tanh)  # linear, quadratic and saturating
