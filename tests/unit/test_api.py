"""The calls of a practitioner: what goes in, what comes out, what is refused."""

import types

import pandas as pd
import pytest

from gpupc_impl import GaussianProblem, InvalidParameter, InvalidProblem, UnknownMethod, alpha_path, pc, skeleton
from gpupc_impl.backends import BackendUnavailable, DeviceMemoryError
from gpupc_impl.backends.host import HostBackend
from gpupc_impl.core import solve
from gpupc_impl.core.registry import methods
from gpupc_impl.core.solve import choose_method
from tests.graphs import collider_chain

METHOD = "stable-serial"


@pytest.fixture(scope="module")
def frame():
    return collider_chain(2000)


LIMIT, CHOICES = {"device_memory_limit": "1 GB"}, "choose one of: discrete, gaussian, kernel, mixed, nonlinear"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"alpha": "0.05"}, InvalidProblem, "alpha is '0.05'; it must be a number strictly between 0 and 1"),
        ({"names": "abcd"}, InvalidProblem, "names is 'abcd'; it must be a sequence of names"),
        ({"transpose": "yes"}, InvalidProblem, "transpose is 'yes'; it must be True or False"),
        (LIMIT, InvalidProblem, "device_memory_limit is '1 GB'; it must be a number of bytes"),
        ({"family": ["gaussian"]}, InvalidProblem, r"family \['gaussian'\] is not known; choose one of: discrete"),
        ({"method": None}, UnknownMethod, "method None is not known; all are listed by"),
    ],
)
def test_a_value_of_another_type_is_named(frame, arguments, error, message):
    with pytest.raises(error, match=message):
        skeleton(frame.to_numpy(), **arguments)


def test_memory_of_a_device_is_given_back(frame, monkeypatch):
    released = []
    monkeypatch.setattr(HostBackend, "release_memory", lambda backend: released.append(backend))
    skeleton(frame, method="pair-scan", backend="host")
    assert len(released) == 1
    with pytest.raises(DeviceMemoryError):
        skeleton(frame, method="pair-scan", backend="host", device_memory_limit=8)
    assert len(released) == 2
    skeleton(frame, method="stable-serial")
    assert len(released) == 2
    alpha_path(frame, [0.01, 0.05], method="pair-scan", backend="host")
    assert len(released) == 3


@pytest.mark.parametrize(
    "given", [{"alpha": 0.01}, {"n_samples": 9}, {"names": list("abcd")}, {"max_level": 1}, {"df_convention": "cupc"}]
)
def test_what_a_ready_problem_carries_is_not_given_again(frame, given):
    made = GaussianProblem.from_data(frame)
    with pytest.raises(InvalidProblem, match=f"a ready problem, which carries its own {next(iter(given))};"):
        skeleton(made, method=METHOD, **given)


@pytest.mark.parametrize("call", [skeleton, pc])
def test_refuses(frame, call):
    with pytest.raises(InvalidProblem, match="alpha is 2"):
        call(frame, 2, method=METHOD)
    with pytest.raises(UnknownMethod, match="'pc-stable' is not known"):
        call(frame, method="pc-stable")
    with pytest.raises(InvalidParameter, match="no parameter 'theta'"):
        call(frame, method=METHOD, theta=64)
    with pytest.raises(InvalidParameter, match="separating_sets is 'any'; choose one of: canonical, first-come"):
        call(frame, method=METHOD, separating_sets="any")
    with pytest.raises(ValueError, match="backend 'opencl' is not known; choose one of: auto, cuda, host"):
        call(frame, method="cupc-s", backend="opencl")


def test_auto_takes_the_method_that_is_fastest_where_it_runs(monkeypatch):
    monkeypatch.setattr(solve, "resolve_backend", lambda name: "host" if name == "auto" else name)
    for backend in ("cuda", "auto", "host"):
        assert choose_method("auto", backend, "gaussian").name == "pair-scan"
        assert choose_method("auto", backend, "discrete").name == "gpupc"
    no_compiler = types.SimpleNamespace(unavailable=lambda: "no C++ compiler found")
    monkeypatch.setattr(solve, "backend_class", lambda name: no_compiler)
    assert choose_method("auto", "auto", "gaussian").name == "stable-parallel"
    assert choose_method("auto", "auto", "discrete").name == "discrete-parallel"
    assert choose_method("cupc-e", "auto", "gaussian").name == "cupc-e"


def test_where_nothing_can_run_every_reason_is_told(frame, monkeypatch):
    """An empty environment without a compiler."""
    no_compiler = types.SimpleNamespace(unavailable=lambda: "no C++ compiler found")
    installed = {name: found for name, found in methods("gaussian").items() if not found.reference}
    monkeypatch.setattr(solve, "resolve_backend", lambda name: "host" if name == "auto" else name)
    monkeypatch.setattr(solve, "backend_class", lambda name: no_compiler)
    monkeypatch.setattr(solve, "method_of", lambda family, name: installed.get(name))
    said = r"family 'gaussian' can run here: .*no C\+\+ compiler found \(pair-scan\)"
    with pytest.raises(BackendUnavailable, match=said):
        skeleton(frame)
    with pytest.raises(UnknownMethod, match="'pair-skan' is not known"):
        skeleton(frame, method="pair-skan")


def test_a_table_of_words_is_discrete_and_numbers_are_gaussian(frame):
    labels = frame.apply(lambda column: pd.cut(column, 3, labels=["low", "middle", "high"]))
    found = skeleton(labels, 0.001, backend="host", max_level=1)
    assert found.facts["method"] == "gpupc"
    assert found.facts["problem"]["df_rule"] == "full"
    assert skeleton(labels.astype(str), 0.001, backend="host", max_level=1) == found
    assert skeleton(frame, 0.001, max_level=0).facts["method"] == "pair-scan"


def test_the_family_and_its_test_are_chosen(frame):
    few = {"permutations": 20, "k_cmi": 5, "max_level": 1}
    found = skeleton(frame[:60], 0.05, family="nonlinear", backend="host", beta=32, **few)
    assert found.facts["method"] == "gpucmiknn-parallel"
    assert found.facts["problem"]["permutations"] == 20
    assert found.facts["params"]["beta"] == 32
    assert skeleton(frame.round().astype(int), family="discrete", method="gpupc", backend="host", df_rule="adjusted")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"family": "discrete", "method": "cupc-s"}, "method 'cupc-s' is of family 'gaussian', not 'discrete'"),
        ({"family": "ordinal"}, f"family 'ordinal' is not known; {CHOICES}"),
        ({"family": "nonlinear", "n_samples": 9}, "a correlation matrix, which a nonlinear test cannot use"),
        ({"family": "nonlinear", "k_cmi": 5000}, "k_cmi"),
    ],
)
def test_what_does_not_fit_the_family(frame, options, message):
    with pytest.raises(InvalidProblem, match=message):
        skeleton(frame, **options)


def test_the_test_of_another_family_is_no_option(frame):
    with pytest.raises(InvalidParameter, match=r"no parameter 'df_rule'; .*; the gaussian test has: df_convention"):
        skeleton(frame, method="cupc-s", df_rule="full")
