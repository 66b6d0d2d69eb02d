"""What the ways to find the k_CMI-th neighbour have in common."""

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
"""Replicates after a stage of early stopping over those before it."""


class NeighbourSelection(abc.ABC):
    """A way to find, for each sample and replicate, the distance to the k_CMI-th neighbour, and with it the partials
    of tests (GPU-CMIknn, Algorithm 4).

    Attributes:
        name: the value of the parameter `selection`.
        fallback: the selection in its place for samples that it does not serve; None where it serves all.
        whole: whether it takes whole numbers as short integers.
        far_replicates: how many pairs of a sample and a replicate were estimated without its lists, since these ended
            too early; counted while `counts_far` is set, which waits for each launch.
    """

    name: ClassVar[str]
    fallback: ClassVar[type[NeighbourSelection] | None] = None
    whole: ClassVar[bool] = True

    def __init__(self, samples: DeviceSamples, permutations: Permutations, tuning: Tuning):
        self.samples, self.permutations, self.tuning = samples, permutations, tuning
        self.counts_far, self.far_replicates = False, 0

    @classmethod
    def serves(cls, samples: DeviceSamples, tuning: Tuning) -> bool:
        """Whether it can be used for the values and numbers of samples."""
        return True

    @classmethod
    @abc.abstractmethod
    def layout(cls, samples: DeviceSamples) -> Layout:
        """How it needs the replicates in memory."""

    @abc.abstractmethod
    def scratch_bytes(self, level: int, tests: int) -> int:
        """Device memory that it needs at least to estimate a number of tests."""

    @abc.abstractmethod
    def launch(self, level: int, sets: Filled, tests: Filled, counts: Any) -> None:
        """Add up the tests' partials.

        Args:
            counts: (t,) int32 zeros: end tests early, and count their permutations that reach the data's CMI; None:
                evaluate all replicates.
        """

    def expected_near(self, level: int) -> int:
        """About how many samples are as near in (V_j, S) as the k-th nearest in (V_i, V_j, S), in the worst replicate.

        Of n independent uniform samples in d dimensions, the ball of k samples holds n (k / n)^((d - 1) / d) in one
        dimension less; three standard deviations are added to k.
        """
        n, k = self.samples.n, self.samples.problem.k_cmi
        share = min(1.0, (k + 3 * math.sqrt(k) + 2) / n)
        return min(n - 1, max(k, math.ceil(n * share ** ((level + 1) / (level + 2)))))

    def _stages(self, tests: Filled, counts: Any) -> Iterator[tuple[Filled, int]]:
        """The tests with the replicates of one launch after the other, and the first of these replicates.

        Without `counts` there is one launch. Else the first is for a panel, and each multiplies the replicates by
        `STAGE_GROWTH`; tests whose verdict no further permutation can change are closed between them.
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
