"""The parameters of PCMCI and PCMCI+, and their checks."""

from __future__ import annotations

import dataclasses
import numbers
from typing import Any

import numpy as np

from gpupc_impl.core.problem import InvalidProblem, check_choice, whole_number

NO_LIMIT = 2**30  # a number of conditions that no test reaches
SUFFIXES = (".npz", ".csv", ".json", ".png", ".svg")  # of the files that hold a graph
RULES = ("majority", "conservative", "none")
TESTS = ("parcorr", "cmiknn", "discrete")
CORRECTIONS = ("none", "fdr_bh")
LIMITS = ("max_conds_dim", "max_combinations", "max_conds_py", "max_conds_px", "max_conds_px_lagged")
MOST_LAGS = 100_000

# The levels among which ``pc_alpha=None`` chooses, as in tigramite, and that of PCMCI's first phase by default.
LEVELS_OF_PCMCI = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
LEVELS_OF_PCMCIPLUS = (0.001, 0.005, 0.01, 0.025, 0.05)
AUTO, PC_ALPHA = "auto", 0.2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parameters:
    """The parameters of PCMCI and PCMCI+ as `pcmci` describes them; limits that are None become `NO_LIMIT`. Akaike's
    criterion chooses among the `levels` of the first phase, or of all PCMCI+."""

    alpha: float
    contemporaneous: bool
    tau_min: int
    tau_max: int
    levels: tuple[float, ...]
    max_conds_dim: Any
    max_combinations: Any
    max_conds_py: Any
    max_conds_px: Any
    max_conds_px_lagged: Any
    collider_rule: str
    mark_conflicts: bool
    reset_lagged_links: bool
    correction: str

    def __post_init__(self) -> None:
        check_choice("collider_rule", self.collider_rule, RULES)
        check_choice("correction", self.correction, CORRECTIONS)
        for name, level in (("alpha", self.alpha), *(("pc_alpha", level) for level in self.levels)):
            if isinstance(level, bool) or not isinstance(level, numbers.Real) or not 0 < level < 1:
                raise InvalidProblem(f"{name} is {level!r}; a significance level is a number between 0 and 1")
        if self.max_conds_px_lagged is None:
            object.__setattr__(self, "max_conds_px_lagged", self.max_conds_px)
        for name in LIMITS:
            value = NO_LIMIT if getattr(self, name) is None else getattr(self, name)
            object.__setattr__(self, name, whole_number(name, value, int(name == "max_combinations"), NO_LIMIT))
        if not self.contemporaneous:
            object.__setattr__(self, "max_conds_px_lagged", self.max_conds_px)
        whole_number("tau_max", self.tau_max, 1, MOST_LAGS)
        whole_number("tau_min", self.tau_min, 0, 0 if self.contemporaneous else self.tau_max)


def levels_of(pc_alpha: Any, alpha: Any, contemporaneous: bool, test: str) -> tuple[Any, ...]:
    """Return the levels that an argument `pc_alpha` stands for, if the method and the test can use it."""
    if isinstance(pc_alpha, str) and pc_alpha == AUTO:
        return (alpha if contemporaneous else PC_ALPHA,)
    if pc_alpha is None or isinstance(pc_alpha, (list, tuple, np.ndarray)):
        usual = LEVELS_OF_PCMCIPLUS if contemporaneous else LEVELS_OF_PCMCI
        levels = usual if pc_alpha is None else tuple(pc_alpha)
        if not levels:
            raise InvalidProblem("pc_alpha is empty; pass levels, or None for the usual ones")
        if test != "parcorr":
            raise InvalidProblem(f"levels are chosen by the fit of linear models; with test={test!r} pass one pc_alpha")
        return levels
    if contemporaneous:
        raise InvalidProblem(
            f"pc_alpha is {pc_alpha!r}, and PCMCI+ makes all tests at one level: pass it as alpha, or several as "
            "pc_alpha"
        )
    return (pc_alpha,)
