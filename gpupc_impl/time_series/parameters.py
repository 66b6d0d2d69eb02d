"""The parameters of PCMCI and PCMCI+, and their checks."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from types import SimpleNamespace
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


def checked(arguments: Mapping[str, Any]) -> SimpleNamespace:
    """Return the arguments of `pcmci`, checked. Limits that are None become `NO_LIMIT`, and `most_parents` are those of
    `Parents`. Akaike's criterion chooses among the `levels` of the first phase, or of all PCMCI+."""
    made = SimpleNamespace(**arguments)
    check_choice("test", made.test, TESTS)
    made.levels = _levels(made.pc_alpha, made.alpha, made.contemporaneous, made.test)
    check_choice("collider_rule", made.collider_rule, RULES)
    check_choice("correction", made.correction, CORRECTIONS)
    for name, level in (("alpha", made.alpha), *(("pc_alpha", level) for level in made.levels)):
        if isinstance(level, bool) or not isinstance(level, numbers.Real) or not 0 < level < 1:
            raise InvalidProblem(f"{name} is {level!r}; a significance level is a number between 0 and 1")
    for name in LIMITS:
        value = NO_LIMIT if getattr(made, name) is None else getattr(made, name)
        setattr(made, name, whole_number(name, value, int(name == "max_combinations"), NO_LIMIT))
    made.most_parents = made.max_conds_py, made.max_conds_px, made.max_conds_px
    if made.contemporaneous and arguments["max_conds_px_lagged"] is not None:
        made.most_parents = made.max_conds_py, made.max_conds_px, made.max_conds_px_lagged
    whole_number("tau_max", made.tau_max, 1, MOST_LAGS)
    whole_number("tau_min", made.tau_min, 0, 0 if made.contemporaneous else made.tau_max)
    return made


def _levels(pc_alpha: Any, alpha: Any, contemporaneous: bool, test: str) -> tuple[Any, ...]:
    """Return the levels that an argument `pc_alpha` stands for, if the method and the test can use it."""
    if isinstance(pc_alpha, str) and pc_alpha == AUTO:
        return (alpha if contemporaneous else PC_ALPHA,)
    if pc_alpha is None:
        pc_alpha = LEVELS_OF_PCMCIPLUS if contemporaneous else LEVELS_OF_PCMCI
    if isinstance(pc_alpha, (list, tuple, np.ndarray)):
        if not len(pc_alpha):
            raise InvalidProblem("pc_alpha is empty; pass levels, or None for the usual ones")
        if test != "parcorr":
            raise InvalidProblem(f"levels are chosen by the fit of linear models; with test={test!r} pass one pc_alpha")
        return tuple(pc_alpha)
    if contemporaneous:
        raise InvalidProblem(
            f"pc_alpha is {pc_alpha!r}, and PCMCI+ makes all tests at one level: pass it as alpha, or several as "
            "pc_alpha"
        )
    return (pc_alpha,)
