"""Example data, and the package's shorter name."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import gpupc
import gpupc_impl
from gpupc import examples, pc
from gpupc_impl.examples import HEALTH, SACHS, parents_of


@pytest.mark.parametrize(("make", "network", "arrows"), [(examples.sachs, SACHS, 17), (examples.health, HEALTH, 9)])
def test_data_come_from_their_network(make, network, arrows):
    """No edge is found that is not there, and nearly all that are."""
    frame = make(2000)
    assert list(frame) == list(parents_of(network))
    assert make(2000).equals(frame)
    assert not make(2000, seed=1).equals(frame)
    true = {frozenset((parent, name)) for name, parents in parents_of(network).items() for parent in parents}
    assert len(true) == arrows
    found = {frozenset(edge[:2]) for edge in pc(frame, 0.001, backend="host").to_frame().itertuples(index=False)}
    assert found <= true
    assert len(found) >= arrows - 1


def test_directions_of_health_are_those_of_its_network():
    directed = pc(examples.health(), 0.01, backend="host").to_frame().query("kind == 'directed'")
    assert len(directed) == 7
    assert all(row.source in parents_of(HEALTH)[row.target] for row in directed.itertuples())


def test_the_shorter_name_is_the_package():
    assert gpupc.__all__ == gpupc_impl.__all__
    assert all(getattr(gpupc, name) is getattr(gpupc_impl, name) for name in gpupc.__all__)
    with pytest.raises(ImportError, match="cannot import name 'nothing' from 'gpupc'"):
        from gpupc import nothing  # noqa: F401
    done = subprocess.run([sys.executable, "-m", "gpupc", "--version"], capture_output=True, text=True)
    assert done.stdout == f"{gpupc_impl.__version__}\n"


def test_a_chain_is_sparse():
    values = examples.chain(10, 50)
    assert values.shape == (50, 10)
    assert np.isfinite(values).all()
