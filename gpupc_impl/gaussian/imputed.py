"""Gaussian data whose missing values were imputed several times, with tests pooled by Rubin's rules.
Let z_1, ..., z_M be Fisher's z of the partial correlation of Vi and Vj given S in the M completed tables of m samples
(cuPC, section 4.3). Rubin (1987), Multiple Imputation for Nonresponse in Surveys, section 3.1, pools them: with the
mean z, the variance within tables W = 1 / (m - |S| - 3) and the variance between tables B = sum (z_k - z)^2 / (M - 1),
the total variance is T = W + (1 + 1/M) B. The statistic z / sqrt(T) has Student's t distribution with
(M - 1) (1 + W / ((1 + 1/M) B))^2 degrees of freedom, or the normal one if B is zero. The R package micd
(``gaussMItest``) makes the same test."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from gpupc_impl.core import allocation
from gpupc_impl.core.problem import InvalidProblem, name_constants
from gpupc_impl.gaussian.array_search import ArrayProblem, Outcome, Tests, array_method
from gpupc_impl.gaussian.canonical import quick_residuals, to_host
from gpupc_impl.gaussian.matrix import correlation_matrix
from gpupc_impl.gaussian.problem import finite_samples


@dataclasses.dataclass(frozen=True, eq=False)
class ImputedProblem(ArrayProblem):
    """A Gaussian problem with a correlation matrix for each of M >= 2 completed tables (`tables`, (M, p, p) float64,
    each as `GaussianProblem.correlation`); `correlation` is their mean."""

    treatment: ClassVar[str] = "imputed"

    tables: np.ndarray | None = None

    @classmethod
    def from_data(
        cls, data: Sequence[Any], *, correlations: str = "host", names: Sequence[str] | None = None, **parameters: Any
    ) -> Self:
        """Make a problem from completed tables with the same samples and variables, arrays or DataFrames. A variable
        that is constant in a table has no correlation there. The parameters are those of `GaussianProblem.from_data`.
        InvalidProblem is raised if there are fewer than two tables, their shapes or names differ, a value is missing or
        infinite, or a parameter is invalid."""
        tables = [finite_samples(table, names) for table in data]
        if len(tables) < 2:
            raise InvalidProblem(f"data has {len(tables)} completed table(s); Rubin's rules pool two or more")
        (first, names), p = tables[0], tables[0][0].shape[1]
        for k, (values, own_names) in enumerate(tables[1:], 2):
            if values.shape != first.shape or own_names != names:
                raise InvalidProblem(
                    f"completed table {k} has {values.shape[0]:,} samples of {values.shape[1]:,} variables, or other "
                    f"names, unlike the first with {len(first):,} of {p:,}; give tables with the same rows and columns"
                )
        if correlations != "host":
            raise InvalidProblem(f"correlations is {correlations!r}; with missing='imputed' leave it out")
        checked = cls.checked(len(first), **parameters)
        matrices, constant = allocation.new_array((len(tables), p, p)), np.zeros(p, bool)
        for k, (values, _) in enumerate(tables):
            matrices[k], constant_here = correlation_matrix(values)
            constant |= constant_here
        mean = matrices.mean(axis=0)
        for array in (matrices, mean):
            array.setflags(write=False)
        return cls(names=names, correlation=mean, tables=matrices, constant=name_constants(names, constant), **checked)

    def outline(self) -> dict[str, Any]:
        remark = f"in each of {len(self.tables)} completed tables; {self.remark({})}"
        return {**super().outline(), "missing": "imputed", "imputed_tables": len(self.tables), "remark": remark}

    @classmethod
    def remark(cls, parameters: Mapping[str, Any]) -> str:
        return "z is pooled over the tables by Rubin's rules"

    def pooled(self, z: np.ndarray, level: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the (k,) means and two-sided p-values of (M, k) Fisher's z at a level; see the module."""
        from scipy import special

        count, within = len(z), 1 / (self.n_samples - self.spent(level))
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = z.mean(axis=0)
            between = (1 + 1 / count) * ((z - mean) ** 2).sum(axis=0) / (count - 1)
            freedom = (count - 1) * (1 + within / between) ** 2
            statistic = -np.abs(mean) / np.sqrt(within + between)
        normal = 2 * special.ndtr(statistic)
        return mean, np.where(np.isfinite(freedom), 2 * special.stdtr(freedom, statistic), normal)

    def tests(self, xp: Any = np) -> Tests:
        """See `ArrayProblem`. NumPy computes z and p-values, so that both libraries decide by the same bits."""
        tables = xp.asarray(self.tables)

        def test(pairs: Any, sets: Any, p_values: bool) -> Outcome:
            r = np.empty((len(tables), len(pairs)))
            defined, pseudo = xp.ones(len(pairs), bool), xp.zeros(len(pairs), bool)
            for k, correlation in enumerate(tables):
                h = quick_residuals(self, correlation, pairs, sets, xp)
                defined_here = h.defined(self.residual_tolerance)
                r[k] = to_host(h.ij / xp.sqrt(xp.where(defined_here, h.ii * h.jj, 1.0)))
                defined &= defined_here
                pseudo |= h.near_singular
            defined = to_host(defined)
            mean, p = self.pooled(np.arctanh(np.clip(r, -HIGHEST, HIGHEST)), sets.shape[1])
            p = np.where(defined, p, 0.0)
            effects = np.where(defined, np.tanh(mean), np.nan)
            return Outcome(p >= self.alpha, ~defined, pseudo, p, effects)

        return test


HIGHEST = math.nextafter(1.0, 0.0)  # the bound to which correlations are clamped, so that z is finite

METHOD = array_method(
    ImputedProblem,
    source="cuPC, Algorithm 1 and section 4.3; Rubin 1987, section 3.1",
    summary="multiple imputation: z pooled over completed tables",
)
