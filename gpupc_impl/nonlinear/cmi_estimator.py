"""The CMIknn test on a device: permutations and CMI values of a method's tests in batches, and a caller's own tests."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from gpupc_impl.backends import Backend, DeviceMemoryError, open_backend
from gpupc_impl.backends.launch import MAX_GRID_Y
from gpupc_impl.core.independence import IndependenceTests
from gpupc_impl.core.mapped_arrays import pieces
from gpupc_impl.engine.budget import device_bytes, free_bytes, largest_fitting
from gpupc_impl.nonlinear.declarations import TESTS
from gpupc_impl.nonlinear.problem import NonlinearProblem
from gpupc_impl.nonlinear.samples import DeviceSamples
from gpupc_impl.nonlinear.selections import SELECTIONS
from gpupc_impl.nonlinear.tuning import DEFAULTS, PARAMS, TUNING, Tuning


class CmiEstimator:
    """The estimator of conditional mutual information (CMI), of the data and of permutations, for one problem, with
    values of `tuning.PARAMS`. `racing` says whether the first thread to claim a sample takes it, as in the paper;
    p-values then vary between runs. `tuning` has the sizes of launches, by default the backend's `tuning.TUNING`."""

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
        while not selection.serves(self.samples):
            assert selection.fallback is not None
            selection = selection.fallback
        self.selection = selection(self.samples, tuning, racing)  # the object that finds the k_CMI-th neighbours
        self.permutations = self.selection.permutations  # the replicates of the sets in the latest batch
        self.busy_tests = tuning.samples / problem.n_samples  # the number of tests that keep the device busy
        self._capacity = (-1, 0)  # The buffers are for this level and this number of sets.

    # --- memory ------------------------------------------------------------------------------------------------------
    def fitting(self, level: int, requested: int, tests_per_set: int) -> int:
        """Allocate the buffers of as many sets as fit in device memory with their tests, up to `requested`, and return
        their number. DeviceMemoryError is raised if one set with its tests does not fit."""
        if self._capacity[0] == level and requested <= self._capacity[1]:
            return requested
        self.permutations.free()
        self._capacity = (-1, 0)
        self.samples.prepare(level)
        free = free_bytes(self.backend)

        def fits(sets: int) -> bool:
            return self.needed_bytes(level, sets, tests_per_set) <= free

        sets = requested if fits(requested) else largest_fitting(1, requested, fits)
        if not sets:
            needed = self.needed_bytes(level, 1, tests_per_set)
            raise DeviceMemoryError(needed, self.backend.memory_used, self.backend.memory_limit)
        self.permutations.allocate(level, sets)
        self._capacity = (level, sets)
        return sets

    def needed_bytes(self, level: int, sets: int, tests_per_set: int) -> int:
        """Return an upper bound on the bytes of device memory of a number of sets and their tests."""
        tests = sets * tests_per_set
        arrays = {
            **self.permutations.arrays(level, sets),
            "variables": ((sets, level + 1), np.int32),
            "pairs": ((tests, 2), np.int32),
            "partials": ((tests, self.samples.replicates), np.uint64),
            "scratch": (self.selection.scratch_bytes(level, tests), np.uint8),
        }
        return device_bytes(arrays)

    # --- tests -------------------------------------------------------------------------------------------------------
    def partials(self, level: int, sets: np.ndarray, tests: np.ndarray) -> np.ndarray:
        """Draw the permutations of the sets of one level, and return the sums of digammas of the tests: (t, 1 + perm)
        int64 sums over the samples of psi(n_xz) + psi(n_yz) - psi(n_z), of the data and of each permutation; for mixed
        data, each term is less by psi(k~). `sets`, (s, 1 + level), are rows of the permuted variable and S ascending,
        at most as many as `fitting` returned; `tests`, (t, 2), are rows of the index of a set, and V_j."""
        backend, samples = self.backend, self.samples
        self.permutations.draw(level, sets)
        device_sets = samples.sets(level, sets, self.permutations.by_order)
        results = []
        for part in pieces(len(tests), MAX_GRID_Y):
            count = part.stop - part.start
            partials = backend.full((count, samples.replicates), 0, np.uint64)
            device_tests = TESTS(
                pairs=backend.upload(np.ascontiguousarray(tests[part], np.int32)),
                count=count,
                replicates=samples.replicates,
                k=self.problem.k_cmi,
                psi=samples.psi,
                partials=partials,
            )
            self.selection.launch(level, device_sets, device_tests)
            results.append(backend.download(partials))
        return np.concatenate(results).view(np.int64)

    def all_partials(self, sets: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Return the partials of any number of tests of one level, (t, 1 + perm) int64, as many at a time as fit.
        `sets` has for each test the permuted variable and the members of S ascending, (t, 1 + level), and `others` its
        V_j; tests with the same set use the same permutations."""
        level = sets.shape[1] - 1
        sets, of_set = np.unique(sets, axis=0, return_inverse=True)
        order = np.argsort(of_set.reshape(-1), kind="stable")
        ends = np.cumsum(np.bincount(of_set.reshape(-1), minlength=len(sets)))
        partials = np.empty((len(others), self.samples.replicates), np.int64)
        first = 0
        while first < len(sets):
            last = first + self.fitting(level, len(sets) - first, int(np.diff(ends, prepend=0).max()))
            these = order[ends[first - 1] if first else 0 : ends[last - 1]]
            tests = np.column_stack((of_set.reshape(-1)[these] - first, others[these]))
            partials[these] = self.partials(level, sets[first:last], tests)
            first = last
        return partials


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
    """Test V_i, which is permuted, and V_j given S (GPU-CMIknn, Algorithm 2): the number of permuted CMI values at
    least the data's, of which the p-value is the share; the data's CMI; and the (perm,) permuted CMI values, in nats.
    ValueError is raised unless i, j and S are distinct variables, DeviceMemoryError if the test does not fit."""
    members = sorted(map(int, S))
    if len({i, j, *members}) != len(members) + 2 or not all(0 <= v < problem.n_variables for v in (i, j, *members)):
        raise ValueError(f"i={i}, j={j}, S={members} must be different variables from 0 to {problem.n_variables - 1}")
    params = {
        name: parameter.parse(name, value)
        for (name, parameter), value in zip(PARAMS.items(), (selection, beta, gamma), strict=True)
    }
    estimator = estimator_of(problem, backend, params, racing)
    partials = estimator.all_partials(np.array([[i, *members]]), np.array([j]))[0]
    cmi = problem.cmi(partials)
    return int(counts_of(partials)), float(cmi[0]), cmi[1:]


def counts_of(partials: np.ndarray) -> np.ndarray:
    """Return (...,) numbers of permuted CMI values that are at least the data's; a larger CMI has a smaller partial."""
    return np.count_nonzero(partials[..., 1:] <= partials[..., :1], axis=-1)


class CmiknnTests(IndependenceTests):
    """The tests of a `NonlinearProblem`; the effect size is the conditional mutual information in nats."""

    effect = "cmi"
    estimator_of: ClassVar[type[CmiEstimator]] = CmiEstimator

    def __init__(self, problem: NonlinearProblem, backend: str):
        self._problem = problem
        self._estimator = self.estimator_of(problem, open_backend(backend), DEFAULTS)

    def separates(self, pairs: np.ndarray, sets: np.ndarray) -> np.ndarray:
        return counts_of(self._partials(pairs, sets)) >= self._problem.critical_count

    def strengths(self, pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        partials = self._partials(pairs, sets)
        return self._problem.p_value(counts_of(partials)), self._problem.cmi(partials[:, 0])

    def _partials(self, pairs: np.ndarray, sets: np.ndarray) -> np.ndarray:
        return self._estimator.all_partials(np.concatenate([pairs[:, :1], np.sort(sets)], axis=1), pairs[:, 1])
