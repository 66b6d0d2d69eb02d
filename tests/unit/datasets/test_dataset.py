"""Data sets as files: what is saved is loaded, whole or as the reason why there is none."""

import numpy as np
import pytest

from datasets import DataError, Dataset, DatasetUnavailable, load, registry

VALUES = np.random.default_rng(0).normal(size=(5, 2))
CODES, DAG = np.uint8([[0, 1], [2, 0]]), np.eye(2, k=1, dtype=bool)
PLAIN = Dataset("plain", VALUES, ("a", "b"), "gaussian", facts={"source": "here"})
WHOLE = Dataset("all", CODES, ("a", "b"), "discrete", DAG, {"samples": 2}, (("x", "y", "z"), ("0", "1")))


@pytest.mark.parametrize("data", [PLAIN, WHOLE], ids=lambda data: data.name)
def test_what_is_saved_is_loaded(tmp_path, data):
    data.save(tmp_path / "data.npz")
    loaded = Dataset.load(tmp_path / "data.npz")
    assert (loaded.name, loaded.names, loaded.family, loaded.facts, loaded.labels) == (
        *(data.name, data.names, data.family, data.facts, data.labels),
    )
    for one, other in ((loaded.values, data.values), (loaded.true_dag, data.true_dag)):
        assert np.array_equal(one, other)
        assert getattr(one, "dtype", None) == getattr(other, "dtype", None)
    assert loaded.values.flags.f_contiguous == data.values.flags.f_contiguous


def test_why_there_is_none_is_saved_as_well(tmp_path):
    DatasetUnavailable("nobody has it", {"citation": "none"}).save(tmp_path / "data.npz")
    with pytest.raises(DatasetUnavailable, match="nobody has it") as caught:
        Dataset.load(tmp_path / "data.npz")
    assert caught.value.facts == {"citation": "none"}


def test_a_users_own_table(tmp_path):
    """What a config declares by `path`, read as the command line reads it."""
    path = tmp_path / "my.csv"
    path.write_text("a;b\n1,5;2,5\n2,5;4,5\n3,5;8,5\n")
    entry = registry.declared("mine", {"path": str(path)})
    data = load("mine", spec=entry)
    assert (data.family, data.names, data.values[0].tolist()) == ("gaussian", ("a", "b"), [1.5, 2.5])
    assert data.facts["source"] == "my.csv"  # records are published, and tell no folder
    labels = load("mine", spec=registry.declared("mine", {"path": str(path), "family": "discrete"}))
    assert labels.values.tolist() == [[0, 0], [1, 1], [2, 2]]
    path.write_text("a;b\n1,5;2,5\n2,5;\n3,5;8,5\n")
    for family in ("gaussian", "discrete"):
        with pytest.raises(DataError, match="missing"):
            load("mine", spec=registry.declared("mine", {"path": str(path), "family": family}))
    path.unlink()
    with pytest.raises(DatasetUnavailable, match=f"data set 'mine' is not available: there is no file {path}"):
        load("mine", spec=entry)
    assert registry.declared("nci-60", {"alpha": 0.1}) == registry.resolve("nci-60")
