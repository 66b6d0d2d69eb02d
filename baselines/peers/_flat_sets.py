"""Reads the separating sets of a program that writes them one after another."""

import numpy as np


def padded(flat: np.ndarray, p: int, first: int) -> np.ndarray:
    """Return (p, p, width) int32 sets, padded with -1, from ``i, j, size, members`` of each pair, where variables are
    numbered from `first` on."""
    found, at = [], 0
    while at < len(flat):
        i, j, size = flat[at : at + 3]
        found.append((i - first, j - first, flat[at + 3 : at + 3 + size] - first))
        at += 3 + size
    sets = np.full((p, p, max((len(members) for *_, members in found), default=0)), -1, np.int32)
    for i, j, members in found:
        sets[i, j, : len(members)] = members
    return sets
