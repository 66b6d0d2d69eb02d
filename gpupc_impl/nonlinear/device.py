"""The CMIknn test on a device: permutations and CMI values of the tests that a method asks for, in batches."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from gpupc_impl.backends import Backend, DeviceMemoryError
from gpupc_impl.backends.launch import MAX_GRID_Y
from gpupc_impl.core.mapped import pieces
from gpupc_impl.integers import round_up
from gpupc_impl.nonlinear.buckets import BucketSelection
from gpupc_impl.nonlinear.counting import CountingSelection
from gpupc_impl.nonlinear.insertion import InsertionSelection
from gpupc_impl.nonlinear.lists import ALLOCATION
from gpupc_impl.nonlinear.permutation import Permutations
from gpupc_impl.nonlinear.problem import NonlinearProblem
from gpupc_impl.nonlinear.registers import RegisterSelection
from gpupc_impl.nonlinear.samples import DeviceSamples
from gpupc_impl.nonlinear.selection import NeighbourSelection
from gpupc_impl.nonlinear.sources import TESTS, all_kernels
from gpupc_impl.nonlinear.tuning import PARAMS, TUNING, Tuning

__all__ = ["SELECTIONS", "CmiEstimator", "all_kernels", "ci_test", "counts_of"]

SELECTIONS: dict[str, type[NeighbourSelection]] = {
    selection.name: selection
    for selection in (RegisterSelection, BucketSelection, CountingSelection, InsertionSelection)
}
"""Ways to find the k_CMI-th neighbour, by the value of the parameter `selection`."""


class CmiEstimator:
    """Tests of one problem on one backend: conditional mutual information of the data and of permutations.

    Args:
        params: values of `tuning.PARAMS`.
        racing: resolve permutations by who comes first, as the paper does; p-values then vary from run to run.
        tuning: how work is spread; by default the backend's `tuning.TUNING`.

    Attributes:
        samples: the data on the device.
        permutations: the replicates of the sets of the latest batch.
        selection: how the k_CMI-th neighbour is found.
        busy_tests: how many tests keep the device busy.
    """

    samples_of: ClassVar[type[DeviceSamples]] = DeviceSamples

    def __init__(
        self,
        problem: NonlinearProblem,
        backend: Backend,
        params: Mapping[str, Any],
        racing: bool = False,
        tuning: Tuning | None = None,
    ):
        self.problem, self.backend = problem, backend
        tuning = (tuning or TUNING[backend.name]).with_blocks_of(params)
        name = params["selection"]
        if name == "auto":
            name = "registers" if problem.k_cmi >= tuning.registers_from else tuning.selection
        selection = SELECTIONS[name]
        self.samples = self.samples_of(problem, backend, selection.whole)
        while not selection.serves(self.samples, tuning):
            assert selection.fallback is not None
            selection = selection.fallback
        self.permutations = Permutations(self.samples, tuning, selection.layout(self.samples), racing)
        self.selection = selection(self.samples, self.permutations, tuning)
        self.busy_tests = tuning.samples / problem.n_samples
        self._capacity = (-1, 0)  # the level and the number of sets that the buffers are for

    # --- memory ------------------------------------------------------------------------------------------------------

    def fitting(self, level: int, requested: int, tests_per_set: int) -> int:
        """How many sets, up to a number, fit in device memory with their tests; allocates their buffers.

        Raises:
            DeviceMemoryError: not even one set fits.
        """
        if self._capacity[0] == level and requested <= self._capacity[1]:
            return requested
        self.permutations.free()
        self._capacity = (-1, 0)
        self.samples.prepare(level)
        free = self.backend.memory_limit - self.backend.memory_used
        sets = requested
        while sets > 1 and (needed := self.needed_bytes(level, sets, tests_per_set)) > free:
            # Arrays grow with the number of sets, but for their rounding and for the scratch memory of a launch.
            sets = max(1, min(sets - 1, int(sets * (free / needed))))
        needed = self.needed_bytes(level, sets, tests_per_set)
        if needed > free:
            raise DeviceMemoryError(needed, self.backend.memory_used, self.backend.memory_limit)
        self.permutations.allocate(level, sets)
        self._capacity = (level, sets)
        return sets

    def needed_bytes(self, level: int, sets: int, tests_per_set: int) -> int:
        """Upper bound of the device memory that a number of sets and their tests take."""
        tests = sets * tests_per_set
        arrays = self.permutations.arrays(level, sets).values()
        sizes = [math.prod(shape) * dtype.itemsize for shape, dtype in arrays]
        sizes += [4 * sets * (level + 1)]  # Sets.variables
        sizes += [13 * tests, 8 * tests * self.samples.replicates]  # Tests: pairs, counts and open; partials
        sizes += [self.selection.scratch_bytes(level, tests)]
        return sum(round_up(size, ALLOCATION) for size in sizes)

    # --- tests -------------------------------------------------------------------------------------------------------

    def partials(self, level: int, sets: np.ndarray, tests: np.ndarray) -> np.ndarray:
        """Sums of digammas of tests of one level, with the permutations that they need.

        Args:
            sets: (s, 1 + level) the permuted variable and the members of S ascending; s at most what `fitting` gave.
            tests: (t, 2) the index of a set, and V_j.

        Returns:
            (t, 1 + perm) int64: sums of psi(n_xz) + psi(n_yz) - psi(n_z), of the data and of the permutations; of mixed
            data less psi(k~).
        """
        return self._estimate(level, sets, tests, early=False).view(np.int64)

    def counts(self, level: int, sets: np.ndarray, tests: np.ndarray, early: bool) -> np.ndarray:
        """(t,) how many permutations have a CMI that reaches the data's, of tests as `partials` takes them.

        Args:
            early: leave out permutations that cannot change which side of the critical count a test ends on, but by
                insertion. The counts are then those of the permutations made.
        """
        if not early or isinstance(self.selection, InsertionSelection):
            return counts_of(self.partials(level, sets, tests))
        return self._estimate(level, sets, tests, early=True)

    def _estimate(self, level: int, sets: np.ndarray, tests: np.ndarray, early: bool) -> np.ndarray:
        """(t, 1 + perm) uint64 partials; or, if `early`, (t,) int32 counts of as many permutations as decide."""
        backend, samples = self.backend, self.samples
        self.permutations.draw(level, sets)
        device_sets = samples.sets(level, sets, self.permutations.layout.by_order)
        results = []
        for part in pieces(len(tests), MAX_GRID_Y):
            count = part.stop - part.start
            partials = backend.full((count, samples.replicates), 0, np.uint64)
            counts = backend.full((count,), 0, np.int32) if early else None
            device_tests = TESTS(
                pairs=backend.upload(np.ascontiguousarray(tests[part], np.int32)),
                count=count,
                replicates=samples.replicates,
                all_replicates=samples.replicates,
                k=self.problem.k_cmi,
                psi=samples.psi,
                partials=partials,
                open=backend.full((count,), 1, np.uint8) if early else None,
            )
            self.selection.launch(level, device_sets, device_tests, counts)
            results.append(backend.download(partials if counts is None else counts))
        return np.concatenate(results)


def ci_test(
    problem: NonlinearProblem,
    i: int,
    j: int,
    S: Sequence[int],
    backend: Backend,
    *,
    selection: str = "auto",
    beta: int = 0,
    gamma: int = 0,
    racing: bool = False,
    estimator_of: type[CmiEstimator] = CmiEstimator,
) -> tuple[int, float, np.ndarray]:
    """One test of V_i, which is permuted, and V_j given S (GPU-CMIknn, Algorithm 2).

    Returns:
        how many permuted CMI values reach the data's (the p-value is that share of them), the data's CMI in nats, and
        the (perm,) permuted ones.

    Raises:
        ValueError: i, j and S are not different variables of the problem.
        DeviceMemoryError: the test does not fit in device memory.
    """
    members = sorted(map(int, S))
    if len({i, j, *members}) != len(members) + 2 or not all(0 <= v < problem.n_variables for v in (i, j, *members)):
        raise ValueError(f"i={i}, j={j}, S={members} must be different variables from 0 to {problem.n_variables - 1}")
    params = {
        name: parameter.parse(name, value)
        for (name, parameter), value in zip(PARAMS.items(), (selection, beta, gamma), strict=True)
    }
    estimator = estimator_of(problem, backend, params, racing)
    estimator.fitting(len(members), 1, 1)
    partials = estimator.partials(len(members), np.array([[i, *members]]), np.array([[0, j]]))[0]
    cmi = problem.cmi(partials)
    return int(counts_of(partials)), float(cmi[0]), cmi[1:]


def counts_of(partials: np.ndarray) -> np.ndarray:
    """(...,) how many of the permutations' CMI values reach the data's; a larger CMI has a smaller partial."""
    return np.count_nonzero(partials[..., 1:] <= partials[..., :1], axis=-1)
