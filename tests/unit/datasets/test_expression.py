"""Simulated gene expressions: the model's equations, and networks that come from files of their own."""

import hashlib
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import datasets
from datasets import DataError, RegistryError
from datasets.dataset import DatasetUnavailable
from datasets.expression import saturating_genes
from tests import loaded

EFFECTS = {"weakest": 1.0, "strongest": 2.0, "noise": 0.5}
NAMES = ("a", "b", "c", "d")
STAR = np.array([[0, 1, 1, 1], [1, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]])

PINNED = [
    [0.10296768001436127, -0.46193508065747174, -0.3217258129308808, 0.25526805158187793],
    [-0.9805271710302613, -0.16539465069935938, 1.2394267035037094, -0.37327164865629475],
]


@settings(deadline=None, max_examples=30)
@given(p=st.integers(1, 12), density=st.floats(0, 1), seed=st.integers(0, 2**32))
def test_each_pair_of_the_network_becomes_one_arc_of_a_dag(p, density, seed):
    rng = np.random.default_rng(seed)
    network = np.triu(rng.random((p, p)) < density, 1)
    data = saturating_genes(network, [f"g{k}" for k in range(p)], m=3, seed=seed, **EFFECTS)
    assert np.array_equal(data.true_dag | data.true_dag.T, network | network.T)
    assert not np.linalg.matrix_power(data.true_dag.astype(float), p).any()  # no walk of p steps, so no cycle
    degrees = (network | network.T).sum(axis=0)
    regulators, targets = np.nonzero(data.true_dag)
    assert (degrees[regulators] >= degrees[targets]).all()


def test_a_gene_follows_its_regulator_up_to_a_bound():
    data = saturating_genes(STAR, NAMES, m=4000, seed=3, weakest=6.0, strongest=6.0, noise=0.0)
    regulator, *targets = data.values.T
    for target in targets:  # the regulator's effects of 6 are divided among three targets
        total = np.sign(target[np.argmax(regulator)]) * 2 * regulator
        assert target == pytest.approx(total / (1 + np.abs(total)), abs=1e-15)
        assert np.abs(target).max() < 1
    assert saturating_genes(STAR, NAMES, m=4000, seed=3, **EFFECTS).values[:, 0] == pytest.approx(regulator)
    assert not np.array_equal(saturating_genes(STAR, NAMES, m=4000, seed=4, **EFFECTS).values[:, 0], regulator)


def test_values_have_the_same_bits_everywhere():
    values = saturating_genes(STAR, NAMES, m=2, seed=0, **EFFECTS).values
    assert values.tolist() == PINNED


def write(path, text):
    path.write_text(text)
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def mirror(tmp_path):
    """A folder with data of three variables and a network of two arcs and a loop; and an entry for them."""
    data = write(tmp_path / "data.csv", "a,b,c\n1,2,3\n4,5,7\n")
    network = write(tmp_path / "network.csv", "a,b,c\n1,1,0\n0,0,1\n0,0,0\n")
    shared = {"url": "https://127.0.0.1:9/x", "reader": {"format": "csv", "header": True}, "variables": 3}
    entry = {
        **{"kind": "file", "family": "gaussian", "file": "data.csv", "sha256": data, "samples": 2, **shared},
        **{"true_network": {"file": "network.csv", "sha256": network, **shared}, "licence": "none", "citation": "none"},
    }
    return tmp_path, entry


def load(mirror, **change):
    folder, entry = mirror
    where = {"cache_dir": folder / "cache", "mirrors": [folder], "offline": True}
    return datasets.load("toy", spec={**entry, **change}, **where)


def test_a_file_has_its_true_network_from_another_file(mirror):
    assert np.argwhere(load(mirror).true_dag).tolist() == [[0, 1], [1, 2]]  # without the loop


def test_a_generator_receives_the_network(mirror):
    folder, entry = mirror
    generated = {key: entry[key] for key in ("family", "true_network", "licence", "citation")}
    generated |= {"kind": "generated", "generator": "expression.saturating_genes"}
    parameters = {"m": 7, "seed": 1, **EFFECTS}
    data = load((folder, generated), parameters=parameters)
    assert (data.values.shape, data.names) == ((7, 3), ("a", "b", "c"))
    del generated["true_network"]
    with pytest.raises(RegistryError, match="missing a required argument: 'network'"):
        load((folder, generated), parameters=parameters)


def test_a_network_that_does_not_fit_is_an_error(mirror):
    folder, entry = mirror
    with pytest.raises(DataError, match=r"network\.csv: a matrix of shape \(3, 3\); registered: 4 variables"):
        load(mirror, true_network={**entry["true_network"], "variables": 4})
    other = write(folder / "other.csv", "a,b,d\n0,1,0\n0,0,1\n0,0,0\n")
    with pytest.raises(DataError, match=r"the variables of other\.csv are not those of"):
        load(mirror, true_network={**entry["true_network"], "file": "other.csv", "sha256": other})
    with pytest.raises(DatasetUnavailable, match=r"lost\.csv"):
        load(mirror, true_network={**entry["true_network"], "file": "lost.csv"})


@pytest.mark.skipif(not os.environ.get("GPUPC_MIRRORS"), reason="GPUPC_MIRRORS is not set: no mirror folder")
def test_the_stand_in_for_dream5_has_its_registered_bits(tmp_path):
    data = loaded.load("dream5-like", cache_dir=tmp_path)
    assert (data.values.shape, int(data.true_dag.sum())) == ((850, 1565), 3632)
    assert data.facts["sha256"] == "e6968a536fdd441363e0b6138ddda500731fec573d941d7a52c19b8e8e69090e"
