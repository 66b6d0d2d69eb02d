"""What a first call compiles: all of it is requested before the data are prepared, and it is not much."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from gpupc_impl.backends import KernelCompilationError, KernelSource, nvrtc, open_backend
from gpupc_impl.backends.host import HostBackend
from gpupc_impl.backends.nvrtc import NvrtcLibrary, find_library
from gpupc_impl.core.family import get_family
from gpupc_impl.core.registry import get_method
from gpupc_impl.core.solve import prefetched, solve
from gpupc_impl.gaussian.cupc_s import KERNEL

RNG = np.random.default_rng(0)


def dependent(n: int, p: int) -> np.ndarray:
    samples = RNG.standard_normal((n, p))
    for j in range(1, p):
        samples[:, j] += 0.8 * samples[:, (j - 1) // 2]
    return samples


DATA = {
    "gaussian": dependent(200, 12),
    "discrete": (dependent(200, 12) > 0).astype(int),
    "nonlinear": dependent(60, 4),
    "mixed": dependent(60, 4),
}
METHODS = [("pair-scan", 15), ("cupc-s", 11), ("cupc-e", 11), ("gpupc", 9), ("disc-cupc", 9)]
METHODS += [("gpucmiknn-parallel", 7), ("gpucmiknn-mixed", 7)]
"""Methods and the most kernels that a search up to level 2 may request."""

ON_A_GPU = [("pair-scan", 10, 1100), ("cupc-s", 11, 525), ("gpupc", 12, 1350)]
ON_A_GPU += [("gpucmiknn-parallel", 16, 1000), ("gpucmiknn-mixed", 12, 700)]
"""Methods, the most kernels that a search up to level 2 may request on a GPU, and the most kilobytes of their PTX."""

NOT_WAITED_FOR = "fused_levels<", "gpupc_batches<", "gpupc_level<unsigned char, SHARED, ALL_WAYS>"
"""How the names of kernels begin that replace slower ones once they are compiled."""

MOST_WAITED_FOR = 125
"""The most kilobytes of the PTX of a kernel for which a search waits; of so many a compiler makes a kernel in a second
or two."""


class WatchedBackend(HostBackend):
    """Notes the kernels that are requested ahead, and those that a search then takes."""

    def __init__(self) -> None:
        super().__init__()
        self.requested: list[KernelSource] = []
        self.taken: list[KernelSource] = []

    def prefetch(self, kernels) -> None:
        self.requested += kernels

    def kernel(self, *source):
        self.taken.append(KernelSource(*source))
        return super().kernel(*source)


@pytest.mark.parametrize(("name", "most"), METHODS)
def test_all_that_a_search_takes_is_requested_before(name, most):
    method, backend = get_method(name), WatchedBackend()
    params = method.parse_params({})
    with prefetched(method, backend, params, pmax=False, max_level=2):
        pass
    requested = {(str(kernel.source), kernel.expression, kernel.structs) for kernel in backend.requested}
    assert len(requested) <= most
    problem = get_family(method.family).problem.from_data(DATA[method.family], max_level=2)
    solve(problem, method, backend, {})
    taken = {(str(kernel.source), kernel.expression, tuple(kernel.structs)) for kernel in backend.taken}
    assert taken - requested == set()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kernels", "kilobytes"), ON_A_GPU)
def test_what_a_gpu_compiles_for_a_first_call(name, kernels, kilobytes):
    """The size of what NVRTC makes of a search's kernels up to level 2, in intermediate code."""
    if (library := find_library()) is None:
        pytest.skip("NVRTC is not installed; pip install nvidia-cuda-nvrtc-cu12")
    compiler, method = NvrtcLibrary(library), get_method(name)
    gpu = SimpleNamespace(name="cuda", warp_threads=32)
    requested = method.kernels(gpu, method.parse_params({}), False, 2)
    assert len(requested) <= kernels
    sizes = []
    for kernel in requested:
        ptx, _, _ = nvrtc.compile_source(compiler, [kernel], "compute_90")
        sizes.append(len(ptx) / 1000)
        assert sizes[-1] <= MOST_WAITED_FOR or kernel.expression.startswith(NOT_WAITED_FOR)
    assert sum(sizes) <= kilobytes


def test_prefetched_kernels_are_compiled_without_being_waited_for(monkeypatch, tmp_path):
    (tmp_path / "cache").mkdir(mode=0o700)
    monkeypatch.setenv("GPUPC_CACHE_DIR", str(tmp_path / "cache"))
    right, wrong = (KernelSource(str(tmp_path / f"{name}.cu"), name) for name in ("right", "wrong"))
    Path(right.source).write_text("__global__ void right() {}\n")
    Path(wrong.source).write_text("__global__ void wrong() { none; }\n")
    backend = open_backend("host")
    backend.prefetch((wrong, right))
    backend.finish_prefetched()
    assert backend.is_ready(right)
    backend.kernel(*right)([1], [1], [])
    with pytest.raises(KernelCompilationError, match="none"):
        backend.kernel(*wrong)


def test_measured_searches_wait_for_their_fastest_kernels(monkeypatch, tmp_path):
    (tmp_path / "cache").mkdir(mode=0o700)
    monkeypatch.setenv("GPUPC_CACHE_DIR", str(tmp_path / "cache"))  # without kernels from other tests
    backend, (own, general) = open_backend("host"), KERNEL.of_levels.of_level(8)
    assert KERNEL.of_levels.choose(backend, 8) == general
    backend.waits_for_best = True
    assert KERNEL.of_levels.choose(backend, 8) == own
