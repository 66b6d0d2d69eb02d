"""A search that was killed resumes from its checkpoint, with the same answer."""

import dataclasses
import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from gpupc_impl import GaussianProblem, InvalidProblem, skeleton
from gpupc_impl.backends.host import HostBackend
from gpupc_impl.core.checkpoint import Checkpoint
from gpupc_impl.core.fixed_pairs import write
from tests.graphs import linear_samples
from tests.launches import Killed, kill_after
from tests.unit.out_of_core.test_memory import no_work

pytestmark = pytest.mark.skipif(HostBackend.unavailable() is not None, reason=str(HostBackend.unavailable()))

P = 60


def make_problem(seed: int = 0, alpha: float = 0.05) -> GaussianProblem:
    return GaussianProblem.from_data(linear_samples(P, 150, 0.08, seed, least=0.2), alpha=alpha)


def search(problem: GaussianProblem, path, **options):
    return skeleton(problem, method="out-of-core-block", backend="host", checkpoint=str(path), **options)


@pytest.mark.parametrize(
    ("pmax", "before", "after"), [(False, "auto", None), (False, "blocks", 10**6), (True, "blocks", None)]
)
def test_a_search_goes_on_at_the_level_it_had_come_to(tmp_path, pmax, before, after):
    """It does so whatever its layout and its budget were before."""
    problem, path = make_problem(), tmp_path / "checkpoint.npz"
    expected = skeleton(problem, method="out-of-core-block", backend="host", pmax=pmax)
    assert expected.levels_run >= 4
    for level in range(expected.levels_run):
        tests = []
        with pytest.raises(Killed):
            search(problem, path, progress=kill_after(level, tests), pmax=pmax, layout=before)
        assert path.exists()
        result = search(problem, path, pmax=pmax, device_memory_limit=after, block_size=20)
        assert result.facts["out_of_core"]["resumed_at_level"] == level + 1
        after_it = list(range(level + 1, expected.levels_run))
        assert [done["level"] for done in result.facts["out_of_core"]["levels"]] == after_it
        assert result == expected
        assert result.edges_per_level == expected.edges_per_level
        assert result.tests_per_level[: level + 1] == tuple(tests)
        assert result.undefined_tests == expected.undefined_tests
        assert result.stopped_because == expected.stopped_because
        if pmax:
            np.testing.assert_allclose(result.pmax, expected.pmax, rtol=1e-9, atol=1e-13)
        assert list(tmp_path.iterdir()) == [], "a search that ended has left files behind"


def test_killed_in_a_level_by_the_system(tmp_path):
    """SIGKILL during level 2: only what was written before counts."""
    path = tmp_path / "checkpoint.npz"
    problem = make_problem()
    problem.save(tmp_path / "problem.npz")
    script = f"""
        import os, signal
        from gpupc_impl import skeleton
        from gpupc_impl.core.family import load_problem
        from gpupc_impl.out_of_core.gathered import Gathered

        test_batch = Gathered.test_batch

        def kill(self, batch):
            test_batch(self, batch)
            if self.level == 2:
                os.kill(os.getpid(), signal.SIGKILL)

        Gathered.test_batch = kill
        problem = load_problem({str(tmp_path / "problem.npz")!r})
        skeleton(problem, method="out-of-core-block", backend="host", checkpoint={str(path)!r})
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], env=environment, timeout=300)
    assert done.returncode == -signal.SIGKILL
    result = search(problem, path)
    assert result.facts["out_of_core"]["resumed_at_level"] == 2
    assert result == skeleton(problem, method="cupc-s", backend="host")


@pytest.mark.parametrize(
    ("written", "requested", "message"),
    [
        ({}, {"seed": 1}, r"checkpoint\.npz' belongs to another problem"),
        ({}, {"alpha": 0.04}, r"checkpoint\.npz' belongs to another problem"),
        ({}, {"pmax": True}, "written without pmax"),
        ({"separating_sets": "first-come"}, {}, "written with separating_sets='first-come', and 'canonical' is asked"),
        ({}, {"separating_sets": "first-come"}, "written with separating_sets='canonical', and 'first-come' is asked"),
    ],
)
def test_a_checkpoint_of_another_search_is_refused_and_kept(tmp_path, written, requested, message):
    path = tmp_path / "checkpoint.npz"
    with pytest.raises(Killed):
        search(make_problem(), path, progress=kill_after(1), **written)
    content = path.read_bytes()
    other = make_problem(**{name: requested[name] for name in ("seed", "alpha") if name in requested})
    with pytest.raises(InvalidProblem, match=message):
        search(other, path, **{name: requested[name] for name in requested.keys() - {"seed", "alpha"}})
    assert path.read_bytes() == content
    assert search(make_problem(), path, **written).facts["out_of_core"]["resumed_at_level"] == 2


@pytest.mark.parametrize("parameter", ["checkpoint", "timeline"])
def test_a_folder_that_cannot_be_made_is_named_before_any_work(tmp_path, monkeypatch, parameter):
    monkeypatch.setattr("gpupc_impl.out_of_core.block.BlockSearch.run_level", no_work)
    (tmp_path / "file").write_text("no folder")
    path = str(tmp_path / "file" / "below")
    with pytest.raises(InvalidProblem, match=f"{parameter} '.*below' cannot be written: no folder for it can be made"):
        skeleton(make_problem(), method="out-of-core-block", backend="host", **{parameter: path})


ALTERATIONS = {
    "one direction of an edge": lambda state: state.adjacency.__setitem__((0, slice(1, 9)), ~state.adjacency[0, 1:9]),
    "an edge": lambda state: write(state.adjacency, np.argwhere(~state.adjacency & ~np.eye(P, dtype=bool))[:1], True),
    "a count": lambda state: replace(state, edges=state.outcomes[-1].edges - 1),
    "a pair that is an edge": lambda state: state.outcomes[1].pairs.__setitem__(0, np.argwhere(state.adjacency)[0]),
    "a set of no neighbours": lambda state: state.outcomes[1].sets.__setitem__(
        slice(None), (state.outcomes[1].sets + 1) % P
    ),
    "a set with a member twice": lambda state: state.outcomes[2].sets.__setitem__((0, 1), state.outcomes[2].sets[0, 0]),
}


def replace(state, **counts):
    state.outcomes[-1] = dataclasses.replace(state.outcomes[-1], **counts)


@pytest.mark.parametrize("alteration", ALTERATIONS)
def test_a_state_that_no_search_can_have_is_refused(tmp_path, alteration):
    """The file is written as a search writes it, its digest included."""
    problem, path = make_problem(), tmp_path / "checkpoint.npz"
    with pytest.raises(Killed):
        search(problem, path, progress=kill_after(2))
    checkpoint = Checkpoint(str(path), problem, "canonical", False)
    state = checkpoint.load()
    ALTERATIONS[alteration](state)
    checkpoint.save(state)
    with pytest.raises(InvalidProblem, match=r"checkpoint\.npz' cannot be read: .*; delete it"):
        search(problem, path)


def test_a_checkpoint_with_any_changed_byte_of_content_is_refused(tmp_path):
    problem, path = make_problem(), tmp_path / "checkpoint.npz"
    with pytest.raises(Killed):
        search(problem, path, progress=kill_after(1))
    with np.load(path) as stored:
        arrays = dict(stored)
    for name in arrays:
        changed = arrays[name].copy()
        if name == "described":
            changed = np.array(str(changed).replace('"tests": ', '"tests": 1', 1))
        else:
            changed.reshape(-1)[:1] ^= 1
        np.savez(path, **{**arrays, name: changed})
        with pytest.raises(InvalidProblem, match="its digest is not that of what it holds"):
            search(problem, path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 and then nothing"])
def test_a_file_that_is_no_checkpoint_is_refused(tmp_path, content):
    path = tmp_path / "checkpoint.npz"
    path.write_bytes(content)
    with pytest.raises(InvalidProblem, match=r"checkpoint\.npz' cannot be read"):
        search(make_problem(), path)
