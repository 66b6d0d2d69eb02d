"""The registry: how methods register, how they are found, how parameters are read."""

import numpy as np
import pytest

from gpupc_impl import InvalidParameter, methods
from gpupc_impl.core import registry
from gpupc_impl.core.registry import Parameter, get_method, method

PARAMS = {
    "theta": Parameter(64, "threads", minimum=1, maximum=512),
    "fast": Parameter(False, "a switch"),
    "ratio": Parameter(0.5, "a share", minimum=0, maximum=1),
    "shape": Parameter("row", "a choice", choices=("row", "block")),
}


PARSED = [("theta", 32, 32), ("theta", "32", 32), ("theta", 1, 1), ("theta", np.int64(32), 32), ("ratio", "0.25", 0.25)]
PARSED += [("ratio", 1, 1.0), ("fast", np.True_, True), ("fast", "true", True), ("shape", "block", "block")]


@pytest.mark.parametrize(("name", "given", "parsed"), PARSED)
def test_parses(name, given, parsed):
    value = PARAMS[name].parse(name, given)
    assert value == parsed
    assert type(value) is type(parsed)


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("theta", 0, "parameter theta is 0; it must be at least 1"),
        ("theta", "many", "parameter theta is 'many'; it must be of type int"),
        ("theta", True, "parameter theta is True; it must be of type int"),
        ("fast", 1, "parameter fast is 1; it must be of type bool"),
        ("ratio", "nan", "parameter ratio is nan; it must be at least 0"),
        ("ratio", "inf", "parameter ratio is inf; it must be at most 1"),
        ("shape", "column", "parameter shape is 'column'; choose one of: row, block"),
    ],
)
def test_refuses(name, given, message):
    with pytest.raises(InvalidParameter) as caught:
        PARAMS[name].parse(name, given)
    assert str(caught.value) == message


def test_parameters_of_a_method(own_methods):
    method("here", family="gaussian", source="a test", summary="none", params=PARAMS)(lambda problem, run: None)
    found = get_method("here")
    assert found.parse_params({}) == {"theta": 64, "fast": False, "ratio": 0.5, "shape": "row"}
    assert found.parse_params({"theta": "8"})["theta"] == 8
    with pytest.raises(InvalidParameter, match="method 'here' has no parameter 'Theta'; it has: theta, fast, ratio"):
        found.parse_params({"Theta": 8})


def test_a_name_belongs_to_one_module(own_methods):
    def solve(problem, run):
        return None

    def elsewhere(problem, run):
        return None

    elsewhere.__module__ = "another.module"
    register = method("here", family="gaussian", source="a test", summary="none")
    assert register(solve) is solve
    register(solve)  # a module that is imported again
    with pytest.raises(ValueError, match=r"method 'here' is defined twice: in .*test_registry and in another\.module"):
        register(elsewhere)


def test_what_a_method_says_of_itself_is_complete():
    for name, found in methods().items():
        assert name == found.name
        assert found.source
        assert found.summary
        by_others = found.module.startswith("baselines.peers.")
        assert found.reference == (found.backends == ("cpu",) and not by_others)
        assert found.module.rpartition(".")[0] in registry.method_packages()
        assert found.parse_params({}) == {key: parameter.default for key, parameter in found.params.items()}
        assert all(parameter.description for parameter in found.params.values())
