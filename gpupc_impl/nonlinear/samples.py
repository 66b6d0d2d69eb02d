"""The samples of a problem on a device, in the type with which the kernels compute, and the permutations of variables
given sets (GPU-CMIknn, Algorithms 1 and 3)."""

from typing import Any, ClassVar

import numpy as np

from gpupc_impl.backends import Backend, Filled, Kernel
from gpupc_impl.backends.launch import MAX_GRID_Y
from gpupc_impl.core.mapped_arrays import pieces
from gpupc_impl.integers import ceil_div, round_up
from gpupc_impl.nonlinear.declarations import FEW_NEAREST, PANEL, SETS, SHUFFLES, TYPES, kernel_of
from gpupc_impl.nonlinear.problem import NonlinearProblem
from gpupc_impl.nonlinear.tuning import Tuning

STATIC_SHARED = 8448  # bytes of static shared memory of a kernel at most, which limit its dynamic shared memory
LATENCY_BLOCKS = 3  # resident blocks per multiprocessor that hide `assign`'s latency; with fewer, blocks are larger
ARRANGED_SAMPLES = 1024  # the number of samples whose values a block of `arrange` copies in order


class DeviceSamples:
    """The samples of a problem on a device, and the kernels for them. `whole` says whether integral values may be
    converted to short integers, which the kernel of the paper does not support. `sorted` and `order`, (p, n) device
    arrays of the values of each variable, ascending, and of its samples in this order, are None until `prepare`."""

    continuous: ClassVar[bool] = True  # whether kernels use the rule `Continuous`, for numbers alone

    def __init__(self, problem: NonlinearProblem, backend: Backend, whole: bool):
        self.problem, self.backend = problem, backend
        self.n, self.replicates = problem.n_samples, problem.permutations + 1  # the data as observed, and permutations
        self.stride = round_up(self.replicates, PANEL)
        self.ranks = self.continuous and problem.transform == "ranks"  # values are 0 to n - 1, or constant
        self.kind, values, widest = self._encoded(whole)  # the C++ type of a value: "short", "float" or "double"
        self.dtype, self.key_dtype = map(np.dtype, TYPES[self.kind])  # of a value; of a key, which orders distances
        self.widest = self.dtype.type(widest).reshape(1).view(self.key_dtype)[0]  # the key of a bound on distances
        self.values = backend.upload(values)  # (p, n)
        self.psi = backend.upload(problem.psi)  # (n + 1,) digammas in units of 2^-40
        self.sorted, self.order = None, None
        self.shared_limit = max(0, backend.max_shared_bytes - STATIC_SHARED)  # dynamic shared memory of a block

    def kernel(self, name: str, *arguments: str) -> Kernel:
        """Return a kernel of `declarations.KERNELS` for the type of the values, with further template arguments."""
        return self.backend.kernel(*kernel_of(name, self.kind, *arguments))

    def prepare(self, level: int) -> None:
        """Compute `sorted` for level 0, or `order` for a higher level."""
        if level == 0 and self.sorted is None:
            self.sorted = self.backend.upload(np.sort(self.backend.download(self.values), axis=1))
        if level and self.order is None:
            order = np.argsort(self.backend.download(self.values), axis=1, kind="stable")
            self.order = self.backend.upload(order.astype(np.int32))

    def sets(self, level: int, variables: np.ndarray, by_order: bool) -> Filled:
        """Return the struct `SETS` of (s, 1 + level) sets, each row the permuted variable and the members of S
        ascending. With `by_order`, samples are numbered by their order in S[0], if S is not empty."""
        device_variables = self.backend.upload(np.ascontiguousarray(variables, np.int32))
        order = self.order if level and by_order else None
        return SETS[self.kind](values=self.values, variables=device_variables, order=order, n=self.n, level=level)

    def _encoded(self, whole: bool) -> tuple[str, np.ndarray, Any]:
        """Return the kind, (p, n) values of that type, and an upper bound on their distances. Integral values in a
        small range become short integers, which have the same distances."""
        problem, values = self.problem, self.problem.values
        widest = (values.max(axis=1) - values.min(axis=1)).max(initial=0)
        if whole and problem.n_samples < 2**15 and (values == np.rint(values)).all():
            shifted = values - values.min(axis=1, keepdims=True)
            if shifted.max(initial=0) < 2**15 - 1:
                return "short", shifted.astype(np.int16), widest
        return "double" if problem.precision == "float64" else "float", values, widest


class Permutations:
    """The buffers for the replicates of a number of sets, and the launches of the kernels that fill these buffers:
    `rows`, (sets, replicates, n), has the values of each set's variable, as observed and permuted, and `columns` has
    sets * n * stride of these values, in panels of `panel` replicates of all samples; there are none if `panel` is 0.
    With `by_order`, samples are numbered by their order in S[0], from level 1 on."""

    def __init__(self, samples: DeviceSamples, tuning: Tuning, panel: int, by_order: bool, racing: bool):
        self.samples, self.tuning = samples, tuning
        self.panel, self.by_order, self.racing = panel, by_order, racing
        n, k = samples.n, samples.problem.k_perm
        self._k, self._perm = k, samples.problem.permutations
        self._buffers: dict[str, Any] = {}
        # The bytes of memory of a block: of `permute_freely` for priorities, of `assign` for the owners of samples, and
        # of `nearest` for the distances and samples of its lists.
        self._sort_bytes, self._owner_bytes = 8 * (n + (n + 1) // 2), 8 * n
        self._list_bytes = round_up(tuning.nearest * k * samples.key_dtype.itemsize, 8) + 4 * tuning.nearest * k

    @property
    def rows(self) -> Any:
        return self._buffers["rows"]

    @property
    def columns(self) -> Any:
        return self._buffers["columns"]

    # --- memory ------------------------------------------------------------------------------------------------------
    def arrays(self, level: int, sets: int) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        samples, n, perm, k = self.samples, self.samples.n, self._perm, self._k
        arrays = {"rows": ((sets, samples.replicates, n), samples.dtype)}
        if self.panel:
            arrays["columns"] = ((sets, n, samples.stride), samples.dtype)
        if level == 0:
            if self._sort_bytes > samples.shared_limit:
                arrays["owners"] = ((sets, perm, self._sort_bytes // 8), np.dtype(np.uint64))
            return arrays
        arrays["members"] = ((sets, level, n), samples.dtype)
        arrays["knn"] = ((sets, n, k), np.dtype(np.int32))
        if self._list_bytes > samples.shared_limit:
            arrays["distances"] = ((sets, n, k), samples.key_dtype)
        if self.racing:
            arrays["used"] = ((sets, perm, n), np.dtype(np.int32))
        elif self._owner_bytes > samples.shared_limit:
            arrays["owners"] = ((sets, perm, self._owner_bytes // 8), np.dtype(np.uint64))
        return arrays

    def allocate(self, level: int, sets: int) -> None:
        self._buffers = self.samples.backend.empty_all(**self.arrays(level, sets))

    def free(self) -> None:
        self._buffers.clear()

    # --- launches ----------------------------------------------------------------------------------------------------
    def draw(self, level: int, variables: np.ndarray) -> None:
        """Fill the buffers with the replicates of (s, 1 + level) permuted variables and members of S."""
        samples = self.samples
        for part in pieces(len(variables), MAX_GRID_Y):
            sets = samples.sets(level, variables[part], self.by_order)
            count = part.stop - part.start
            if level == 0:
                self._permute_freely(sets, part, count)
            else:
                self._permute_locally(sets, part, count)
            if panel := self.panel:
                samples.kernel("lay_side_by_side")(
                    (ceil_div(samples.n, PANEL), samples.stride // PANEL, count),
                    (self.tuning.transpose,),
                    [
                        *(sets, self.rows[part]),
                        *map(np.int32, (samples.replicates, samples.stride, panel)),
                        self.columns[part],
                    ],
                )

    def arrange(self, sets: Filled, count: int, pairs: Any, order: Any, arranged: Any) -> None:
        """Launch the kernel `arrange` for a number of sets, or of the tests with these pairs."""
        grid = ceil_div(self.samples.n, ARRANGED_SAMPLES), count
        self.samples.kernel("arrange")(grid, (self.tuning.lists,), [sets, pairs, order, arranged])

    def _scratch(self, name: str, part: slice, shared_bytes: int) -> tuple[Any, int]:
        """Return the buffer that replaces shared memory, or None, and the bytes of shared memory to request."""
        return (self._buffers[name][part], 0) if name in self._buffers else (None, shared_bytes)

    def _permute_freely(self, sets: Filled, part: slice, count: int) -> None:
        scratch, shared_bytes = self._scratch("owners", part, self._sort_bytes)
        self.samples.kernel("permute_freely")(
            (self._perm, count),
            (self.tuning.assign,),
            [sets, np.uint64(self.samples.problem.seed), scratch, self.rows[part]],
            shared_bytes=shared_bytes,
        )

    def _permute_locally(self, sets: Filled, part: slice, count: int) -> None:
        samples, tuning, k = self.samples, self.tuning, self._k
        n, rows, knn, members = samples.n, self.rows[part], self._buffers["knn"][part], self._buffers["members"][part]
        self.arrange(sets, count, None, samples.order, members)
        scratch, shared_bytes = self._scratch("distances", part, self._list_bytes)
        samples.kernel("nearest")(
            (ceil_div(n, tuning.nearest), count),
            (tuning.nearest,),
            [sets, samples.order, members, np.int32(k), knn, scratch],
            shared_bytes=shared_bytes,
        )
        shuffles = SHUFFLES(knn=knn, k=k, seed=samples.problem.seed)
        if self.racing:
            samples.backend.fill(self._buffers["used"], 0)
            samples.kernel("assign_racing")(
                (ceil_div(n, tuning.nearest), count),
                (tuning.nearest,),
                [sets, shuffles, np.int32(self._perm), self._buffers["used"], rows],
            )
            return
        scratch, shared_bytes = self._scratch("owners", part, self._owner_bytes)
        hides_latency = LATENCY_BLOCKS * shared_bytes <= samples.shared_limit
        samples.kernel("assign", "true" if k <= FEW_NEAREST else "false")(
            (self._perm, count),
            (tuning.assign if hides_latency else tuning.assign_alone,),
            [sets, shuffles, scratch, rows],
            shared_bytes=shared_bytes,
        )
