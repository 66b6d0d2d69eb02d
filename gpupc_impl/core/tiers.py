"""Tiers in the search: a variable of a later tier than both ends of a pair is in no separating set for the pair. Causes
precede their effects, so given its causes a variable is independent of what is earlier, and no later variable is needed
to separate two earlier ones. Hence tigramite conditions on the past alone, and Tetrad's PC leaves later tiers out."""

from collections.abc import Sequence
from typing import Any

import numpy as np

NO_TIER = -1
NO_LIMIT = np.iinfo(np.int32).max  # the last tier for a pair with an end in no tier


def last_tiers(tiers: np.ndarray, i: Any, j: Any) -> np.ndarray:
    """Return the last tier that members of separating sets for the pairs (i, j) may have."""
    first, second = tiers[i], tiers[j]
    return np.where(np.minimum(first, second) == NO_TIER, NO_LIMIT, np.maximum(first, second))


def allowed_sets(tiers: np.ndarray | None, pairs: np.ndarray, sets: np.ndarray) -> np.ndarray:
    """Return which of the (k, level) sets may separate the (k, 2) pairs, (k,) bool; all may without tiers."""
    return np.asarray(may_be_members(tiers, pairs, sets).all(axis=1))


def may_be_members(tiers: np.ndarray | None, pairs: np.ndarray, variables: np.ndarray) -> np.ndarray:
    """Return which of the (k, n) variables may be in separating sets for the (k, 2) pairs, (k, n) bool."""
    if tiers is None:
        return np.ones(variables.shape, bool)
    possible: np.ndarray = tiers[variables] <= last_tiers(tiers, *pairs.T)[:, None]
    return possible


def allowed_partners(tiers: np.ndarray | None, i: int, js: Sequence[int], members: Sequence[int]) -> list[int]:
    """Return those of `js` that these members may separate from Vi, without the members themselves."""
    partners = [j for j in js if j not in members]
    if tiers is None:
        return partners
    latest = max((int(tiers[k]) for k in members), default=NO_TIER)
    return [j for j in partners if latest <= last_tiers(tiers, i, j)]


def allowed_members(tiers: np.ndarray | None, variables: np.ndarray, i: int, j: int) -> np.ndarray:
    """Return which of the (k,) variables may be in a separating set for one pair, (k,) bool."""
    return np.ones(len(variables), bool) if tiers is None else tiers[variables] <= last_tiers(tiers, i, j)
