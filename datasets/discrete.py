"""Generates discrete data: the synthetic settings of gpuPC, section 4.2 and Table 2."""

import numpy as np

from datasets.dataset import Dataset
from datasets.generate import check_whole, generated


def uniform_categories(p: int, n: int, categories: int, seed: int) -> Dataset:
    """Generate p independent variables (the paper's N) with n samples, each uniform over the same 2 to 65536
    categories, from one PCG64 stream, one variable after the other. The true_dag would be empty, so there is none.

    The paper varies the number of variables N, the largest number of categories and the number of samples n, but does
    not say how the data are drawn. The paper fixes the number of tests for each edge, and the fraction of edges that
    each level removes whatever the results of the tests (the problem's ``tests_per_edge`` and ``decay``). Dependences
    therefore do not matter; with independent variables the table of every test is as large and as evenly filled as the
    setting allows.
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
