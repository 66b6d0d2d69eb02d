"""A problem's samples on a device, in the type that the kernels compute with."""

from typing import Any, ClassVar

import numpy as np

from gpupc_impl.backends import Backend, Filled, Kernel
from gpupc_impl.integers import round_up
from gpupc_impl.nonlinear.problem import NonlinearProblem
from gpupc_impl.nonlinear.sources import PANEL, SETS, TYPES, kernel_of

STATIC_SHARED = 8448
"""Bytes of static shared memory that the kernels take at most, and that dynamic shared memory cannot have."""


class DeviceSamples:
    """The samples of a problem on a device, and the kernels for them.

    Args:
        whole: whether whole numbers may become short integers, which the paper's kernel does not take.

    Attributes:
        n: number of samples.
        replicates: the data as observed and each permutation: 1 + perm.
        stride: the replicates, padded to whole panels.
        kind: C++'s type of a value: "short", "float" or "double".
        dtype, key_dtype: NumPy's types of a value and of a key, the integer that orders distances.
        widest: key of an upper bound of the distances.
        ranks: whether the values of each variable are 0 to n - 1, or constant.
        values: (p, n) device array of `dtype`.
        psi: (n + 1,) device array: digammas in units of 2^-40.
        sorted: (p, n) device array: each variable's values ascending, from the first level 0 on; else None.
        order: (p, n) device array: the samples in that order, from the first higher level on; else None.
        shared_limit: bytes of dynamic shared memory that a block may have.
    """

    continuous: ClassVar[bool] = True
    """Whether distances are those of numbers alone, the rule `Continuous` of the kernels."""

    def __init__(self, problem: NonlinearProblem, backend: Backend, whole: bool):
        self.problem, self.backend = problem, backend
        self.n, self.replicates = problem.n_samples, problem.permutations + 1
        self.stride = round_up(self.replicates, PANEL)
        self.ranks = self.continuous and problem.transform == "ranks"
        self.kind, values, widest = self._encoded(whole)
        self.dtype, self.key_dtype = map(np.dtype, TYPES[self.kind])
        self.widest = self.dtype.type(widest).reshape(1).view(self.key_dtype)[0]
        self.values = backend.upload(values)
        self.psi = backend.upload(problem.psi)
        self.sorted: Any = None
        self.order: Any = None
        self.shared_limit = max(0, backend.max_shared_bytes - STATIC_SHARED)

    def kernel(self, name: str, *arguments: str) -> Kernel:
        """A kernel of `sources.KERNELS` for these values, with its further template arguments."""
        return self.backend.kernel(*kernel_of(name, self.kind, *arguments))

    def prepare(self, level: int) -> None:
        """Put each variable's values, at level 0, or its samples, at higher levels, in ascending order."""
        if level == 0 and self.sorted is None:
            self.sorted = self.backend.upload(np.sort(self.backend.download(self.values), axis=1))
        if level and self.order is None:
            order = np.argsort(self.backend.download(self.values), axis=1, kind="stable")
            self.order = self.backend.upload(order.astype(np.int32))

    def sets(self, level: int, variables: np.ndarray, by_order: bool) -> Filled:
        """Sets as kernels take them.

        Args:
            variables: (s, 1 + level) the permuted variable and the members of S ascending.
            by_order: number the samples by their order in S[0], where there is one.
        """
        device_variables = self.backend.upload(np.ascontiguousarray(variables, np.int32))
        order = self.order if level and by_order else None
        return SETS[self.kind](values=self.values, variables=device_variables, order=order, n=self.n, level=level)

    def _encoded(self, whole: bool) -> tuple[str, np.ndarray, Any]:
        """The kind, (p, n) values of its type with the problem's distances, and an upper bound of these.

        Whole numbers that span little have the same distances as short integers.
        """
        problem, values = self.problem, self.problem.values
        widest = (values.max(axis=1) - values.min(axis=1)).max(initial=0)
        if whole and problem.n_samples < 2**15 and (values == np.rint(values)).all():
            shifted = values - values.min(axis=1, keepdims=True)
            if shifted.max(initial=0) < 2**15 - 1:
                return "short", shifted.astype(np.int16), widest
        return "double" if problem.precision == "float64" else "float", values, widest
