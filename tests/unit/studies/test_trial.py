"""Trials: a method that is right, one that is wrong, and what cannot be tried."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import gpupc_impl
from gpupc_impl import UnknownMethod
from gpupc_impl.core import registry
from gpupc_impl.core.family import get_family
from gpupc_impl.studies.trial import methods_of, reference_of, trials

PAGE = Path(gpupc_impl.__file__).parents[1] / "docs" / "add-a-method.md"


pytestmark = pytest.mark.usefixtures("own_methods")


@pytest.fixture
def written(tmp_path):
    """The method in NumPy of the documentation, in a file; `changed` replaces some of its text."""
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[0]

    def write(*changed):
        path = tmp_path / f"mine_{len(changed)}.py"
        path.write_text(code.replace(*changed) if changed else code)
        return path

    return write


def test_the_method_of_the_documentation_is_right(written):
    (name,) = methods_of(written())
    found = [trial for trial, _ in zip(trials(name), range(2), strict=False)]
    assert [(trial.method, trial.variables, trial.difference) for trial in found] == [(name, 4, ""), (name, 6, "")]
    assert all(trial.seconds > 0 and trial.reference_seconds > 0 for trial in found)
    assert methods_of(written()) == [name]  # it is not imported again


def test_a_wrong_method_is_told_what_differs(written):
    (name,) = methods_of(written("<= critical", "> critical"))
    assert "differing edges: " in next(trials(name)).difference


def test_every_family_can_be_tried():
    for family in ("discrete", "nonlinear", "mixed", "kernel", "regression"):
        method = registry.get_method(get_family(family).auto["host"])
        assert reference_of(method).name != method.name
        first = next(trials(method.name, "host"))
        assert (first.variables, first.difference) == (4, "")


def test_what_cannot_be_tried(tmp_path):
    with pytest.raises(UnknownMethod, match=r"there is no file .*none\.py"):
        methods_of(tmp_path / "none.py")
    (tmp_path / "empty_module.py").write_text("")
    with pytest.raises(UnknownMethod, match="registers no method"):
        methods_of(tmp_path / "empty_module.py")


def test_methods_of_a_module_of_ours():
    assert methods_of(Path(gpupc_impl.__file__).parent / "gaussian" / "cupc_s.py") == ["cupc-s"]
