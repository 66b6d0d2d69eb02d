"""Generates the random linear Gaussian DAGs of cuPC, section 5.6."""

from typing import Any, NamedTuple

import numpy as np

from datasets.dataset import DataError, Dataset, graph_of

LARGEST_VALUE = 1e150  # above it float64 would overflow when values are squared for a variance


class Equation(NamedTuple):
    """V[variable] = intercept + sum over k of weights[k] * V[parents[k]] + sd * N, with N standard normal."""

    variable: int
    parents: np.ndarray
    weights: np.ndarray
    intercept: float = 0.0
    sd: float = 1.0


def random_dag_gaussian(p: int, m: int, density: float, seed: int) -> Dataset:
    """Generate data by the generator of cuPC, section 5.6, with p variables (the paper's n), m samples and a density d.

    Every pair i > j has an edge j -> i with probability `density`, and a weight A[i, j] uniform in [0.1, 1]. In
    topological order, V_i = N_i + sum over j < i of A[i, j] V_j, with independent standard normal N_i. The paper's A is
    the weighted transpose of true_dag.

    Values grow exponentially with p and density: to 1e24 at p = 1000 and density 0.1, and to 1e103 at density 0.5 (seed
    0). Correlations do not depend on scale and stay finite, but the noise of later variables falls below the rounding
    of float64: 40 % and 86 % of the pairs of these two data sets have a correlation of 1 to within 1e-12. The paper
    accepts this, and so does this function, because rescaling each variable would change the model, and rescaling with
    compensated weights would not change the correlations. DataError is raised only if variances would overflow, that
    is, for values above 1e150, which no setting of the paper reaches.

    One PCG64 stream gives first the graph and then the noise, variable by variable, so data sets that differ only in m
    share their graph. Sums are accumulated parent by parent, without BLAS, so that their bits do not depend on the
    number of threads.
    """
    check_whole(1, p=p, m=m)
    check_whole(0, seed=seed)
    check_number(0, 1, density=density)
    rng = np.random.Generator(np.random.PCG64(seed))
    equations = random_equations(rng, p, density)
    source = f"cuPC section 5.6, {p=}, {m=}, {density=}, {seed=}"
    return generated("gaussian", sample(rng, equations, m), source, true_dag=dag(equations))


def random_dag_of_degree(p: int, n: int, degree: float, seed: int, hidden: int = 0) -> Dataset:
    """Generate data of a random linear Gaussian DAG of p observed variables whose density does not depend on its size.

    The graph has p + hidden variables of a mean degree, with weights as in `random_dag_gaussian`, in a random order;
    the hidden ones are drawn among those with at least two children (or, if there are fewer, among all).

    With hidden variables the data are of family latent, and in place of true_dag ``facts["edges_with_hidden"]`` has the
    pairs [i, j], i -> j, of the whole graph, in which the hidden variables have the numbers from p on.
    """
    check_whole(1, p=p, n=n)
    check_whole(0, hidden=hidden, seed=seed)
    every = p + hidden
    check_number(0, max(every - 1, 1), degree=degree)
    rng = np.random.Generator(np.random.PCG64(seed))
    equations = random_equations(rng, every, degree / max(every - 1, 1))
    graph = dag(equations)
    causes = np.flatnonzero(graph.sum(axis=1) >= 2)
    unseen = rng.choice(causes if len(causes) >= hidden else every, hidden, replace=False)
    order = np.concatenate([rng.permutation(np.setdiff1d(np.arange(every), unseen)), unseen])
    graph = graph[np.ix_(order, order)]
    values = sample(rng, equations, n)[:, order[:p]]
    source = f"linear Gaussian, {p=}, {hidden=}, {n=}, {degree=}, {seed=}"
    if hidden:
        return generated("latent", values, source, edges_with_hidden=np.argwhere(graph).tolist())
    return generated("gaussian", values, source, true_dag=graph)


def random_equations(rng: np.random.Generator, p: int, density: float) -> list[Equation]:
    """Return the p equations of a random DAG of cuPC, section 5.6, in topological order."""
    equations = []
    for i in range(p):
        parents = np.flatnonzero(rng.random(i) < density)
        equations.append(Equation(i, parents, rng.uniform(0.1, 1.0, parents.size)))
    return equations


def sample(rng: np.random.Generator, equations: list[Equation], m: int) -> np.ndarray:
    """Return m samples of equations in topological order: (m, len(equations)) float64, a variable per column. DataError
    names a variable that exceeds 1e150. The noise is drawn variable by variable in the order of columns, and terms are
    added in the order of `parents`, so that the values do not depend on the topological order."""
    rows = rng.standard_normal((len(equations), m))  # Each variable is a row here, so that every pass is contiguous.
    term = np.empty(m)
    for equation in equations:
        row = rows[equation.variable]
        row *= equation.sd
        row += equation.intercept
        for parent, weight in zip(equation.parents, equation.weights, strict=True):
            np.multiply(rows[parent], weight, out=term)
            row += term
        largest = np.abs(row).max()
        if largest > LARGEST_VALUE:
            raise DataError(
                f"variable {equation.variable} of {len(equations)} reaches {largest:.0e}; above {LARGEST_VALUE:.0e} "
                "variances overflow: use fewer variables or a lower density"
            )
    return np.ascontiguousarray(rows.T)


def dag(equations: list[Equation]) -> np.ndarray:
    """Return the (p, p) bool matrix of equations, [i, j] if i is a parent of j."""
    return graph_of({equation.variable: equation.parents for equation in equations})


def generated(
    family: str,
    values: np.ndarray,
    source: str,
    *,
    true_dag: np.ndarray | None = None,
    labels: tuple[tuple[str, ...], ...] | None = None,
    **facts: Any,
) -> Dataset:
    """Return generated values of variables V0, V1, ... as a data set, with a sentence on their source and other facts.
    Generators raise ValueError where an argument is out of range; `load` gives their data sets a name."""
    names = tuple(f"V{k}" for k in range(values.shape[1]))
    return Dataset("generated", values, names, family, true_dag, {"source": f"generated: {source}", **facts}, labels)


def check_whole(least: int, **arguments: object) -> None:
    """Raise ValueError unless arguments, passed by their names, are integers of at least `least`."""
    for label, value in arguments.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise ValueError(f"{label} must be an integer >= {least}, not {value!r}")


def check_number(low: float, high: float, **arguments: object) -> None:
    """Raise ValueError unless arguments, passed by their names, are numbers in [low, high]."""
    for label, value in arguments.items():
        if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not low <= value <= high:
            raise ValueError(f"{label} must be a number in [{low:g}, {high:g}], not {value!r}")
