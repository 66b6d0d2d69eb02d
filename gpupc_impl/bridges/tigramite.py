"""Offers our tests as tigramite's conditional independence tests, for PCMCI and its other methods."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy

try:
    from tigramite.independence_tests.cmiknn import CMIknn
    from tigramite.independence_tests.independence_tests_base import CondIndTest
    from tigramite.independence_tests.parcorr import ParCorr
except ImportError as error:
    raise ImportError(
        f"gpupc_impl.bridges.tigramite needs {error.name or 'tigramite'} ({error}); pip install tigramite numba"
    ) from error

from gpupc_impl.backends import open_backend
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.gaussian.matrix import correlation_matrix
from gpupc_impl.gaussian.problem import RESIDUAL_TOLERANCE
from gpupc_impl.kernel.kernel_batched import ci_test as kernel_test
from gpupc_impl.kernel.problem import KernelProblem
from gpupc_impl.nonlinear.cmi_estimator import ci_test
from gpupc_impl.nonlinear.problem import NonlinearProblem

DISTRIBUTIONS = ("t", "fisher-z")
TRANSFORMS = {"ranks": "ranks", "standardize": "standardize", False: "none"}  # our names of tigramite's transforms
# The module has the cache, and not each test, because tigramite copies tests.
_open_backend = functools.cache(open_backend)
Node = tuple[int, int]  # variable's index and its lag, which is zero or negative


class GpupcParCorr(ParCorr):
    """tigramite's ``ParCorr`` (partial correlation) with the correlations of all lagged variables computed once. Its
    arguments are those of ``ParCorr``, and `distribution`: ``"t"`` for Student's, as in ``ParCorr``; or ``"fisher-z"``,
    as in the Gaussian family of this package. ValueError is raised if it is neither of these.

    PCMCI makes all its tests on the same samples (``cut_off="2xtau_max"``), so each test needs only a few entries of
    one matrix. tigramite's own test is used in all other cases (masks, missing values, vector-valued variables, another
    cut-off, a significance that is not analytic) and where conditions are nearly collinear.
    """

    def __init__(self, distribution: str = "t", **kwargs: Any):
        if distribution not in DISTRIBUTIONS:
            raise ValueError(f"distribution is {distribution!r}; choose one of: {', '.join(DISTRIBUTIONS)}")
        self.distribution = distribution
        self._correlations: dict[int, _LaggedCorrelations] = {}  # matrices by tau_max
        super().__init__(**kwargs)

    def set_dataframe(self, dataframe: Any) -> None:
        """Use other data; see tigramite's documentation."""
        self._correlations.clear()
        super().set_dataframe(dataframe)

    def get_analytic_significance(self, value: float, T: int, dim: int, xyz: np.ndarray) -> float:
        """Return the two-sided p-value of a partial correlation of T samples of `dim` variables. As in tigramite, the
        p-value is NaN without degrees of freedom."""
        freedom = T - dim - (self.distribution == "fisher-z")
        if freedom < 1:
            return np.nan
        if abs(value) >= 1:
            return 0.0
        if self.distribution == "fisher-z":
            return float(2 * scipy.special.ndtr(-abs(np.arctanh(value)) * np.sqrt(freedom)))
        return float(2 * scipy.special.stdtr(freedom, -abs(value) * np.sqrt(freedom / (1 - value * value))))

    def run_test(
        self,
        X: list[Node],
        Y: list[Node],
        Z: list[Node] | None = None,
        tau_max: int = 0,
        cut_off: str = "2xtau_max",
        alpha_or_thres: float | None = None,
    ) -> tuple:
        """Return what tigramite's ``run_test`` returns: value, p-value and, with `alpha_or_thres`, whether X and Y are
        dependent."""
        outcome = None
        if cut_off == "2xtau_max" and len(X) == len(Y) == 1 and self._is_plain():
            if tau_max not in self._correlations:
                self._correlations[tau_max] = _LaggedCorrelations(self.dataframe, tau_max)
            outcome = self._correlations[tau_max].partial_correlation(X[0], Y[0], Z or [])
        if outcome is None:
            return super().run_test(X, Y, Z, tau_max, cut_off, alpha_or_thres)
        value, samples, dim = outcome
        p_value = 1.0 if dim == 0 else self.get_analytic_significance(value, samples, dim, np.empty(0))
        dependent = None if alpha_or_thres is None else bool(dim and p_value <= alpha_or_thres)
        self.ci_results[(tuple(X), tuple(Y), tuple(Z or ()))] = (value, p_value, dependent)
        if self.verbosity > 1:
            self._print_cond_ind_results(val=value, pval=p_value, cached=False, dependent=dependent, conf=None)
        return (value, p_value) if alpha_or_thres is None else (value, p_value, dependent)

    def _is_plain(self) -> bool:
        """Return whether every test uses the same samples of scalar variables with analytic significance."""
        frame = self.dataframe
        return (
            frame is not None
            and self.significance == "analytic"
            and self.mask_type is None
            and frame.missing_flag is None
            and frame.bootstrap is None
            and all(variables == [(k, 0)] for k, variables in frame.vector_vars.items())
        )


class _LaggedCorrelations:
    """Return the correlations of all variables at all lags up to 2 tau_max, over the samples that every test uses."""

    def __init__(self, dataframe: Any, tau_max: int):
        nodes = [(v, -lag) for lag in range(2 * tau_max + 1) for v in range(dataframe.N)]
        array, _, _ = dataframe.construct_array(
            X=nodes[:1], Y=nodes[1:2], Z=nodes[2:], tau_max=tau_max, do_checks=False, cut_off="2xtau_max"
        )
        self.samples = array.shape[1]
        self.correlation, self.constant = correlation_matrix(array.T)
        self.index = {node: k for k, node in enumerate(nodes)}

    def partial_correlation(self, x: Node, y: Node, conditions: list[Node]) -> tuple[float, int, int] | None:
        """Return the partial correlation, the number of samples, and the number of variables (0 if x or y is constant);
        None if a lag exceeds 2 tau_max or the conditions are nearly collinear."""
        nodes = [*dict.fromkeys([x, y, *conditions])]
        if x == y or not all(tuple(node) in self.index for node in nodes):
            return None
        columns = [self.index[tuple(node)] for node in nodes]
        if self.constant[columns[:2]].any():
            return 0.0, self.samples, 0
        columns = [*columns[:2], *(k for k in columns[2:] if not self.constant[k])]
        # Since x and y are the last variables, the product of the factor's last corner with its transpose is their
        # residual covariance.
        try:
            factor = np.linalg.cholesky(self.correlation[np.ix_(columns[::-1], columns[::-1])])
        except np.linalg.LinAlgError:
            return None
        if min(np.diagonal(factor)) ** 2 <= RESIDUAL_TOLERANCE:
            return None
        variance_y, covariance = factor[-2, -2] ** 2, factor[-2, -2] * factor[-1, -2]
        variance_x = factor[-1, -2] ** 2 + factor[-1, -1] ** 2
        return float(covariance / np.sqrt(variance_x * variance_y)), self.samples, len(columns)


class GpupcCMIknn(CMIknn):
    """The CMIknn test of this project (docs/cmiknn.md) with tigramite's parameters and conventions.

    The estimate is tigramite's without the noise that tigramite adds to break ties. Permutations follow the same local
    scheme with other random numbers, and a p-value is (count + 1) / (sig_samples + 1) as in tigramite. Without
    conditions (tigramite then permutes blocks), for several X or Y, and with a fitted null distribution, tigramite's
    own test is used.

    Args:
        backend: where kernels run: ``"auto"``, ``"cuda"`` or ``"host"``.
        seed: the seed of the random numbers.
        kwargs: arguments of ``CMIknn``; ``transform`` must be ``"ranks"``, ``"standardize"`` or False, else ValueError
            is raised.
    """

    def __init__(self, backend: str = "auto", seed: int = 42, **kwargs: Any):
        transform = kwargs.get("transform", "ranks")
        if transform not in TRANSFORMS:
            raise ValueError(f"transform is {transform!r}; choose one of: {', '.join(map(repr, TRANSFORMS))}")
        self._backend, self._seed = backend, seed
        self._latest: tuple[bytes, tuple[int, float, np.ndarray]] = (b"", (0, 0.0, np.empty(0)))
        super().__init__(seed=seed, **kwargs)

    def get_dependence_measure(self, array: np.ndarray, xyz: np.ndarray, data_type: Any = None) -> float:
        """Return the conditional mutual information in nats of (dim, T) samples."""
        if not self._is_supported(array, xyz):
            return super().get_dependence_measure(array, xyz, data_type)
        return self._test(array, xyz)[1]

    def get_shuffle_significance(
        self, array: np.ndarray, xyz: np.ndarray, value: float, return_null_dist: bool = False, data_type: Any = None
    ) -> Any:
        """Return the p-value from local permutations and, with `return_null_dist`, the permuted values."""
        if not self._is_supported(array, xyz) or self.null_fit is not None:
            return super().get_shuffle_significance(array, xyz, value, return_null_dist, data_type)
        count, _, null = self._test(array, xyz)
        p_value = (count + 1) / (self.sig_samples + 1)
        return (p_value, null) if return_null_dist else p_value

    def _is_supported(self, array: np.ndarray, xyz: np.ndarray) -> bool:
        counts = np.bincount(xyz, minlength=3)
        return counts[0] == counts[1] == 1 and counts[2] > 0 and self.shuffle_neighbors < array.shape[1]

    def _test(self, array: np.ndarray, xyz: np.ndarray) -> tuple[int, float, np.ndarray]:
        """Return the number of permuted values at or above the value, the value, and the permuted values. tigramite
        requests the value and the permutations one after the other, so both are computed together."""
        request = np.ascontiguousarray(array).tobytes() + np.asarray(xyz).tobytes()
        if self._latest[0] != request:
            problem = NonlinearProblem.from_data(
                array.T,
                transform=TRANSFORMS[self.transform],
                permutations=self.sig_samples if self.significance == "shuffle_test" else 1,
                k_cmi=self.knn if self.knn < 1 else int(self.knn),
                k_perm=self.shuffle_neighbors,
                seed=self._seed,
                precision="float64",
            )
            x, y = int(np.argmax(xyz == 0)), int(np.argmax(xyz == 1))
            permuted, other = (x, y) if self.permute == "X" else (y, x)
            conditions = np.flatnonzero(xyz == 2).tolist()
            self._latest = request, ci_test(problem, permuted, other, conditions, _open_backend(self._backend))
        return self._latest[1]


class GpupcKernel(CondIndTest):
    """The tests RCIT, RCoT and KCI (docs/kernel.md), which tigramite does not offer.

    Args:
        test: ``"rcit"``, ``"rcot"`` or ``"kci"``.
        backend: where the tests are computed: ``"auto"``, ``"cuda"`` or ``"host"``.
        seed: seed of the random numbers.
        options: further parameters of `KernelProblem.from_data`.
        kwargs: arguments of tigramite's ``CondIndTest``. Only analytic significance is supported.

    Raises:
        gpupc_impl.InvalidProblem: raised by a test for several X or Y, an invalid parameter, or unusable data.
    """

    measure = "kernel"

    def __init__(
        self,
        test: str = "rcit",
        backend: str = "auto",
        seed: int = 42,
        options: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ):
        self._backend, self._options = backend, {"test": test, "seed": seed, **(options or {})}
        self._p_value = np.nan
        self.two_sided = self.residual_based = False
        super().__init__(seed=seed, **kwargs)

    def get_dependence_measure(self, array: np.ndarray, xyz: np.ndarray, data_type: Any = None) -> float:
        """Return the test's statistic for (dim, T) data; with more samples T a dependence has a larger statistic."""
        if np.bincount(xyz, minlength=2)[:2].max() > 1:
            raise InvalidProblem("X or Y has several variables; kernel tests are of one X and one Y, given any Z")
        order = np.argsort(xyz, kind="stable")
        problem = KernelProblem.from_data(array[order].T, **self._options)
        backend = _open_backend(self._backend)
        self._p_value, statistic = kernel_test(problem, 0, 1, range(2, len(array)), backend)
        return statistic

    def get_analytic_significance(self, value: float, T: int, dim: int, xyz: np.ndarray) -> float:
        """Return the p-value of the latest statistic; tigramite requests first the statistic, then the p-value."""
        return self._p_value
