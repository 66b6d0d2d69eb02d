"""Reads discrete Bayesian networks in the BIF format of the Bayesian network repository, and samples from them.

The parser is part of this module because importing pgmpy takes seconds.
"""

from __future__ import annotations

import gzip
import math
import re
import zlib
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

import numpy as np

from datasets.dataset import DataError

SUM_TOLERANCE = 1e-5
"""The tolerance for the sum of a row's probabilities, which files round (those of the repository by up to 1e-6). Each
row is divided by its sum."""

LARGEST_TABLE = 1 << 27  # the upper bound on the number of probabilities in a table (1 GiB)

VARIABLE = re.compile(r"variable (\S+) \{\s*type discrete \[ (\d+) \] \{ (.*?) \};\s*\}")
PROBABILITY = re.compile(r"probability \( ([^|)]+?)(?: \| ([^)]+?))? \) \{\n(.*?)\n\}", re.DOTALL)
ROW = re.compile(r"(?:table|\((.*)\)) ([^();]+);")


class Network(NamedTuple):
    """A discrete Bayesian network of p variables.

    Attributes:
        names: the variables in the file's order.
        labels: for each variable the labels of its categories, in the file's order.
        parents: for each variable the positions of its parents, in the file's order.
        tables: for each variable, (configurations of its parents, categories) float64, whose rows sum to 1.
            The first parent varies slowest, as in an array that is indexed by the parents in their order.
    """

    names: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    parents: tuple[tuple[int, ...], ...]
    tables: tuple[np.ndarray, ...]

    def order(self) -> tuple[int, ...]:
        """Return a topological order of the variables."""
        return tuple(TopologicalSorter(dict(enumerate(self.parents))).static_order())

    def dag(self) -> np.ndarray:
        """Return a (p, p) bool matrix in which [i, j] is True if i is a parent of j."""
        adjacency = np.zeros((len(self.names), len(self.names)), dtype=bool)
        for child, parents in enumerate(self.parents):
            adjacency[list(parents), child] = True
        return adjacency


def read_bif(content: bytes, label: str) -> Network:
    """Return the network of a BIF file's content, which may be gzipped.

    Raises:
        DataError: the content violates the format, or the graph has a cycle; the message names the fault.
    """
    try:
        text = (gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content).decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(f"network {label!r} is not a readable BIF file: {error}") from error
    where = f"network {label!r}"
    states: dict[str, tuple[str, ...]] = {}
    for name, count, listed in VARIABLE.findall(text):
        labels = tuple(listed.split(", "))
        if str(len(labels)) != count.lstrip("0") or len(set(labels)) != len(labels):
            raise DataError(f"{where}, variable {name!r}: {count} different states declared, found {', '.join(labels)}")
        if states.setdefault(name, labels) is not labels:
            raise DataError(f"{where}, variable {name!r}: declared twice")
    if not states:
        raise DataError(f"{where} declares no variable")
    position = {name: k for k, name in enumerate(states)}

    parents: dict[str, tuple[str, ...]] = {}
    tables: dict[str, np.ndarray] = {}
    for name, listed, rows in PROBABILITY.findall(text):
        where_table = f"{where}, probability of {name!r}"
        own_parents = tuple(listed.split(", ")) if listed else ()
        unknown = [variable for variable in (name, *own_parents) if variable not in states]
        if unknown:
            raise DataError(f"{where_table}: {unknown[0]!r} is not declared")
        if name in tables:
            raise DataError(f"{where_table}: given twice")
        parents[name] = own_parents
        tables[name] = _table(rows, states[name], [states[parent] for parent in own_parents], where_table)
    missing = [name for name in states if name not in tables]
    if missing:
        raise DataError(f"{where}: no probabilities for {', '.join(missing[:5])}")
    network = Network(
        names=tuple(states),
        labels=tuple(states.values()),
        parents=tuple(tuple(position[parent] for parent in parents[name]) for name in states),
        tables=tuple(tables[name] for name in states),
    )
    try:
        network.order()
    except CycleError as error:
        cycle = " -> ".join(network.names[k] for k in error.args[1])
        raise DataError(f"{where} is not acyclic: {cycle}") from error
    return network


def sample(network: Network, samples: int, seed: int) -> np.ndarray:
    """Return independent samples by forward sampling: (samples, variables) uint8 codes (uint16 beyond 256 categories).

    Each variable has a PCG64 stream of its own, seeded by (seed, position). The codes therefore do not depend on the
    topological order, and a smaller sample is the beginning of a larger one. A category of probability zero is never
    drawn.

    Returns:
        the codes in Fortran order, in which those of a variable are contiguous.
    """
    widest = max(map(len, network.labels))
    codes = np.empty((len(network.names), samples), dtype=np.uint8 if widest <= 256 else np.uint16)
    for variable in network.order():
        uniform = np.random.Generator(np.random.PCG64([seed, variable])).random(samples)
        cumulative = np.cumsum(network.tables[variable], axis=1)
        cumulative /= cumulative[:, -1:]
        row = np.zeros(samples, dtype=np.intp)
        for parent in network.parents[variable]:
            row *= len(network.labels[parent])
            row += codes[parent]
        drawn = codes[variable]
        drawn[:] = 0
        for bound in cumulative.T[:-1]:  # The category is the number of bounds at or below the uniform number.
            drawn += uniform >= (bound[row] if len(bound) > 1 else bound)
    return codes.T


def _table(rows: str, own: tuple[str, ...], parents: list[tuple[str, ...]], where: str) -> np.ndarray:
    """Return the (configurations, categories) probabilities, each row divided by its sum.

    Args:
        rows: the lines of the table in the file.
        own: the states of the variable.
        parents: the states of each parent.
        where: the beginning of error messages.
    """
    shape = [len(states) for states in parents]
    configurations = math.prod(shape)
    if configurations * len(own) > LARGEST_TABLE:
        raise DataError(f"{where}: {configurations * len(own)} probabilities are more than {LARGEST_TABLE}")
    table = np.full((configurations, len(own)), np.nan)
    codes = [{state: code for code, state in enumerate(states)} for states in parents]
    for line in rows.split("\n"):
        match = ROW.fullmatch(line.strip())
        if match is None:
            raise DataError(f"{where}: {line.strip()!r} is not a row of probabilities")
        parent_states = tuple(match[1].split(", ")) if match[1] else ()
        row = 0
        if len(parent_states) != len(parents):
            raise DataError(f"{where}: {len(parent_states)} states for {len(parents)} parents in {line.strip()!r}")
        for state, code_of in zip(parent_states, codes, strict=True):
            if state not in code_of:
                raise DataError(f"{where}: no parent's state {state!r} in {line.strip()!r}")
            row = row * len(code_of) + code_of[state]
        if not np.isnan(table[row, 0]):
            raise DataError(f"{where}: the row of {match[1] or 'table'} stands there twice")
        numbers = match[2].split(", ")
        try:
            table[row] = np.array(numbers, dtype=np.float64)
        except ValueError:
            numbers = []
        if len(numbers) != len(own):  # A single number would otherwise be broadcast to the whole row.
            raise DataError(f"{where}: {line.strip()!r} could not be read as {len(own)} numbers")
        if not (table[row] >= 0).all():
            raise DataError(f"{where}: {table[row].min():g} is no probability in {line.strip()!r}")
    if np.isnan(table).any():
        raise DataError(f"{where}: {int(np.isnan(table).any(axis=1).sum())} of {configurations} rows are missing")
    total = np.cumsum(table, axis=1)[:, -1]  # This function adds in order, so that all machines have the same bits.
    worst = int(np.argmax(np.abs(total - 1)))
    if abs(total[worst] - 1) > SUM_TOLERANCE:
        raise DataError(f"{where}: the probabilities of row {worst + 1} sum to {total[worst]:.9g}, not to 1")
    return table / total[:, None]
