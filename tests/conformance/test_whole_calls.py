"""The calls `fci` and `pcmci` as methods: graphs of all backends, of the references and of other packages, verified."""

from types import SimpleNamespace

import numpy as np
import pytest

from datasets.generate import random_dag_of_degree
from datasets.series import linear_series
from gpupc_impl import GaussianProblem, InvalidProblem, skeleton
from gpupc_impl.backends import BACKENDS, backend_class
from gpupc_impl.core.family import families, get_family
from gpupc_impl.core.registry import get_method, methods
from gpupc_impl.core.solve import open_method_backend, solve, unavailable
from gpupc_impl.core.whole_graphs import whole_graph
from gpupc_impl.measurement.worker import check_answer
from gpupc_impl.verification.verify import verify


def latent(p=14, **parameters):
    data = random_dag_of_degree(p, 500, 2.5, 1, hidden=4)
    return get_family("latent").problem.from_data(data.values, alpha=0.05, **parameters)


def series(p=6, **parameters):
    values = linear_series(p, 200, 2, 1.5, 3).values
    return get_family("time_series").problem.from_data(values, alpha=0.05, tau_max=2, **parameters)


SAME_SETS = ("stable-serial", "fci-serial", "fci", "pcmci-serial", "pcmci")


def verified(problem, *answers):
    """The rows of a verification of (setting, answer) pairs, of which the first is the reference."""
    outcomes = []
    for number, (setting, found) in enumerate(answers):
        record = SimpleNamespace(setting=setting, method=setting, dataset="toys", backend="cpu", why=None)
        record.canonical, record.random, record.reference = setting in SAME_SETS, False, number == 0
        record.problem = problem.facts()
        outcomes.append((record, check_answer(found, problem)))
    return verify(problem, outcomes)


def found(problem, name, backend="cpu"):
    method = get_method(name)
    if reason := unavailable(method, backend):
        pytest.skip(reason)
    return solve(problem, method, open_method_backend(method, backend))


CALLS = {
    "rfci": (latent, {"algorithm": "rfci"}, "fci"),
    "fci": (latent, {"algorithm": "fci", "max_possible_d_sep": 3}, "fci"),
    "pcmci": (series, {"algorithm": "pcmci"}, "pcmci"),
    "pcmciplus": (series, {"algorithm": "pcmciplus"}, "pcmci"),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("call", CALLS)
def test_a_graph_is_that_of_the_reference(call, backend):
    if reason := backend_class(backend).unavailable():
        pytest.skip(reason)
    make, parameters, name = CALLS[call]
    problem = make(**parameters)
    serial = f"{name}-serial"
    rows = verified(problem, (serial, found(problem, serial)), (name, found(problem, name, backend)))
    assert [row["status"] for row in rows] == ["equal", "equal"]
    assert rows[1]["edges"] > 2


@pytest.mark.parametrize("name", ["tigramite-pcmci", "andrey-pcmci"])
@pytest.mark.parametrize("algorithm", ["pcmci", "pcmciplus"])
def test_other_packages_find_the_links_and_p_values_of_pcmci(algorithm, name):
    problem = series(algorithm=algorithm)
    rows = verified(problem, ("pcmci-serial", found(problem, "pcmci-serial")), (name, found(problem, name)))
    assert rows[1]["status"] == "equal"


@pytest.mark.parametrize("name", ["andrey-fci", "tetrad-fci", "causal-learn-fci"])
def test_differences_of_other_packages_pags_are_explained(name):
    problem = latent(algorithm="fci")
    rows = verified(problem, ("fci-serial", found(problem, "fci-serial")), (name, found(problem, name)))
    assert rows[1]["status"] in ("equal", "convention")
    assert int(rows[1]["differing_edges"]) < rows[1]["edges"] / 2


@pytest.mark.parametrize("name", ["andrey", "tetrad", "pgmpy", "gcastle", "pc"])
def test_other_packages_find_the_skeleton_of_pc(name):
    values = random_dag_of_degree(12, 300, 2, 0).values
    problem = GaussianProblem.from_data(values, alpha=0.01)
    ours = skeleton(problem, method="stable-serial", backend="cpu")
    rows = verified(problem, ("stable-serial", ours), (name, found(problem, name)))
    assert rows[1]["status"] in (("equal", "convention") if name == "gcastle" else ("equal",))


def test_a_mark_and_a_p_value_that_differ_are_unexplained_or_a_convention():
    problem, run = series(p=3), SimpleNamespace(facts={})
    edges = np.ones((3, 3), bool)

    def graph(value=0.01, mark="--> lag 1", **facts):
        return whole_graph(problem, run, edges, [(0, 1, mark, value), (1, 1, "--> lag 1", 0.0)], **facts)

    others = {
        "equal": graph(0.01 + 1e-12),
        "p-value": graph(0.01 + 1e-9),
        "mark": graph(mark="--> lag 2"),
        "rule": graph(mark="--> lag 2", differs_by="it says so"),
    }
    rows = verified(problem, ("reference", graph()), *others.items())
    assert [row["status"] for row in rows] == ["equal", "equal", "unexplained", "unexplained", "convention"]
    assert rows[-1]["detail"].startswith("it says so; edges differ: V0 - V1")


def test_families_of_other_calls_are_no_searches_for_a_skeleton():
    assert {"latent", "time_series"} <= families(None).keys() - families().keys()
    assert not {"fci", "pcmci"} & methods().keys()
    values = np.random.default_rng(0).normal(size=(50, 4))
    with pytest.raises(InvalidProblem, match="call `fci` instead"):
        skeleton(values, method="fci")
    with pytest.raises(InvalidProblem, match="call `pcmci` instead"):
        skeleton(values, family="time_series")


def test_our_own_call_leaves_nothing_to_compile_beside_the_next_one(monkeypatch):
    finished = []
    monkeypatch.setattr(backend_class("host"), "finish_prefetched", lambda self: finished.append(self))
    problem = GaussianProblem.from_data(random_dag_of_degree(8, 200, 2.0, 0).values, alpha=0.05)
    found(problem, "pc")
    assert finished
