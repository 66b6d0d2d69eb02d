"""Binary tables that would crash Python, open other files or take gigabytes in the package that reads them."""

import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from gpupc_impl import skeleton
from gpupc_impl.core.problem import InvalidProblem

READ = "import sys; from gpupc_impl import skeleton; skeleton(sys.argv[1], method='stable-serial', progress=False)"


def refused(path, message):
    """Read a table in a process of its own, which the attack may crash or stop, and look for the message."""
    ended = subprocess.run([sys.executable, "-c", READ, path], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1, ended.stderr
    last = ended.stderr.strip().splitlines()[-1]
    assert f"DataError: {path} is not a readable {path.suffix} file: ValueError: " in last
    assert message in last


# --- AnnData ---------------------------------------------------------------------------------------------------------


def anndata_of(matrix):
    anndata = pytest.importorskip("anndata")
    names = [pd.DataFrame(index=pd.Index([f"n{k}" for k in range(size)], dtype=object)) for size in matrix.shape]
    return anndata.AnnData(matrix, obs=names[0], var=names[1])


def sparse_matrix():
    from scipy import sparse

    return sparse.csr_matrix(np.random.default_rng(0).normal(size=(20, 3)))


@pytest.mark.parametrize("index", [10**8, 3, -1])
def test_indices_that_lead_out_of_a_sparse_matrix(tmp_path, index):
    """SciPy writes where they lead, without a check."""
    data = anndata_of(sparse_matrix())
    path = tmp_path / "data.h5ad"
    data.write_h5ad(path)
    with pytest.importorskip("h5py").File(path, "r+") as file:
        file["X/indices"][5] = index
    refused(path, "its matrix X of shape (20, 3) is sparse, and its indices do not fit that shape (indices must be ")
    data.X.indices[5] = index
    with pytest.raises(InvalidProblem, match=r"AnnData object that cannot be read.*its indices do not fit that shape"):
        skeleton(data, method="stable-serial", progress=False)


def link(file, other):
    import h5py

    file["X"] = h5py.ExternalLink(other, "/X")


def link_in_a_group(file, other):
    file["X"] = np.zeros((20, 3))
    link(file.create_group("uns/deep"), other)
    file["uns/deep/round"] = file["uns"]  # The walk has to end.


def values_elsewhere(file, other):
    file.create_dataset("X", shape=(20, 3), dtype="f8", external=[(other, 0, 480)])


def view(file, other):
    import h5py

    layout = h5py.VirtualLayout(shape=(20, 3), dtype="f8", maxshape=(None, 3))
    layout[:] = h5py.VirtualSource(other, "X", shape=(20, 3), maxshape=(None, 3))
    file.create_virtual_dataset("X", layout)


ELSEWHERE = {
    link: "/X is a link to",
    link_in_a_group: "/uns/deep/X is a link to",
    values_elsewhere: "/X is values in",
    view: "/X is a view of",
}


@pytest.mark.parametrize("attack", ELSEWHERE)
def test_an_anndata_file_that_leads_to_another_file(tmp_path, attack):
    """HDF5 would wait for the pipe."""
    path, pipe = tmp_path / "data.h5ad", str(tmp_path / "pipe")
    anndata_of(np.zeros((20, 3))).write_h5ad(path)
    os.mkfifo(pipe)
    with pytest.importorskip("h5py").File(path, "r+") as file:
        described = dict(file["X"].attrs)
        del file["X"]
        attack(file, pipe)
        if attack is not link:
            file["X"].attrs.update(described)
    refused(path, f"{ELSEWHERE[attack]} another file ({pipe!r}); a table must hold its values itself")
