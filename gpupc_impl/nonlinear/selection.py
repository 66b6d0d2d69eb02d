"""The base class of the selections, which find the k_CMI-th neighbour of each sample."""

from __future__ import annotations

import abc
import math
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from gpupc_impl.backends import Filled
from gpupc_impl.integers import ceil_div
from gpupc_impl.nonlinear.permutation import Layout, Permutations
from gpupc_impl.nonlinear.samples import DeviceSamples
from gpupc_impl.nonlinear.sources import CLOSE_TESTS, PANEL, TESTS
from gpupc_impl.nonlinear.tuning import Tuning

STAGE_GROWTH = 4
"""The ratio of the replicates evaluated after a stage of early stopping to those evaluated before."""


class NeighbourSelection(abc.ABC):
    """The launches of the kernels that find the distance to the k_CMI-th neighbour of each sample in each replicate,
    and compute the partials of tests from these distances (GPU-CMIknn, Algorithm 4).

    Attributes:
        name: the value of the parameter `selection`.
        fallback: the selection for samples that this one does not support; None if this one supports all.
        whole: whether the kernels support short integers for integral values.
        far_replicates: the number of pairs of a sample and a replicate for which the lists were too short, counted
            while `counts_far` is set; counting makes the host wait for each launch.
    """

    name: ClassVar[str]
    fallback: ClassVar[type[NeighbourSelection] | None] = None
    whole: ClassVar[bool] = True

    def __init__(self, samples: DeviceSamples, permutations: Permutations, tuning: Tuning):
        self.samples, self.permutations, self.tuning = samples, permutations, tuning
        self.counts_far, self.far_replicates = False, 0

    @classmethod
    def serves(cls, samples: DeviceSamples, tuning: Tuning) -> bool:
        """Return whether the selection supports the type and the number of the samples."""
        return True

    @classmethod
    @abc.abstractmethod
    def layout(cls, samples: DeviceSamples) -> Layout:
        """Return the memory layout of replicates that the selection requires."""

    @abc.abstractmethod
    def scratch_bytes(self, level: int, tests: int) -> int:
        """Return the lower bound on the bytes of device memory with which a number of tests can be estimated."""

    @abc.abstractmethod
    def launch(self, level: int, sets: Filled, tests: Filled, counts: Any) -> None:
        """Compute the partials of tests.

        Args:
            counts: None to evaluate all replicates. Otherwise (t,) int32 zeros: tests then end early, and this array
                receives the numbers of permutations whose CMI is at least the data's.
        """

    def expected_near(self, level: int) -> int:
        """Estimate how many samples are at least as near in (V_j, S) as the k-th nearest in (V_i, V_j, S).

        For n independent uniform samples, the ball that holds k samples in d dimensions holds n (k / n)^((d - 1) / d)
        samples in d - 1 dimensions. Three standard deviations are added to k, so that the estimate is large enough for
        nearly all replicates.
        """
        n, k = self.samples.n, self.samples.problem.k_cmi
        share = min(1.0, (k + 3 * math.sqrt(k) + 2) / n)
        return min(n - 1, max(k, math.ceil(n * share ** ((level + 1) / (level + 2)))))

    def _stages(self, tests: Filled, counts: Any) -> Iterator[tuple[Filled, int]]:
        """Yield the tests with the replicates of each stage, and the index of the first of these replicates.

        Without `counts`, there is one stage. Otherwise the first stage evaluates one panel, and each later stage
        increases the number of evaluated replicates by the factor `STAGE_GROWTH`. After each stage, the tests whose
        decision no further permutation can change are closed.
        """
        if counts is None:
            yield tests, 0
            return
        backend, replicates = self.samples.backend, self.samples.replicates
        values, threads = tests.values, self.tuning.lists
        partials = values["partials"].reshape(-1)
        close = backend.kernel(*CLOSE_TESTS)
        first, last = 0, min(PANEL, replicates)
        while first < last:
            yield TESTS(**values | {"replicates": last - first, "partials": partials[first:]}), first
            numbers = map(np.int32, (first, last, self.samples.problem.critical_count))
            close((ceil_div(values["count"], threads),), (threads,), [tests, *numbers, counts])
            first, last = last, min(STAGE_GROWTH * last, replicates)
