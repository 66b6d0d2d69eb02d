"""Correlations with the same bits on every worker (gaussian/fixed_order.py), and problems with them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from gpupc_impl.backends import Backend, open_backend
from gpupc_impl.gaussian.fixed_order import correlate, standardised_on_device
from gpupc_impl.gaussian.problem import GaussianProblem


def fixed_order_correlation(samples: np.ndarray, backend: Backend | None = None) -> np.ndarray:
    """Return (p, p) correlations of (m, p) samples, with the same bits as in method `distributed`, computed on the
    backend, by default on a GPU if one is visible, else on this machine's cores."""
    backend = backend or open_backend()
    device, p = standardised_on_device(backend, samples), samples.shape[1]
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
