"""Skeletons that other packages find, found by every discrete method on every backend that it can use here.

`data/alarm-5000.csv` holds 5000 samples of ALARM as integer codes. At alpha 0.01, bnlearn's `x2` (chi-square, full
degrees of freedom: the definition of gpuPC, section 2.3) leaves the edges of `alarm-5000_bnlearn_x2.edges`, its `mi`
(G-square, full) those of `alarm-5000_bnlearn_mi.edges`, and causal-learn's `chisq` (adjusted) those of
`alarm-5000_causallearn_chisq.edges`.
"""

from pathlib import Path

import numpy as np
import pandas
import pytest

from gpupc_impl import skeleton
from gpupc_impl.core.registry import get_method
from gpupc_impl.discrete.problem import DiscreteProblem
from tests.golden.test_skeletons import settings
from tests.graphs import edges_to_adjacency

pytestmark = pytest.mark.xdist_group("discrete")  # so that only one process compiles the references

DATA = Path(__file__).parent / "data"

GOLDEN = {
    "bnlearn_x2": ("chi-square", "full", 35),
    "bnlearn_mi": ("g-square", "full", 33),
    "causallearn_chisq": ("chi-square", "adjusted", 43),
}


@pytest.fixture(scope="module")
def alarm() -> pandas.DataFrame:
    return pandas.read_csv(DATA / "alarm-5000.csv")


@pytest.mark.parametrize("golden", GOLDEN)
@pytest.mark.parametrize(("method", "backend"), list(settings("discrete", canonical_only=False)))
def test_alarm(alarm, method, backend, golden):
    test, df_rule, n_edges = GOLDEN[golden]
    known = {"causal-learn-discrete": ("causallearn_chisq",), "gpucsl-discrete": ("bnlearn_x2",), "fastpgm": ()}
    known |= {f"{name}-discrete": () for name in ("gcastle", "pgmpy", "tetrad")}  # They have rules of their own.
    known |= {"andrey-discrete": tuple(name for name, (_, rule, _) in GOLDEN.items() if rule == "adjusted")}
    if golden not in known.get(method, GOLDEN):
        pytest.skip(f"{method} does not know this rule")
    edges = np.loadtxt(DATA / f"alarm-5000_{golden}.edges", dtype=int)
    assert alarm.shape == (5000, 37)
    assert len(edges) == n_edges
    problem = DiscreteProblem.from_data(alarm, alpha=0.01, test=test, df_rule=df_rule)
    found = skeleton(problem, method=method, backend=backend)
    assert np.array_equal(found.adjacency, edges_to_adjacency(edges, 37))
    if get_method(method).canonical:
        assert found == skeleton(problem, method="discrete-serial")
