"""Our tests as tigramite's conditional independence tests, for PCMCI and its other methods."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from scipy import special

try:
    from tigramite.independence_tests.cmiknn import CMIknn
    from tigramite.independence_tests.parcorr import ParCorr
except ImportError as error:
    raise ImportError("gpupc_impl.bridges.tigramite needs tigramite; pip install 'gpupc[bridges]'") from error

from gpupc_impl.backends import open_backend
from gpupc_impl.gaussian.matrix import correlation_matrix
from gpupc_impl.gaussian.problem import RESIDUAL_TOLERANCE
from gpupc_impl.nonlinear.device import ci_test
from gpupc_impl.nonlinear.problem import NonlinearProblem

DISTRIBUTIONS = ("t", "fisher-z")

TRANSFORMS = {"ranks": "ranks", "standardize": "standardize", False: "none"}
"""tigramite's names of transforms, and ours."""

_opened = functools.cache(open_backend)  # not in the test, which tigramite copies

Node = tuple[int, int]
"""A variable and its lag, zero or negative."""


class GpupcParCorr(ParCorr):
    """Partial correlation: tigramite's ``ParCorr``, with all lagged variables correlated once for all tests.

    PCMCI makes all its tests on the same samples (``cut_off="2xtau_max"``), so that a test needs no more than a few
    entries of one matrix. Where that is not so (masks, missing values, vector-valued variables, another cut-off,
    another significance than analytic) and where conditions are nearly collinear, the test is tigramite's own.

    Args:
        distribution: of the statistic: ``"t"``, Student's, as ``ParCorr``; or ``"fisher-z"``, as our Gaussian family.
        kwargs: of ``ParCorr``.
    """

    def __init__(self, distribution: str = "t", **kwargs: Any):
        if distribution not in DISTRIBUTIONS:
            raise ValueError(f"distribution is {distribution!r}; choose one of: {', '.join(DISTRIBUTIONS)}")
        self.distribution = distribution
        self._known: dict[int, _Lagged] = {}
        super().__init__(**kwargs)

    def set_dataframe(self, dataframe: Any) -> None:
        """Start with other data; see tigramite."""
        self._known.clear()
        super().set_dataframe(dataframe)

    def get_analytic_significance(self, value: float, T: int, dim: int, xyz: np.ndarray) -> float:
        """The two-sided p-value of a partial correlation of T samples of `dim` variables; NaN without a degree of
        freedom, as tigramite has it."""
        freedom = T - dim - (self.distribution == "fisher-z")
        if freedom < 1:
            return np.nan
        if abs(value) >= 1:
            return 0.0
        if self.distribution == "fisher-z":
            return float(2 * special.ndtr(-abs(np.arctanh(value)) * np.sqrt(freedom)))
        return float(2 * special.stdtr(freedom, -abs(value) * np.sqrt(freedom / (1 - value * value))))

    def run_test(
        self,
        X: list[Node],
        Y: list[Node],
        Z: list[Node] | None = None,
        tau_max: int = 0,
        cut_off: str = "2xtau_max",
        alpha_or_thres: float | None = None,
    ) -> tuple:
        """tigramite's ``run_test``: value, p-value and, with `alpha_or_thres`, whether they are dependent."""
        found = None
        if cut_off == "2xtau_max" and len(X) == len(Y) == 1 and self._is_plain():
            if tau_max not in self._known:
                self._known[tau_max] = _Lagged(self.dataframe, tau_max)
            found = self._known[tau_max].partial_correlation(X[0], Y[0], Z or [])
        if found is None:
            return super().run_test(X, Y, Z, tau_max, cut_off, alpha_or_thres)
        value, samples, dim = found
        p_value = 1.0 if dim == 0 else self.get_analytic_significance(value, samples, dim, np.empty(0))
        dependent = None if alpha_or_thres is None else bool(dim and p_value <= alpha_or_thres)
        self.ci_results[(tuple(X), tuple(Y), tuple(Z or ()))] = (value, p_value, dependent)
        if self.verbosity > 1:
            self._print_cond_ind_results(val=value, pval=p_value, cached=False, dependent=dependent, conf=None)
        return (value, p_value) if alpha_or_thres is None else (value, p_value, dependent)

    def _is_plain(self) -> bool:
        frame = self.dataframe
        return (
            frame is not None
            and self.significance == "analytic"
            and self.mask_type is None
            and frame.missing_flag is None
            and frame.bootstrap is None
            and all(variables == [(k, 0)] for k, variables in frame.vector_vars.items())
        )


class _Lagged:
    """The correlations of all variables at all lags up to 2 tau_max, over the samples that every test is made on."""

    def __init__(self, dataframe: Any, tau_max: int):
        nodes = [(v, -lag) for lag in range(2 * tau_max + 1) for v in range(dataframe.N)]
        array, _, _ = dataframe.construct_array(
            X=nodes[:1], Y=nodes[1:2], Z=nodes[2:], tau_max=tau_max, do_checks=False, cut_off="2xtau_max"
        )
        self.samples = array.shape[1]
        self.correlation, self.constant = correlation_matrix(array.T)
        self.place = {node: k for k, node in enumerate(nodes)}

    def partial_correlation(self, x: Node, y: Node, conditions: list[Node]) -> tuple[float, int, int] | None:
        """The partial correlation, the samples, and the number of variables in it, 0 where x or y is constant; None
        where a node lies further back than was foreseen or the conditions are nearly collinear."""
        nodes = [*dict.fromkeys([x, y, *conditions])]
        if x == y or not all(tuple(node) in self.place for node in nodes):
            return None
        places = [self.place[tuple(node)] for node in nodes]
        if self.constant[places[:2]].any():
            return 0.0, self.samples, 0
        places = [*places[:2], *(k for k in places[2:] if not self.constant[k])]
        block = self.correlation[np.ix_(places[::-1], places[::-1])]
        try:
            factor = np.linalg.cholesky(block)  # x and y last: their corner is what the conditions leave of them
        except np.linalg.LinAlgError:
            return None
        of_y, covariance, of_x = factor[-2, -2] ** 2, factor[-2, -2] * factor[-1, -2], factor[-1, -2] ** 2
        of_x += factor[-1, -1] ** 2
        if min(np.diagonal(factor)) ** 2 <= RESIDUAL_TOLERANCE:
            return None
        return float(covariance / np.sqrt(of_x * of_y)), self.samples, len(places)


class GpupcCMIknn(CMIknn):
    """CMIknn of this project (docs/cmiknn.md) with tigramite's parameters and conventions.

    The estimate is tigramite's but for the noise that it adds against ties. The permutations draw other random numbers
    by the same local scheme, and a p-value is (count + 1) / (sig_samples + 1) as there. Tests without conditions, which
    tigramite permutes in blocks, those with several X or Y, and those with a fitted null distribution are tigramite's.

    Args:
        backend: ``"auto"``, ``"cuda"`` or ``"host"``.
        kwargs: of ``CMIknn``; ``transform`` is ``"ranks"``, ``"standardize"`` or False.
    """

    def __init__(self, backend: str = "auto", seed: int = 42, **kwargs: Any):
        transform = kwargs.get("transform", "ranks")
        if transform not in TRANSFORMS:
            raise ValueError(f"transform is {transform!r}; choose one of: {', '.join(map(repr, TRANSFORMS))}")
        self._backend, self._seed = backend, seed
        self._last: tuple[bytes, tuple[int, float, np.ndarray]] = (b"", (0, 0.0, np.empty(0)))
        super().__init__(seed=seed, **kwargs)

    def get_dependence_measure(self, array: np.ndarray, xyz: np.ndarray, data_type: Any = None) -> float:
        """The conditional mutual information in nats of (dim, T) samples."""
        if not self._is_ours(array, xyz):
            return super().get_dependence_measure(array, xyz, data_type)
        return self._test(array, xyz)[1]

    def get_shuffle_significance(
        self,
        array: np.ndarray,
        xyz: np.ndarray,
        value: float,
        return_null_dist: bool = False,
        data_type: Any = None,
    ) -> Any:
        """The p-value from local permutations and, if asked, the permuted values."""
        if not self._is_ours(array, xyz) or self.null_fit is not None:
            return super().get_shuffle_significance(array, xyz, value, return_null_dist, data_type)
        count, _, null = self._test(array, xyz)
        p_value = (count + 1) / (self.sig_samples + 1)
        return (p_value, null) if return_null_dist else p_value

    def _is_ours(self, array: np.ndarray, xyz: np.ndarray) -> bool:
        counts = np.bincount(xyz, minlength=3)
        return counts[0] == counts[1] == 1 and counts[2] > 0 and self.shuffle_neighbors < array.shape[1]

    def _test(self, array: np.ndarray, xyz: np.ndarray) -> tuple[int, float, np.ndarray]:
        """Value and permutations are asked for one after the other, and made together."""
        asked = np.ascontiguousarray(array).tobytes() + np.asarray(xyz).tobytes()
        if self._last[0] != asked:
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
            found = ci_test(problem, permuted, other, np.flatnonzero(xyz == 2).tolist(), _opened(self._backend))
            self._last = asked, found
        return self._last[1]
