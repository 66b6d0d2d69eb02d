"""The samples of a problem on a device, in the type with which the kernels compute."""

from typing import Any, ClassVar

import numpy as np

from gpupc_impl.backends import Backend, Filled, Kernel
from gpupc_impl.integers import round_up
from gpupc_impl.nonlinear.problem import NonlinearProblem
from gpupc_impl.nonlinear.sources import PANEL, SETS, TYPES, kernel_of

STATIC_SHARED = 8448
"""The upper bound on the static shared memory of a kernel in bytes, which limits its dynamic shared memory."""


class DeviceSamples:
    """The samples of a problem on a device, and the kernels for them.

    Args:
        whole: whether integral values may be converted to short integers, which the kernel of the paper does not
            support.

    Attributes:
        n: the number of samples.
        replicates: the number of replicates, 1 + perm: the data as observed and each permutation.
        stride: the number of replicates, rounded up to whole panels.
        kind: the C++ type of a value: "short", "float" or "double".
        dtype, key_dtype: the NumPy types of a value and of a key, an integer that orders distances.
        widest: the key of an upper bound on the distances.
        ranks: whether the values of each variable are 0 to n - 1, or constant.
        values: (p, n) device array of `dtype`.
        psi: (n + 1,) device array of digammas in units of 2^-40.
        sorted: (p, n) device array of the values of each variable, ascending; None until `prepare` is called for
            level 0.
        order: (p, n) device array of the samples in ascending order of the values of each variable; None until
            `prepare` is called for a higher level.
        shared_limit: the upper bound on the dynamic shared memory of a block, in bytes.
    """

    continuous: ClassVar[bool] = True
    """Whether all variables hold numbers, so that the kernels compute distances by their rule `Continuous`."""

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
        """Return a kernel of `sources.KERNELS` for the type of the values, with further template arguments."""
        return self.backend.kernel(*kernel_of(name, self.kind, *arguments))

    def prepare(self, level: int) -> None:
        """Compute `sorted` for level 0, or `order` for a higher level."""
        if level == 0 and self.sorted is None:
            self.sorted = self.backend.upload(np.sort(self.backend.download(self.values), axis=1))
        if level and self.order is None:
            order = np.argsort(self.backend.download(self.values), axis=1, kind="stable")
            self.order = self.backend.upload(order.astype(np.int32))

    def sets(self, level: int, variables: np.ndarray, by_order: bool) -> Filled:
        """Return the struct `SETS` of some sets.

        Args:
            variables: (s, 1 + level), each row the permuted variable and the members of S ascending.
            by_order: whether samples are numbered by their order in S[0], if S is not empty.
        """
        device_variables = self.backend.upload(np.ascontiguousarray(variables, np.int32))
        order = self.order if level and by_order else None
        return SETS[self.kind](values=self.values, variables=device_variables, order=order, n=self.n, level=level)

    def _encoded(self, whole: bool) -> tuple[str, np.ndarray, Any]:
        """Return the kind, (p, n) values of that type, and an upper bound on their distances.

        Integral values in a small range become short integers, which have the same distances.
        """
        problem, values = self.problem, self.problem.values
        widest = (values.max(axis=1) - values.min(axis=1)).max(initial=0)
        if whole and problem.n_samples < 2**15 and (values == np.rint(values)).all():
            shifted = values - values.min(axis=1, keepdims=True)
            if shifted.max(initial=0) < 2**15 - 1:
                return "short", shifted.astype(np.int16), widest
        return "double" if problem.precision == "float64" else "float", values, widest
