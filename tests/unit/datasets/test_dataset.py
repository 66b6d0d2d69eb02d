"""Data sets as files: what is saved is loaded, whole or as the reason why there is none."""

import numpy as np
import pytest

from datasets import Dataset, DatasetUnavailable


@pytest.mark.parametrize(
    "data",
    [
        Dataset(
            "plain", np.random.default_rng(0).normal(size=(5, 2)), ("a", "b"), "gaussian", facts={"source": "here"}
        ),
        Dataset(
            "all",
            np.array([[0, 1], [2, 0]], np.uint8),
            ("a", "b"),
            "discrete",
            np.array([[False, True], [False, False]]),
            {"samples": 2},
            (("x", "y", "z"), ("0", "1")),
        ),
    ],
    ids=lambda data: data.name,
)
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
