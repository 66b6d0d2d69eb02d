"""Method `distributed` on GPUs: the bits of the host's correlations, and its answer."""

import numpy as np
import pytest

from gpupc_impl import methods, skeleton
from gpupc_impl.backends import open_backend
from gpupc_impl.core.solve import unavailable
from gpupc_impl.distributed import team
from gpupc_impl.distributed.correlations import fixed_order_correlation
from gpupc_impl.distributed.local_cluster import local_cluster
from gpupc_impl.distributed.products import PartProducts
from gpupc_impl.gaussian.fixed_order import correlate_squares, standardised_on_device
from tests.graphs import linear_samples

REASON = unavailable(methods()["distributed"], "cuda")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(REASON is not None, reason="needs a GPU")]


def sample(p: int, m: int, degree: float) -> np.ndarray:
    return linear_samples(p, m, degree / p, seed=p, least=0.2)


@pytest.mark.parametrize(("p", "m"), [(5, 3), (300, 100), (1000, 3189)])
def test_correlations_have_the_bits_of_the_hosts(p, m):
    x = sample(p, m, 3)
    on_gpu, on_host = (fixed_order_correlation(x, open_backend(name)) for name in ("cuda", "host"))
    assert np.array_equal(on_gpu, on_host)
    backend, sizes = open_backend("cuda"), np.array([1, 5, p // 2])
    variables = np.random.default_rng(0).integers(p, size=sizes.sum()).astype(np.int32)
    found = backend.download(correlate_squares(backend, standardised_on_device(backend, x), variables, sizes))
    parts = np.split(variables, np.cumsum(sizes)[:-1])
    assert np.array_equal(found, np.concatenate([on_host[np.ix_(part, part)].reshape(-1) for part in parts]))


@pytest.mark.parametrize("m", [3, 100, 1000, 4001])
def test_products_of_parts_are_within_their_bound(m):
    """Tensor cores add as exactly as the bound assumes, also where sums are largest: equal and opposite variables."""
    backend, rng = open_backend("cuda"), np.random.default_rng(m)
    x = rng.standard_normal((300, m))
    x[:50] = np.where(np.arange(m) % 2, 1.0, -1.0) * rng.choice([-1, 1], (50, 1))
    x[50:100] = x[100:150] + 1e-3 * x[150:200]
    x -= x.mean(axis=1, keepdims=True)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    products, out = PartProducts(backend, backend.upload(x)), backend.empty((300, 250), np.float32)
    with backend.array_library() as library:
        products.multiply(library, slice(0, 300), slice(50, 300), out)
    error = np.abs(backend.download(out) - (x @ x[50:].T)).max()
    assert 1e-8 < error < products.error < 1e-3


def test_all_gpus_find_what_one_finds(monkeypatch):
    monkeypatch.setattr(team, "SHARED_PRODUCTS", 0)
    x = sample(5000, 200, 5)
    how = {"method": "distributed", "backend": "cuda", "transpose": False}
    one, together = (skeleton(x, 0.05, workers=workers, **how) for workers in (1, 0))
    assert together == one
    assert together.edges_per_level == one.edges_per_level


@pytest.mark.parametrize("tolerance", [1e-10, 0.0])  # without a tolerance level 1 runs row by row
def test_a_gpu_finds_what_the_host_finds(tolerance):
    x = sample(700, 100, 5)
    x[:, 5] = x[:, 6]
    how = {"method": "distributed", "residual_tolerance": tolerance, "transpose": False}
    on_gpu, on_host = (skeleton(x, 0.05, backend=backend, **how) for backend in ("cuda", "host"))
    assert on_gpu.levels_run > 3
    assert on_gpu == on_host
    assert on_gpu.edges_per_level == on_host.edges_per_level


def test_processes_of_a_cluster_find_what_threads_find():
    pytest.importorskip("cryptography")  # for the keys of the cluster
    pytest.importorskip("distributed")
    x = sample(700, 100, 5)
    how = {"method": "distributed", "backend": "cuda", "transpose": False}
    with local_cluster(1, "cuda") as client:
        assert skeleton(x, 0.05, client=client, **how) == skeleton(x, 0.05, **how)
