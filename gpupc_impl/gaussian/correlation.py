"""The correlation matrix of a problem on a device, where it is uploaded or computed from the samples."""

from typing import Any

import numpy as np

from gpupc_impl.backends import Backend
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.integers import ceil_div

SOURCE = "gaussian/kernels/correlate.cu"
KERNELS = ("standardise", "make_exact")


def device_correlation(backend: Backend, problem: GaussianProblem) -> Any:
    """Return (p, p) float64 correlations on the device, which are only read."""
    if problem.correlations == "host":
        return backend.upload_symmetric(problem.correlation)
    samples = backend.upload(problem.samples)
    m, p = samples.shape
    threads = 128 if backend.warp_threads > 1 else 1
    backend.kernel(SOURCE, "standardise")((ceil_div(p, threads),), (threads,), [samples, np.int32(m), np.int32(p)])
    correlation = backend.gram(samples)
    tiles = ceil_div(p, 32)
    backend.kernel(SOURCE, "make_exact")((tiles, tiles), (32, 8), [correlation, np.int32(p)])
    return correlation
