"""Generated mixed data."""

import numpy as np
import pytest

from datasets import load
from datasets.mixed import categorized_noise
from gpupc_impl import MixedProblem

SPEC = {"kind": "generated", "family": "mixed", "generator": "mixed.categorized_noise", "licence": "MIT"}
SPEC |= {"parameters": {"p": 6, "n": 50, "seed": 3}, "citation": "none"}


def test_columns_are_standard_numbers_or_balanced_codes():
    data = categorized_noise(60, 101, seed=0)
    sizes = {len(labels) for labels in data.labels}
    assert sizes == {0, 2, 3, 4}
    for column, labels in zip(data.values.T, data.labels, strict=True):
        if labels:
            counts = np.bincount(column.astype(int), minlength=len(labels))
            assert len(counts) == len(labels)
            assert counts.max() - counts.min() <= 1
        else:
            assert column.mean() == pytest.approx(0, abs=1e-12)
            assert column.std(ddof=1) == pytest.approx(1)


def test_share_is_of_categories():
    assert not any(categorized_noise(10, 20, seed=0, share=0).labels)
    assert all(categorized_noise(10, 20, seed=0, share=1).labels)


def test_edges_are_dependences():
    """A child's mean differs between the categories of its only parent; the graph is upper triangular."""
    found = 0
    for seed in range(40):
        data = categorized_noise(2, 400, seed=seed, degree=1)
        assert not np.tril(data.true_dag).any()
        if data.labels[0] and not data.labels[1]:
            means = [data.values[data.values[:, 0] == code, 1].mean() for code in range(len(data.labels[0]))]
            spread = max(means) - min(means)
            assert data.true_dag[0, 1] or spread < 0.5
            found += data.true_dag[0, 1] and spread > 0.25
    assert found >= 3


def test_a_config_can_declare_it(tmp_path):
    data = load("mixed-p6", spec=SPEC)
    data.save(tmp_path / "data.npz")
    loaded = type(data).load(tmp_path / "data.npz")
    assert loaded.labels == data.labels
    categories = dict(zip(loaded.names, loaded.labels, strict=True))
    problem = MixedProblem.from_data(loaded.values, names=loaded.names, categories=categories)
    assert problem.categories.tolist() == [len(labels) for labels in data.labels]
