"""A Gaussian problem whose variables may have unmeasured common causes: what FCI and RFCI solve in experiments."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np

from gpupc_impl.core.pag import MARKS
from gpupc_impl.core.problem import one_of, parameter, whole_number
from gpupc_impl.core.registry import Run
from gpupc_impl.core.result import Skeleton
from gpupc_impl.core.whole_graphs import whole_graph
from gpupc_impl.gaussian.problem import GaussianProblem


def _limit(name: str, value: Any) -> int | None:
    return None if value is None else whole_number(name, value, 1, 1000)


@dataclasses.dataclass(frozen=True, eq=False)
class LatentProblem(GaussianProblem):
    """Fisher's z test on a correlation matrix, and what `fci` is asked."""

    family: ClassVar[str] = "latent"

    algorithm: str = parameter("rfci", one_of("rfci", "fci"))
    max_possible_d_sep: int | None = parameter(None, _limit)

    @property
    def gaussian(self) -> GaussianProblem:
        names = (field.name for field in dataclasses.fields(GaussianProblem))
        return GaussianProblem(**{name: getattr(self, name) for name in names})


def pag_answer(problem: LatentProblem, run: Run, marks: np.ndarray, **facts: Any) -> Skeleton:
    """Return the (p, p) marks of a PAG, as `PAG` has them, as a method's answer."""
    listed = [(i, j, MARKS[marks[i, j]], None) for i, j in np.argwhere(marks).tolist()]
    return whole_graph(problem, run, marks != 0, listed, **facts)
