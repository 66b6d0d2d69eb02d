"""The estimator, by scikit-learn's own checks of what an estimator must do."""

import numpy as np
import pandas as pd
import pytest

checks = pytest.importorskip("sklearn.utils.estimator_checks")
from sklearn.base import clone  # noqa: E402

from gpupc_impl import pc  # noqa: E402
from gpupc_impl.bridges.scikit_learn import PC  # noqa: E402


@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_checks():
    results = checks.check_estimator(PC(method="stable-serial"), on_fail=None)
    assert len(results) > 30
    assert {result["check_name"]: repr(result["exception"]) for result in results if result["status"] == "failed"} == {}


def test_fit_is_pc(tmp_path):
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 300))
    data = pd.DataFrame({"a": a, "b": b, "c": a + b + rng.normal(size=300)})
    estimator = PC(alpha=0.01, method="stable-serial", options={"df_convention": "cupc"})
    fitted = clone(estimator).fit(data)
    expected = pc(data, 0.01, method="stable-serial", df_convention="cupc")
    assert fitted.graph_ == expected
    assert fitted.feature_names_in_.tolist() == list(fitted.graph_.names) == ["a", "b", "c"]
    assert fitted.adjacency_.tolist() == (expected.directed | expected.undirected).tolist()
    assert estimator.get_params()["alpha"] == 0.01
    assert not hasattr(estimator, "graph_")


def test_missing_values_and_labels():
    rng = np.random.default_rng(1)
    data = rng.normal(size=(60, 3))
    data[3, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        PC().fit(data)
    assert PC(missing="pairwise").fit(data).n_features_in_ == 3
    words = pd.DataFrame(rng.choice(["p", "q"], (60, 3)), columns=list("abc"))
    assert PC(family="discrete", method="discrete-serial").fit(words).adjacency_.shape == (3, 3)
