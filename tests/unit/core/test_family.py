"""Families: found without a list, and a new one is one folder: the one of docs/add-a-family.md, outside the project."""

import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import gpupc_impl
from gpupc_impl import InvalidProblem, Skeleton, UnknownMethod, cli, methods, skeleton
from gpupc_impl.core import registry
from gpupc_impl.core.family import families, get_family, load_problem
from gpupc_impl.measurement.bench import Bench, Setting
from gpupc_impl.measurement.record import Limits
from gpupc_impl.measurement.skeletons import MeasurementRequest, measure_side_by_side
from gpupc_impl.verification.verify import verify_files
from workflow.lib.config import check_config

ROOT = Path(gpupc_impl.__file__).parents[1]
PAGE = ROOT / "docs" / "add-a-family.md"


@pytest.fixture
def plug_in(tmp_path, monkeypatch, own_methods):
    """Makes a package of that name outside the project a plug-in, here and in processes started from here."""
    added = []

    def add(name, files):
        folder = tmp_path / "plug-ins" / name
        folder.mkdir(parents=True)
        for file, content in {"__init__.py": "", **files}.items():
            (folder / file).write_text(content)
        added.append(name)
        monkeypatch.syspath_prepend(folder.parent)
        monkeypatch.setenv("GPUPC_PLUGINS", ",".join(added))
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        forget()

    def forget():
        families.cache_clear()
        registry._discover.cache_clear()

    yield add
    for name in [name for name in sys.modules if name.partition(".")[0] in added]:
        del sys.modules[name]
    forget()


@pytest.fixture
def signs(plug_in):
    blocks = re.findall(r"^```py\n# signs/(\w+\.py)\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    plug_in("signs", dict(blocks))


@pytest.fixture
def values():
    """V0 - V1, V2 alone."""
    values = np.random.default_rng(0).normal(size=(200, 3))
    values[:, 1] += values[:, 0]
    return values


def test_those_of_the_project():
    found = families()
    assert set(found) == {"discrete", "gaussian", "kernel", "mixed", "nonlinear", "regression"}
    for name, family in found.items():
        assert name == family.name == family.problem.family
        assert set(family.auto.values()) <= set(methods(name))
        assert f"gpupc_impl.{name}" in family.packages


def test_a_new_one_is_found_and_searched(signs, values):
    assert list(methods("signs")) == ["signs-serial"]
    found = skeleton(values, 0.01, family="signs")
    assert found.edges.tolist() == [[0, 1]]
    assert found.stopped_because.startswith("complete")
    assert found.facts["problem"]["split"] == "median"
    assert skeleton(values, 0.01, method="signs-serial", split="mean").facts["problem"]["split"] == "mean"
    with pytest.raises(UnknownMethod, match="family 'signs' has no method for backend 'host' here; name one: signs-"):
        skeleton(values, family="signs", backend="host")
    with pytest.raises(InvalidProblem, match="n_samples says that data is a correlation matrix, which a signs test"):
        skeleton(np.eye(3), family="signs", n_samples=9)


def test_a_new_ones_problems_are_files(signs, values, tmp_path):
    made = get_family("signs").prepare(values, tmp_path / "problem.npz", alpha=0.1, names=["a", "b", "c"])
    made.save(tmp_path / "problem.npz")
    loaded = load_problem(tmp_path / "problem.npz")
    assert loaded.facts() == made.facts()
    assert (loaded.names, loaded.above.tolist()) == (made.names, made.above.tolist())
    assert not loaded.above.flags.writeable
    renamed = type(made).from_data(values, alpha=0.1)
    assert renamed.fingerprint == made.fingerprint
    assert type(made).from_data(values, alpha=0.2).fingerprint != made.fingerprint


def test_a_new_one_on_the_command_line(signs, values, tmp_path, capsys):
    np.savetxt(tmp_path / "data.csv", values, delimiter=",")
    options = ["--family", "signs", "--alpha", "0.01", "--param", "split=mean", "--output", str(tmp_path / "out.npz")]
    assert cli.main(["skeleton", str(tmp_path / "data.csv"), *options]) == 0
    assert "method: signs-serial on cpu" in capsys.readouterr().out
    assert Skeleton.load(tmp_path / "out.npz").n_edges == 1
    assert cli.main(["methods", "--family", "signs"]) == 0
    assert "signs-serial" in capsys.readouterr().out


def test_a_new_one_is_measured_and_verified(signs, values, tmp_path):
    problem = tmp_path / "problem.npz"
    get_family("signs").problem.from_data(values, alpha=0.01).save(problem)
    given = {"problem_path": problem, "dataset": {"name": "toy"}, "out_dir": tmp_path / "records", "store": tmp_path}
    settings = [Setting("signs-serial", "signs-serial", limits=Limits(time_s=60))]
    plan = MeasurementRequest(**given, settings=settings, repeats=1)
    measure_side_by_side(plan, Bench("host"), progress=lambda event: None)
    (row,) = verify_files(problem, [tmp_path / "records" / "signs-serial.json"])
    assert (row["status"], row["certificates_checked"], row["certificates_failed"]) == ("alone", 2, 0)


def test_a_new_one_in_a_configuration(signs):
    check_config({"datasets": {"nci-60": {}}, "settings": {"gaussian": {"cupc-s": {}}, "signs": {"signs-serial": {}}}})
    with pytest.raises(ValueError, match="unknown family 'sings' at settings; did you mean 'signs'"):
        check_config({"datasets": {"nci-60": {}}, "settings": {"sings": {"signs-serial": {}}}})


def test_a_name_belongs_to_one_family(plug_in):
    plug_in("another", {"family.py": "from gpupc_impl.gaussian.family import FAMILY\n"})
    with pytest.raises(ValueError, match=r"defined twice: in gpupc_impl\.gaussian\.family and in another\.family"):
        families()
