"""Generates discrete data: the synthetic settings of gpuPC, section 4.2 and Table 2."""

import numpy as np

from datasets.dataset import Dataset
from datasets.generate import check_whole, generated


def uniform_categories(p: int, n: int, categories: int, seed: int) -> Dataset:
    """Generate independent variables, each uniform over the same number of categories.

    The paper varies the number of variables N, the largest number of categories and the number of samples n, but does
    not say how the data are drawn. The paper fixes the number of tests for each edge, and the fraction of edges that
    each level removes whatever the results of the tests (the problem's ``tests_per_edge`` and ``decay``). Dependences
    therefore do not matter; with independent variables the table of every test is as large and as evenly filled as the
    setting allows.

    Args:
        p, n: the numbers of variables (the paper's N) and samples, at least 1.
        categories: the number of categories of every variable, 2 to 65536.
        seed: that of a PCG64 stream from which the variables are drawn one after the other.

    Returns:
        values (n, p); names V0, V1, ...; labels "0", "1", .... There is no true_dag, which would be empty.
    """
    check_whole(1, p=p, n=n)
    check_whole(2, categories=categories)
    check_whole(0, seed=seed)
    if categories > 1 << 16:
        raise ValueError(f"categories must be at most {1 << 16}, not {categories}")
    rng = np.random.Generator(np.random.PCG64(seed))
    codes = rng.integers(categories, size=(p, n), dtype=np.uint8 if categories <= 256 else np.uint16)
    source = f"independent uniform categories, {p=}, {n=}, {categories=}, {seed=}"
    return generated("discrete", codes.T, source, labels=(tuple(map(str, range(categories))),) * p)
