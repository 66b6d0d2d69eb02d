"""Each correlation of `distributed` is one chain of fused multiply-adds, whatever is computed with it."""

import re
import shutil
import subprocess

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpupc_impl import GaussianProblem, skeleton
from gpupc_impl.backends.base import PACKAGE_ROOT
from gpupc_impl.backends.host import HostBackend
from gpupc_impl.distributed.correlations import fixed_order_correlation, fixed_order_problem
from gpupc_impl.gaussian import fixed_order
from gpupc_impl.gaussian.canonical import fma
from gpupc_impl.gaussian.fixed_order import SMALL_TILE, correlate, correlate_squares, standardised_on_device, tiles_of
from gpupc_impl.integers import ceil_div

pytestmark = pytest.mark.skipif(HostBackend.unavailable() is not None, reason=str(HostBackend.unavailable()))


def sub_matrix(backend, samples, rows, columns):
    out = backend.empty((len(rows), len(columns)), np.float64)
    own, others = (backend.upload(np.asarray(variables, np.int32)) for variables in (rows, columns))
    correlate(backend, backend.upload(samples), own, others, out)
    return backend.download(out)


@settings(max_examples=settings.default.max_examples // 2)
@given(data=st.data())
def test_same_bits_whatever_is_made_with_an_entry(backend, data):
    """Any sub-matrix has the entries of the whole matrix, which is symmetric and agrees with the oracle."""
    m, p = data.draw(st.integers(2, 70)), data.draw(st.integers(1, 150))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    x = rng.standard_normal((m, p)) * rng.uniform(0.1, 9, p) + rng.uniform(-5, 5, p)
    samples = backend.download(standardised_on_device(backend, x))
    whole = sub_matrix(backend, samples, np.arange(p), np.arange(p))
    assert np.array_equal(whole, whole.T)
    assert (whole.diagonal() == 1).all()
    rows, columns = (rng.integers(p, size=data.draw(st.integers(1, 2 * p))) for _ in range(2))
    assert np.array_equal(sub_matrix(backend, samples, rows, columns), whole[np.ix_(rows, columns)])
    i, j = rng.integers(p, size=2)
    if i != j:
        total = 0.0
        for one, other in samples[:, [i, j]].tolist():
            total = fma(one, other, total)
        assert whole[i, j] == max(-1.0, min(1.0, total))
    exact = samples.astype(np.longdouble).T @ samples.astype(np.longdouble)
    assert np.abs(whole - exact)[~np.eye(p, dtype=bool)].max(initial=0) < 1e-14


def test_the_tiles_of_a_gpu_have_the_same_bits(backend, tmp_path):
    """The GPU's version of the kernel runs with the threads of a block played on a core."""
    text = (PACKAGE_ROOT / fixed_order.CORRELATE.source).read_text()
    source = tmp_path / "correlate.cu"
    source.write_text(text.replace("#ifdef GPUPC_HOST", "#if 0"))
    rng = np.random.default_rng(2)
    m, p, (height, width) = 37, 150, fixed_order.TILES["cuda"]
    samples = backend.download(standardised_on_device(backend, rng.standard_normal((m, p))))
    rows, columns = np.arange(p, dtype=np.int32), rng.permutation(p).astype(np.int32)[:70]
    out = backend.empty((p, 70), np.float64)
    on_device = [backend.upload(array) for array in (samples, rows, columns)]
    numbers = [on_device[0], *map(np.int32, (m, p)), on_device[1], np.int32(p), on_device[2], np.int32(70)]
    grid = ceil_div(70, width), ceil_div(p, height)
    backend.kernel(source, "correlate")(grid, (16, 16), [*numbers, out])
    assert np.array_equal(backend.download(out), sub_matrix(backend, samples, rows, columns))
    sizes = np.array([1, 130, 7])
    variables = rng.integers(p, size=sizes.sum()).astype(np.int32)
    parts = np.split(variables, np.cumsum(sizes)[:-1])
    expected = np.concatenate([sub_matrix(backend, samples, part, part).reshape(-1) for part in parts])
    assert np.array_equal(backend.download(correlate_squares(backend, on_device[0], variables, sizes)), expected)
    places = [np.concatenate(([0], np.cumsum(counts))) for counts in (sizes, sizes**2)]
    shapes = (height, width), (SMALL_TILE, SMALL_TILE)
    for kernel, shape, side in zip(fixed_order.SQUARES, shapes, (16, 8), strict=True):
        tiles, out = tiles_of(sizes, *shape), backend.full(len(expected), 9.0, np.float64)
        arrays = [backend.upload(array) for array in (variables, *places, tiles)]
        backend.kernel(source, kernel.expression)((len(tiles),), (side, side), [*numbers[:3], *arrays, out])
        assert np.array_equal(backend.download(out), expected)


def test_a_constant_and_a_far_column(backend):
    """They are as in `from_data`: zeros for the constant one, and no digits are lost to the mean of the other."""
    x = np.random.default_rng(0).standard_normal((60, 5))
    x[:, 1], x[:, 3] = 7.5, x[:, 0] + 1e9
    matrix, expected = fixed_order_correlation(x, backend), GaussianProblem.from_data(x[:, [0, 2, 4]]).correlation
    assert not matrix[1, [0, 2, 3, 4]].any()
    assert np.abs(matrix[np.ix_([0, 2, 4], [0, 2, 4])] - expected).max() < 1e-14
    assert matrix[0, 3] > 1 - 1e-12


def test_an_in_core_problem_has_them(backend):
    x = np.random.default_rng(1).standard_normal((50, 40))
    x[:, 1:] += x[:, :-1]
    problem = fixed_order_problem(x, alpha=0.1, backend=backend)
    assert problem.correlations == "host"
    assert np.array_equal(problem.correlation, fixed_order_correlation(x, backend))
    assert skeleton(problem, method="pair-scan", backend="host").n_edges


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_the_kernel_fits_in_registers(architecture, tmp_path):
    """The kernel does not spill with two thread blocks on a multiprocessor."""
    source = PACKAGE_ROOT / "gaussian/kernels/fixed_order.cu"
    options = ["-std=c++17", "-fmad=false", "-Xptxas", "-v", "-cubin", "-I", PACKAGE_ROOT, "-o", tmp_path / "cubin"]
    done = subprocess.run(["nvcc", f"-arch={architecture}", *options, source], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "spill stores" in done.stderr
    assert not re.search(r"[1-9]\d* bytes spill", done.stderr), done.stderr
