"""Correlations with the same bits on every worker (gaussian/fixed_order.py), and problems with them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from gpupc_impl.backends import Backend, open_backend
from gpupc_impl.core import mapped_arrays
from gpupc_impl.gaussian.fixed_order import correlate, standardised_on_device
from gpupc_impl.gaussian.problem import GaussianProblem

COLUMNS_AT_ONCE = 512  # upper bound on the variables that are standardised at a time, to save device memory


def standardised(backend: Backend, samples: np.ndarray) -> np.ndarray:
    """Return (m, p) columns with mean 0 and Euclidean length 1, or zeros if constant, with the same bits on any
    backend."""
    out = np.empty(samples.shape)
    for columns in mapped_arrays.pieces(samples.shape[1], COLUMNS_AT_ONCE):
        out[:, columns] = backend.download(standardised_on_device(backend, np.ascontiguousarray(samples[:, columns])))
    return out


def fixed_order_correlation(samples: np.ndarray, backend: Backend | None = None) -> np.ndarray:
    """Return (p, p) correlations of (m, p) samples, with the same bits as in method `distributed`, computed on the
    backend, by default on a GPU if one is visible, else on this machine's cores."""
    backend = backend or open_backend()
    device = backend.upload(standardised(backend, samples))
    p = samples.shape[1]
    variables = backend.upload(np.arange(p, dtype=np.int32))
    out = backend.empty((p, p), np.float64)
    correlate(backend, device, variables, variables, out)
    return backend.download(out)


def fixed_order_problem(
    data: Any, *, names: Sequence[str] | None = None, backend: Backend | None = None, **search: Any
) -> GaussianProblem:
    """Return the problem of `GaussianProblem.from_data`, with its parameters, but with the correlations that method
    `distributed` computes, on a backend as for `fixed_order_correlation`. They agree to the bit, so every method gives
    the answer to this problem that `distributed` gives to the (m, p) samples. The matrix takes 8 p^2 bytes of memory.
    InvalidProblem is raised if the data or a parameter cannot be used."""
    problem = GaussianProblem.from_data(data, names=names, correlations="device", **search)
    assert problem.samples is not None
    matrix = fixed_order_correlation(problem.samples, backend)
    matrix.setflags(write=False)
    return dataclasses.replace(problem, correlation=matrix, correlations="host", samples=None)
