"""pcalg, bnlearn and FastPGM, where they are, against the skeletons that they once gave and against our references."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from baselines.peers.r_packages import needs_r, run_script
from gpupc_impl import DiscreteProblem, GaussianProblem, InvalidParameter, InvalidProblem, skeleton
from gpupc_impl.core.registry import get_method
from gpupc_impl.core.solve import unavailable
from gpupc_impl.verification.verify import verify

GOLDEN = Path(__file__).parents[2] / "golden" / "data"


def needs(name):
    reason = unavailable(get_method(name), "cpu")
    return pytest.mark.skipif(reason is not None, reason=reason or "")


def found_edges(result):
    return {tuple(map(int, pair)) for pair in np.argwhere(np.triu(result.adjacency))}


def status(problem, result, method):
    """The verification of a result against that of our serial reference, with its removed edges tested again."""

    def outcome(name, found, reference):
        record = SimpleNamespace(setting=name, method=name, dataset="toys", backend="cpu", why=None)
        record.canonical, record.random, record.reference = reference, False, reference
        record.problem = {**found.facts["problem"], "fingerprint": problem.fingerprint}
        return record, found

    serial = "discrete-serial" if problem.family == "discrete" else "stable-serial"
    ours = skeleton(problem, method=serial, backend="cpu")
    rows = verify(problem, [outcome(serial, ours, True), outcome(method, result, False)])
    return rows[1]


@needs("pcalg")
@pytest.mark.parametrize("search", ["stable", "stable.fast"])
def test_pcalg_finds_our_edges_with_sets_that_separate(search):
    table = pd.read_csv(GOLDEN / "generated-p200.csv.gz").iloc[:, :40]
    problem = GaussianProblem.from_data(table, alpha=0.01)
    found = skeleton(problem, method="pcalg", backend="cpu", search=search)
    row = status(problem, found, "pcalg")
    assert (row["status"], row["certificates_failed"]) == ("equal", 0)
    assert row["certificates_checked"] > 700
    assert found.levels_run >= 3
    assert found.facts["translation_s"] > 0.05  # the start of R is not timed


@needs("pcalg")
def test_pcalg_has_our_conventions():
    rng = np.random.default_rng(5)
    values = rng.standard_normal((12, 9)) @ rng.standard_normal((9, 9))
    for convention in ("pcalg", "cupc"):
        problem = GaussianProblem.from_data(values, alpha=0.2, df_convention=convention)
        assert status(problem, skeleton(problem, method="pcalg", backend="cpu"), "pcalg")["status"] == "equal"
    one_level = GaussianProblem.from_data(values, alpha=0.2, max_level=0)
    assert skeleton(one_level, method="pcalg", backend="cpu").levels_run == 1
    with pytest.raises(InvalidParameter, match="pmax"):
        skeleton(one_level, method="pcalg", backend="cpu", pmax=True)


@needs("bnlearn")
def test_bnlearn_finds_the_golden_edges():
    table = pd.read_csv(GOLDEN / "alarm-5000.csv").iloc[:, :12]
    problem = DiscreteProblem.from_data(table, alpha=0.01)
    found = skeleton(problem, method="bnlearn", backend="cpu")
    row = status(problem, found, "bnlearn")
    assert (row["status"], row["certificates_failed"]) == ("equal", 0)
    adjusted = skeleton(problem, method="bnlearn", backend="cpu", criterion="mi-adf")
    assert (adjusted.facts["problem"]["test"], adjusted.facts["problem"]["df_rule"]) == ("g-square", "adjusted")
    own = DiscreteProblem.from_data(table, alpha=0.01, test="g-square", df_rule="adjusted")
    assert found_edges(adjusted) == found_edges(skeleton(own, method="discrete-serial", backend="cpu"))


@needs("bnlearn")
def test_what_bnlearn_cannot_take_is_said():
    values = np.array([[0, 0], [0, 1], [0, 1]])
    problem = DiscreteProblem.from_data(values, alpha=0.01, names=["flat", "b"])
    with pytest.raises(InvalidProblem, match="'flat' has one"):
        skeleton(problem, method="bnlearn", backend="cpu")


@needs("fastpgm")
def test_fastpgm_finds_our_edges_and_sets():
    table = pd.read_csv(GOLDEN / "alarm-5000.csv")
    problem = DiscreteProblem.from_data(table, alpha=0.01, test="g-square", df_rule="adjusted")
    found = skeleton(problem, method="fastpgm", backend="cpu")
    assert found == skeleton(problem, method="discrete-serial", backend="cpu")
    assert (found.n_edges, found.levels_run) == (42, 5)


def test_a_missing_r_or_package_is_a_sentence(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert needs_r("pcalg")().startswith("Rscript is not on the PATH; install R and its package pcalg")
    rscript = tmp_path / "Rscript"
    rscript.write_text("#!/bin/sh\nprintf FALSE\n")
    rscript.chmod(0o755)
    assert "R has no package pcalg" in needs_r("pcalg")()


def test_a_failure_of_r_is_quoted(monkeypatch, tmp_path):
    rscript = tmp_path / "Rscript"
    rscript.write_text("#!/bin/sh\necho 'Error in skeleton' >&2\nexit 3\n")
    rscript.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(RuntimeError, match="Rscript ended with 3: Error in skeleton"):
        run_script("", {}, 3)
