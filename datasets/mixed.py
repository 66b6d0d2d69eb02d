"""Generates mixed data: additive noise models whose variables are numbers or categories."""

import math

import numpy as np

from datasets.dataset import Dataset
from datasets.generate import check_number, check_whole, generated
from datasets.nonlinear import dag, random_nodes, signal

CATEGORIES = (2, 3, 4)  # the numbers of categories, which are equally likely


def categorized_noise(p: int, n: int, seed: int, degree: float = 2.0, share: float = 0.5) -> Dataset:
    """Generate data of a random graph of numeric and categorical variables, n samples of p in topological order.

    Graph, functions, weights and numeric variables, which are standardised, are those of `nonlinear.additive_noise`,
    with an average number of neighbours. A categorical variable, of which there is a share, is a numeric one cut into
    intervals with equally many samples. Each category has a standard normal number on which the variable's children
    depend; these numbers need not have the order of the intervals. Numeric variables have no labels.
    """
    check_whole(1, p=p)
    check_whole(max(CATEGORIES), n=n)
    check_whole(0, seed=seed)
    check_number(0, max(p - 1, 1), degree=degree)
    check_number(0, 1, share=share)
    rng = np.random.Generator(np.random.PCG64(seed))
    nodes = random_nodes(rng, p, degree / max(p - 1, 1))
    numbers = np.where(rng.random(p) < share, rng.choice(CATEGORIES, p), 0)
    values, causes = np.empty((p, n)), np.empty((p, n))  # the data, and the values on which the children depend
    for variable, node in enumerate(nodes):
        row = signal(node, causes) + rng.standard_normal(n)
        row -= math.fsum(row) / n
        row /= math.sqrt(math.fsum(row * row) / (n - 1))
        values[variable] = causes[variable] = row
        if count := int(numbers[variable]):
            codes = np.empty(n, np.int64)
            codes[np.argsort(row, kind="stable")] = np.arange(n) * count // n
            values[variable], causes[variable] = codes, rng.standard_normal(count)[codes]
    labels = tuple(tuple(f"c{code}" for code in range(count)) for count in numbers)
    source = f"numbers and categories, {p=}, {n=}, {degree=}, {share=}, {seed=}"
    return generated("mixed", np.ascontiguousarray(values.T), source, true_dag=dag(nodes), labels=labels)
