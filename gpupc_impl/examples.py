"""Example data, made by seeded generators: ``gpupc.examples.sachs()``, or ``example:sachs`` on the command line.

Equal arguments give the same data with every version of NumPy, whose legacy generator is frozen (NEP 19).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas

__all__ = ["health", "sachs"]

SACHS = (
    "[PKC][PKA|PKC][Raf|PKC:PKA][Mek|PKC:PKA:Raf][Erk|PKA:Mek][Akt|PKA:Erk][P38|PKC:PKA][Jnk|PKC:PKA]"
    "[Plcg][PIP3|Plcg][PIP2|Plcg:PIP3]"
)
"""The network of 17 arrows that Sachs et al. (Science, 2005) call accepted, in bnlearn's notation."""

HEALTH = (
    "[Age][Diet][Exercise|Age][BMI|Diet:Exercise][BloodPressure|Age:BMI][Glucose|BMI][Cholesterol|Diet]"
    "[HeartRisk|BloodPressure:Cholesterol]"
)


def sachs(samples: int = 1000, seed: int = 0) -> pandas.DataFrame:
    """Return generated data of the network of Sachs et al. (2005): eleven molecules of immune cells, as logarithms.

    The measured data have no licence that allows passing them on; these are linear with Gaussian noise.

    Returns:
        (samples, 11) float64, with mean 0 and variance 1 in expectation.
    """
    return _frame(SACHS, samples, seed)


def health(samples: int = 1000, seed: int = 0) -> pandas.DataFrame:
    """Return made-up data of eight properties of people, most of whose arrows the data determine.

    Returns:
        (samples, 8) float64, of variables that are linear in their parents with Gaussian noise.
    """
    frame = _frame(HEALTH, samples, seed)
    return frame.assign(Age=50 + 12 * frame["Age"], BMI=26 + 4 * frame["BMI"]).round(3)


def chain(variables: int, samples: int, seed: int = 0) -> np.ndarray:
    """Return data of a sparse random graph, (samples, variables) float64, for trials: each variable has up to two
    parents among the four before it."""
    parents = np.random.RandomState(seed).randint(1, 5, (variables, 2))
    return _linear([sorted({k - d for d in parents[k] if d <= k}) for k in range(variables)], samples, seed)


def parents_of(network: str) -> dict[str, list[str]]:
    """Return the parents of each variable of a network in bnlearn's notation."""
    return {
        name: parents.split(":") if parents else [] for name, parents in re.findall(r"\[(\w+)\|?([\w:]*)]", network)
    }


def _frame(network: str, samples: int, seed: int) -> pandas.DataFrame:
    import pandas

    parents = parents_of(network)
    names = list(parents)
    numbers = [[names.index(name) for name in before] for before in parents.values()]
    return pandas.DataFrame(_linear(numbers, samples, seed), columns=names)


def _linear(parents: Sequence[Sequence[int]], samples: int, seed: int) -> np.ndarray:
    """Draw variables in this order; parents explain 60 % of a variance, or more if they are correlated."""
    values = np.random.RandomState(seed).normal(size=(samples, len(parents)))
    for k, before in enumerate(parents):
        if before:
            values[:, k] = np.sqrt(0.4) * values[:, k] + np.sqrt(0.6 / len(before)) * values[:, before].sum(axis=1)
            values[:, k] /= values[:, k].std()
    return values
