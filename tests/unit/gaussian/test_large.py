"""Correlation matrices in files have the bits of those in memory, take little memory, and are identified."""

import dataclasses
import hashlib
import json
import shutil
import subprocess
import sys
import textwrap

import numpy as np
import pandas as pd
import pytest

from datasets import Dataset
from gpupc_impl import GaussianProblem, InvalidProblem, SeparatingSets, Skeleton, skeleton
from gpupc_impl.core import mapped_arrays
from gpupc_impl.core import pairs as pairs_module
from gpupc_impl.core.family import load_problem
from gpupc_impl.gaussian import large as large_module
from gpupc_impl.gaussian.large import problem_from_data
from gpupc_impl.gaussian.matrix import correlation_fault, correlation_matrix
from tests.graphs import edges_to_adjacency
from workflow.lib.problems import write_problem


def data(p=23, m=40, seed=0):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(m, p)) * 10.0 ** rng.integers(-8, 8, p)
    values[:, 1::5] += values[:, :1] * rng.normal(size=len(range(1, p, 5)))
    return values


class Sliced:
    """An array with the interface of a zarr array: a shape, and slices in two dimensions."""

    def __init__(self, array):
        self._array, self.shape, self.largest = array, array.shape, 0

    def __getitem__(self, key):
        assert isinstance(key, tuple)
        assert len(key) == 2
        part = self._array[key].copy()
        self.largest = max(self.largest, part.size)
        return part


@pytest.mark.filterwarnings("ignore:.*constant:UserWarning")
@pytest.mark.parametrize("tile", [1, 5, 7, 8, 22, 23, 24, 500])
def test_tiles_hold_the_correlations(tmp_path, tile):
    values = data()
    values[:, 3] = 7.0
    expected, _ = correlation_matrix(values)
    problem = problem_from_data(values, tmp_path / "c.npy", tile=tile)
    made = problem.correlation
    np.testing.assert_allclose(made, expected, rtol=0, atol=1e-15)
    assert problem.constant == ("V3",)
    assert not made.flags.writeable
    assert correlation_fault(made, tile=4) is None
    if tile >= 23:
        assert np.array_equal(made, expected)
    again = problem_from_data(np.asfortranarray(values), tmp_path / "again.npy", tile=tile)
    assert np.array_equal(made, again.correlation)


def test_only_slices_are_read_and_progress_is_reported(tmp_path):
    values, told = Sliced(data()), []
    made = problem_from_data(values, tmp_path / "c.npy", tile=8, progress=lambda *counts: told.append(counts))
    np.testing.assert_allclose(made.correlation, correlation_matrix(data())[0], rtol=0, atol=1e-15)
    assert values.largest == 8 * 40
    assert told == [(k, 6) for k in range(1, 7)]


@pytest.mark.parametrize(("row", "column", "value"), [(0, 0, np.nan), (39, 22, np.inf), (5, 9, -np.inf)])
def test_a_value_that_is_not_finite_is_named_and_nothing_is_left(tmp_path, row, column, value):
    values = data()
    values[row, column] = value
    with pytest.raises(InvalidProblem, match=f"one in row {row}, column {column};"):
        problem_from_data(values, tmp_path / "c.npy", tile=8)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ((22, 0), 0.125, "not symmetric: it differs from its transpose by"),
        ((22, 22), 1 - 1e-12, "its diagonal differs from one by 1e-12"),
        ((9, 20), np.inf, "entries that are not finite"),
        (([3, 8], [8, 3]), np.nextafter(1, 2), "an entry of size 1.0000000000000002"),
    ],
)
def test_a_mapped_matrix_must_be_exact(tmp_path, place, value, message):
    exact = GaussianProblem.from_data(data()).correlation.copy()
    exact[place] = value
    np.save(tmp_path / "c.npy", exact)
    stored = np.load(tmp_path / "c.npy", mmap_mode="r")
    with pytest.raises(InvalidProblem, match=f"lies in a file.*{message}.*give a copy"):
        GaussianProblem.from_correlation(stored, n_samples=40)
    assert correlation_fault(stored, tile=5) == correlation_fault(stored, tile=1000)
    assert message.split(":")[0] in correlation_fault(stored, tile=5)


@pytest.fixture
def large(tmp_path):
    """A problem in a file, and the same one in memory."""
    frame = pd.DataFrame(data(), columns=[f"gene {k}" for k in range(23)])
    in_file = problem_from_data(frame, tmp_path / "c.npy", alpha=0.2, max_level=2, df_convention="cupc", tile=100)
    in_memory = GaussianProblem.from_data(frame, alpha=0.2, max_level=2, df_convention="cupc")
    return in_file, in_memory


def same(one, other):
    names = ("names", "alpha", "max_level", "n_samples", "df_convention", "constant", "fingerprint")
    assert [getattr(one, name) for name in names] == [getattr(other, name) for name in names]
    assert [type(getattr(one, name)) for name in names] == [type(getattr(other, name)) for name in names]
    assert np.array_equal(one.correlation, other.correlation)


def test_a_problem_in_a_file_is_the_one_in_memory(large):
    in_file, in_memory = large
    same(in_file, in_memory)
    assert mapped_arrays.base_memmap(in_file.correlation) is not None
    again = GaussianProblem.from_correlation(in_file.correlation, n_samples=40)
    assert mapped_arrays.npy_path(again.correlation) == mapped_arrays.npy_path(in_file.correlation)
    assert not again.correlation.flags.writeable


def test_every_method_reads_a_problem_in_a_file(large):
    in_file, in_memory = large
    for method, backend in (("cupc-s", "host"), ("pair-scan", "host"), ("stable-serial", None)):
        backend = {} if backend is None else {"backend": backend}
        assert skeleton(in_file, method=method, **backend) == skeleton(in_memory, method="stable-serial")


@pytest.mark.parametrize("place", [".", "problems/deep"])
def test_both_files_can_be_moved_together(large, tmp_path, place):
    in_file, _ = large
    (tmp_path / "here" / place).mkdir(parents=True)
    shutil.move(tmp_path / "c.npy", tmp_path / "here" / "c.npy")
    matrix = np.load(tmp_path / "here" / "c.npy", mmap_mode="r")
    moved = dataclasses.replace(in_file, correlation=matrix)
    moved.save(tmp_path / "here" / place / "problem.npz")
    assert (tmp_path / "here" / place / "problem.npz").stat().st_size < 10_000
    shutil.move(tmp_path / "here", tmp_path / "there")
    loaded = load_problem(tmp_path / "there" / place / "problem.npz")
    same(loaded, in_file)
    assert mapped_arrays.base_memmap(loaded.correlation) is not None
    assert not loaded.correlation.flags.writeable


def test_a_missing_or_another_matrix_is_named(large, tmp_path):
    in_file, in_memory = large
    in_file.save(tmp_path / "problem.npz")
    other = in_memory.correlation.copy()
    other[11, 12] = other[12, 11] = 0.25
    for content in (other, other[:22], other.astype(np.float32)):
        (tmp_path / "c.npy").unlink()
        np.save(tmp_path / "c.npy", content)
        said = r"c\.npy is not the correlation matrix that problem\.npz was saved with"
        with pytest.raises(InvalidProblem, match=said):
            load_problem(tmp_path / "problem.npz")
    (tmp_path / "c.npy").unlink()
    with pytest.raises(InvalidProblem, match=r"lies in 'c\.npy' beside it, which cannot be read .*move both files"):
        load_problem(tmp_path / "problem.npz")
    (tmp_path / "c.npy").write_bytes(b"nonsense")
    with pytest.raises(InvalidProblem, match=r"lies in 'c\.npy' beside it, which cannot be read"):
        load_problem(tmp_path / "problem.npz")


def test_the_workflow_keeps_wide_matrices_in_files(tmp_path, monkeypatch):
    def write(values, name):
        wide = Dataset("wide", values, tuple(f"V{k}" for k in range(23)), "gaussian")
        write_problem("wide", wide, {"alpha": 0.1}, str(tmp_path / f"{name}.npz"), str(tmp_path / "facts.json"))

    values = data()
    write(values, "small")
    assert not (tmp_path / "small.npy").exists()
    monkeypatch.setattr(large_module, "LARGE", 22)
    write(values, "wide")
    assert (tmp_path / "wide.npy").stat().st_size > 8 * 23 * 23
    same(load_problem(tmp_path / "wide.npz"), load_problem(tmp_path / "small.npz"))
    values[3, 3] = np.nan
    write(values, "bad")
    assert "one in row 3, column 3" in json.loads((tmp_path / "facts.json").read_text())["why"]
    assert (tmp_path / "bad.npz").stat().st_size == 0
    assert not (tmp_path / "bad.npy").exists()


needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/status")


@needs_proc
def test_memory_stays_small(tmp_path):
    """A matrix of 4,000 variables and 128 MB is made, hashed, saved and loaded in less memory than its size."""
    script = """
        import sys
        import numpy as np
        from gpupc_impl.gaussian.large import problem_from_data
        from gpupc_impl.gaussian.matrix import correlation_fault
        from gpupc_impl.core.family import load_problem
        from gpupc_impl.measurement.worker import peak_process_bytes

        folder = sys.argv[1]
        values = np.random.default_rng(0).normal(size=(50, 4000))
        # The linear algebra library then has the memory that it keeps for such tiles.
        problem_from_data(values[:, :512], folder + "/first.npy", tile=256)
        before = peak_process_bytes()
        problem = problem_from_data(values, folder + "/c.npy", tile=256)
        problem.save(folder + "/problem.npz")
        loaded = load_problem(folder + "/problem.npz")
        assert loaded.fingerprint == problem.fingerprint
        assert correlation_fault(loaded.correlation, tile=256) is None
        print(peak_process_bytes() - before)
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    # The bound of `problem_from_data`, 8 (4 m t + 3 t^2), and the 64 MB of a file that are read at a time.
    assert int(done.stdout) < 8 * (4 * 50 * 256 + 3 * 256**2) + mapped_arrays.PIECE_BYTES + 20_000_000


def random_answer(p, seed):
    """An adjacency matrix, and pairs of levels 1 to 3 with their sets, in random order."""
    rng = np.random.default_rng(seed)
    adjacency = np.triu(rng.random((p, p)) < 0.3, 1)
    adjacency |= adjacency.T
    gone = np.argwhere(np.triu(~adjacency, 1))
    level = rng.integers(0, 4, len(gone))
    removed = []
    for size in (1, 2, 3):
        pairs = rng.permutation(gone[level == size])
        removed.append((pairs, np.sort([rng.choice(p, size, replace=False) for _ in pairs]).reshape(-1, size)))
    return adjacency, removed


@pytest.mark.parametrize("piece", [8, 64, 1 << 26])
def test_skeletons_are_read_in_pieces(monkeypatch, piece):
    monkeypatch.setattr(mapped_arrays, "PIECE_BYTES", piece)
    monkeypatch.setattr(pairs_module, "PAIRS_AT_ONCE", 5)
    adjacency, removed = random_answer(19, seed=1)

    def make(adjacency):
        found = SeparatingSets.from_levels(adjacency, removed)
        return Skeleton(adjacency, found, tuple(map(str, range(19))), (1,), (1,), (0.1,), 1, "made up")

    made = make(adjacency)
    assert np.array_equal(made.edges, np.argwhere(np.triu(adjacency)))
    assert made.edges.dtype == np.int64
    assert made.sha256 == hashlib.sha256(np.packbits(adjacency).tobytes()).hexdigest()
    arrays = (made.sepsets.pairs, made.sepsets.offsets, made.sepsets.members)
    assert made.sepsets.sha256 == hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()
    later = adjacency.copy()
    for pairs, _ in removed[1:]:
        later |= edges_to_adjacency(pairs, 19)
    assert np.array_equal(made.adjacency_at(2), later)
    assert np.array_equal(made.adjacency_at(0), ~np.eye(19, dtype=bool))
    assert np.array_equal(made.adjacency, adjacency)
    assert make(adjacency.copy()) == made
    other = adjacency.copy()
    i, j = removed[0][0][0]
    other[i, j] = other[j, i] = True
    assert make(other) != made


@needs_proc
def test_a_wide_skeleton_takes_no_second_matrix():
    """With 8,000 variables, digests, edges and a level's graph take less than three times the 64 MB of the graph."""
    script = """
        import numpy as np
        from gpupc_impl.core.result import SeparatingSets, Skeleton
        from gpupc_impl.measurement.worker import peak_process_bytes

        p = 8000
        adjacency = np.zeros((p, p), bool)
        adjacency[0, 1:] = adjacency[1:, 0] = True
        pairs = np.array([(i, i + 1) for i in range(1, p - 1)])
        sets = SeparatingSets.from_levels(adjacency, [(pairs, np.zeros((len(pairs), 1), int))])
        made = Skeleton(adjacency, sets, tuple(map(str, range(p))), (1,), (1,), (0.1,), 1, "made up")
        before = peak_process_bytes()
        assert len(made.edges) == p - 1
        assert len(made.sha256) == 64
        assert len(sets) == p * (p - 1) // 2 - (p - 1)
        assert made.adjacency_at(1).sum() == 2 * (p - 1 + len(pairs))
        assert made == made
        print((peak_process_bytes() - before) / adjacency.nbytes)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 3
