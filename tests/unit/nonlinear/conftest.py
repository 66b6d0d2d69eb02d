"""Problems and single tests for the nonlinear family's tests."""

import dataclasses

import numpy as np

from gpupc_impl.nonlinear.cmi_estimator import CmiEstimator
from gpupc_impl.nonlinear.problem import NonlinearProblem
from gpupc_impl.nonlinear.tuning import DEFAULTS, TUNING

SELECTIONS = ("registers", "buckets", "counting", "insertion")


def sample_problem(rng, n, ties=False, p=5, **options):
    data = rng.normal(size=(n, p))
    data[:, 1] += data[:, 0]
    data[:, 2] += data[:, 1] ** 2
    if ties:
        data[:, ::2] = np.round(data[:, ::2])
    options = {"permutations": 12, "k_cmi": min(3, n - 1), "k_perm": min(5, n - 1), **options}
    return NonlinearProblem.from_data(data, **options)


def run_test(problem, backend, i, j, members, tuning=None, **params):
    """Permuted values (perm, n) and partials of one test."""
    estimator = CmiEstimator(problem, backend, DEFAULTS | params, tuning=tuning)
    level = len(members)
    estimator.fitting(level, 1, 1)
    partials = estimator.partials(level, np.array([[i, *members]]), np.array([[0, j]]))
    return backend.download(estimator.permutations.rows)[0, 1:], partials[0]


def tuned(**choices):
    """The host backend's tuning with some choices, none of which may change an answer."""
    return dataclasses.replace(TUNING["host"], **choices)


def whole_problem(rng, n, most, **options):
    """Whole numbers up to `most`, a few of them far from the others, and many equal."""
    data = np.rint(np.abs(rng.normal(size=(n, 5))) * 20)
    data[:, 1] += data[:, 0]
    data = np.minimum(data, most)
    data[: n // 20] = rng.integers(0, most + 1, (n // 20, 5))
    data[0], data[1] = 0, most
    return NonlinearProblem.from_data(data, transform="none", permutations=5, k_perm=4, **options)
