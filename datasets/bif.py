"""Reads discrete Bayesian networks in the BIF format of the Bayesian network repository, and samples from them. The
parser is part of this module because importing pgmpy takes seconds."""

import gzip
import math
import re
import zlib
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

import numpy as np

from datasets.dataset import DataError, graph_of

SUM_TOLERANCE = 1e-5  # of the sum of a row's probabilities, which files round; each row is divided by its sum
LARGEST_TABLE = 1 << 27  # the upper bound on the number of probabilities in a table (1 GiB)
VARIABLE = re.compile(r"variable (\S+) \{\s*type discrete \[ (\d+) \] \{ (.*?) \};\s*\}")
PROBABILITY = re.compile(r"probability \( ([^|)]+?)(?: \| ([^)]+?))? \) \{\n(.*?)\n\}", re.DOTALL)
ROW = re.compile(r"(?:table|\((.*)\)) ([^();]+);")


class Network(NamedTuple):
    """A discrete Bayesian network, whose variables, labels of categories and positions of parents are in the file's
    order.

    Attributes:
        tables: for each variable, (configurations of its parents, categories) float64, whose rows sum to 1. The first
            parent varies slowest, as in an array that is indexed by the parents in their order.
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
        return graph_of(dict(enumerate(self.parents)))


def read_bif(content: bytes, label: str) -> Network:
    """Return the network of a BIF file's content, perhaps gzipped. DataError names a fault or a cycle."""
    where = f"network {label!r}"
    try:
        text = (gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content).decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(f"{where} is not a readable BIF file: {error}") from error
    declared, given = VARIABLE.findall(text), PROBABILITY.findall(text)
    states = {name: tuple(listed.split(", ")) for name, _, listed in declared}
    for name, count, _ in declared:
        if not str(len(set(states[name]))) == str(len(states[name])) == count.lstrip("0"):
            raise DataError(
                f"{where}, variable {name!r}: {count} different states declared, found {', '.join(states[name])}"
            )
    names = [[name for name, *_ in part] for part in (declared, given)]
    if not states or names[0] != list(states) or sorted(names[1]) != sorted(states):
        raise DataError(
            f"{where}: it must declare variables, each of them once, and give the probabilities of each once"
        )
    position = {name: k for k, name in enumerate(states)}
    parents: dict[str, list[str]] = {}
    tables: dict[str, np.ndarray] = {}
    for name, listed, rows in given:
        parents[name] = listed.split(", ") if listed else []
        where_table = f"{where}, probability of {name!r}"
        if unknown := set(parents[name]) - states.keys():
            raise DataError(f"{where_table}: {min(unknown)!r} is not declared")
        tables[name] = _table(rows, states[name], [states[parent] for parent in parents[name]], where_table)
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
    """Return independent samples by forward sampling: (samples, variables) uint8 codes (uint16 beyond 256 categories),
    in Fortran order, in which those of a variable are contiguous.

    Each variable has a PCG64 stream of its own, seeded by (seed, position). The codes therefore do not depend on the
    topological order, and a smaller sample is the beginning of a larger one. A category of probability zero is never
    drawn.
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
    """Return a variable's (configurations, categories) probabilities, each row divided by its sum."""
    configurations = math.prod(map(len, parents))
    if configurations * len(own) > LARGEST_TABLE:
        raise DataError(f"{where}: {configurations * len(own)} probabilities are more than {LARGEST_TABLE}")
    table = np.full((configurations, len(own)), np.nan)
    lines = rows.split("\n")
    for line in map(str.strip, lines):
        match = ROW.fullmatch(line)
        listed, numbers = match.groups() if match else (None, "")
        row = 0
        try:
            for state, of_parent in zip(listed.split(", ") if listed else (), parents, strict=True):
                row = row * len(of_parent) + of_parent.index(state)
            table[row] = np.array(numbers.split(", "), np.float64).reshape(len(own))
        except ValueError as error:
            raise DataError(f"{where}: {line!r} is no row of {len(own)} probabilities: {error}") from error
    if len(lines) != configurations or not (table >= 0).all():
        raise DataError(f"{where}: each of its {configurations} rows is needed once, without negative numbers")
    total = np.cumsum(table, axis=1)[:, -1]  # This function adds in order, so that all machines have the same bits.
    worst = int(np.argmax(np.abs(total - 1)))
    if not abs(total[worst] - 1) <= SUM_TOLERANCE:
        raise DataError(f"{where}: the probabilities of row {worst + 1} sum to {total[worst]:.9g}, not to 1")
    return table / total[:, None]
