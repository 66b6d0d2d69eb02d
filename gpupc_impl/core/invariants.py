"""The invariants of a skeleton and of its directions, for what methods return and what files hold. `core.result` and
`core.orientation` import this module, which therefore cannot name their classes."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from gpupc_impl.core import mapped_arrays
from gpupc_impl.core.pairs import PAIRS_AT_ONCE


def check_skeleton(skeleton: Any) -> None:
    """Raise ValueError if a field of a skeleton has a wrong type or range, or fields do not fit together."""
    _check_adjacency(skeleton.adjacency, len(skeleton.names))
    if len(set(skeleton.names)) != len(skeleton.names):
        raise ValueError("two of its variables have the same name")
    _check_sets(skeleton.sepsets, skeleton.adjacency)
    _check_gaps(skeleton.sepsets, skeleton.adjacency)
    for name in ("levels_run", "undefined_tests", "pseudo_inverses"):
        _check_counts(name, (getattr(skeleton, name),))
    for name in ("tests_per_level", "edges_per_level"):
        _check_counts(name, getattr(skeleton, name))
    seconds = skeleton.seconds_per_level
    if not (isinstance(seconds, (tuple, list)) and all(is_time(value) for value in seconds)):
        raise ValueError(f"seconds_per_level is {excerpt(seconds)}; it must hold numbers of at least 0")
    if not isinstance(skeleton.stopped_because, str):
        raise ValueError(f"stopped_because is {excerpt(skeleton.stopped_because)}; it must be a sentence")
    if not isinstance(skeleton.facts, Mapping):
        raise ValueError(f"facts is {excerpt(skeleton.facts)}; it must be a mapping")
    if skeleton.pmax is not None:
        _check_pmax(skeleton.pmax, len(skeleton.names))


def check_stored(skeleton: Any) -> None:
    """Check a skeleton that was read from a file, whose facts no problem can be compared with."""
    check_skeleton(skeleton)
    for name in ("tests_per_level", "edges_per_level", "seconds_per_level"):
        count = len(getattr(skeleton, name))
        if count != skeleton.levels_run:
            raise ValueError(f"{name} is of {count} level(s), and levels_run is {skeleton.levels_run}")
    if skeleton.edges_per_level and skeleton.edges_per_level[-1] != skeleton.n_edges:
        raise ValueError(f"its last level left {skeleton.edges_per_level[-1]} edges, and it has {skeleton.n_edges}")
    for name in ("problem", "params"):
        if not isinstance(skeleton.facts.get(name, {}), Mapping):
            raise ValueError(f"facts[{name!r}] is {excerpt(skeleton.facts[name])}; it must be a mapping")


def check_directions(graph: Any) -> None:
    """Raise ValueError if the directions are not of the skeleton's edges, or conflicts and triples are none."""
    p, adjacency = len(graph.names), graph.skeleton.adjacency
    for name in ("directed", "undirected"):
        _check_matrix(name, getattr(graph, name), p)
    for rows in mapped_arrays.row_pieces(adjacency):
        forward, backward = graph.directed[rows], graph.directed[:, rows].T
        undirected = graph.undirected[rows]
        if (undirected != graph.undirected[:, rows].T).any():
            raise ValueError("undirected is not symmetric")
        if ((forward & backward) | ((forward | backward) & undirected)).any():
            raise ValueError("an edge has two kinds or two directions")
        if ((forward | backward | undirected) != adjacency[rows]).any():
            raise ValueError("directed and undirected have other edges than the skeleton")
    for name, width in (("conflicts", 2), ("ambiguous", 3)):
        places = getattr(graph, name)
        if places.dtype.kind not in "iu" or places.ndim != 2 or places.shape[1] != width:
            raise ValueError(f"{name} is {places.dtype} {places.shape}; it must be whole numbers of shape (k, {width})")
        if (places.size and not 0 <= places.min() <= places.max() < p) or (places[:, 0] >= places[:, -1]).any():
            raise ValueError(f"{name} has indexes that are in disorder or no variable, of {p}")
    if not graph.undirected[tuple(graph.conflicts.T)].all():
        raise ValueError("conflicts has a pair that is no undirected edge")
    if graph.conflict_kind not in ("conflict", "bidirected"):
        raise ValueError(f"conflict_kind is {excerpt(graph.conflict_kind)}; it must be 'conflict' or 'bidirected'")


def _check_matrix(name: str, matrix: Any, p: int, kind: type = np.bool_) -> None:
    if not isinstance(matrix, np.ndarray) or matrix.dtype != kind or matrix.shape != (p, p):
        got = f"{matrix.dtype} {matrix.shape}" if isinstance(matrix, np.ndarray) else type(matrix).__name__
        raise ValueError(f"its {name} is {got}; it must be an array of {np.dtype(kind)} of shape {(p, p)}")


def _check_adjacency(adjacency: Any, p: int) -> None:
    _check_matrix("adjacency", adjacency, p)
    if np.diagonal(adjacency).any():
        raise ValueError(f"its adjacency has {np.diagonal(adjacency).sum()} variable(s) adjacent to themselves")
    for rows in mapped_arrays.row_pieces(adjacency):
        if (differs := adjacency[rows] != adjacency[:, rows].T).any():
            i, j = np.argwhere(differs)[0] + (rows.start, 0)
            raise ValueError(f"its adjacency is not symmetric: [{i}, {j}] is {adjacency[i, j]}, [{j}, {i}] is not")


def _check_pmax(pmax: Any, p: int) -> None:
    _check_matrix("pmax", pmax, p, np.float64)
    for rows in mapped_arrays.row_pieces(pmax):
        if ((pmax[rows] < 0) | (pmax[rows] > 1)).any():
            raise ValueError("its pmax has a number that is no p-value, from 0 to 1")


def _check_sets(sepsets: Any, adjacency: np.ndarray) -> None:
    p = len(adjacency)
    for name, of_indexes in (("pairs", 2), ("members", 1)):
        array = getattr(sepsets, name)
        if not (isinstance(array, np.ndarray) and array.dtype == np.int32 and array.ndim == of_indexes):
            raise ValueError(f"sepsets.{name} must be an array of int32 in {of_indexes} dimension(s)")
    pairs, offsets, members = sepsets.pairs, sepsets.offsets, sepsets.members
    if offsets.dtype != np.int64 or offsets.ndim != 1:
        raise ValueError(f"the offsets of sepsets are {offsets.dtype} {offsets.shape}; they must be a list of int64")
    if pairs.shape[1] != 2 or len(offsets) != len(pairs) + 1:
        raise ValueError(f"sepsets has pairs of shape {pairs.shape} and {len(offsets)} offsets; one more than pairs")
    if offsets[0] != 0 or offsets[-1] != len(members):
        raise ValueError(f"the offsets of sepsets go from {offsets[0]} to {offsets[-1]} of {len(members)} members")
    last = -1
    for part in mapped_arrays.pieces(len(pairs), PAIRS_AT_ONCE):
        i, j = pairs[part].T.astype(np.int64)
        bounds = offsets[part.start : min(part.stop, len(pairs)) + 1]
        sizes = np.diff(bounds)
        last = _check_pairs(pairs[part], adjacency, last, "has a separating set")
        _refuse(bounds[:-1] > bounds[1:], pairs[part], "has a separating set of negative size")
        own = members[bounds[0] : bounds[-1]]
        of = np.repeat(np.arange(len(i)), sizes)
        among = f"is no variable, of {p}; it is in the separating set of a pair"
        _refuse((own < 0) | (own >= p), own, among)
        _refuse((own == i[of]) | (own == j[of]), pairs[part][of], "has itself in its separating set")
        _refuse((np.diff(own) <= 0) & (np.diff(of) == 0), pairs[part][of[1:]], "has a separating set in disorder")


def _check_gaps(sepsets: Any, adjacency: np.ndarray) -> None:
    gaps, p = sepsets.gaps, len(adjacency)
    if gaps.dtype != np.int32 or gaps.ndim != 2 or gaps.shape[1] != 2:
        raise ValueError(f"the gaps of sepsets are {gaps.dtype} {gaps.shape}; they must be int32 of shape (k, 2)")
    _check_pairs(gaps, adjacency, -1, "is forbidden")
    keys = gaps.astype(np.int64) @ (p, 1)
    for part in mapped_arrays.pieces(len(sepsets.pairs) if len(gaps) else 0, PAIRS_AT_ONCE):
        tested = sepsets.pairs[part].astype(np.int64) @ (p, 1)
        _refuse(np.isin(tested, keys), sepsets.pairs[part], "is forbidden, and has a separating set")


def _check_pairs(pairs: np.ndarray, adjacency: np.ndarray, last: int, what: str) -> int:
    """Check that pairs are no edges, and ascend from i * p + j > `last` on; returns the last number."""
    i, j = pairs.T.astype(np.int64)
    p = len(adjacency)
    _refuse((i < 0) | (i >= j) | (j >= p), pairs, f"is no pair i < j of {p} variables")
    _refuse(adjacency[i, j], pairs, f"is an edge, and {what}")
    keys = i * p + j
    _refuse(np.diff(keys, prepend=last) <= 0, pairs, "is not after the pair before it")
    return int(keys[-1]) if len(keys) else last


def _refuse(wrong: np.ndarray, things: np.ndarray, why: str) -> None:
    if wrong.any():
        raise ValueError(f"separating sets: {things[int(np.argmax(wrong))].tolist()} {why}")


def _check_counts(name: str, counts: Any) -> None:
    if not (isinstance(counts, (tuple, list)) and all(type(count) is int and count >= 0 for count in counts)):
        raise ValueError(f"{name} is {excerpt(counts)}; it must be whole numbers of at least 0")


def is_time(value: Any) -> bool:
    return isinstance(value, (int, float)) and 0 <= value < math.inf


def excerpt(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else text[:100] + " ..."
