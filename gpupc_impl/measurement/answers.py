"""Checks that a method returned a skeleton of its problem. Verification checks whether the skeleton is the right
one."""

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from gpupc_impl.core import mapped
from gpupc_impl.core.problem import Problem
from gpupc_impl.core.result import SeparatingSets, Skeleton

_PAIRS_AT_ONCE = 1 << 20
"""The number of pairs that are checked at a time, so that temporary arrays stay small."""


class InvalidAnswer(ValueError):
    """A method returned no valid skeleton of its problem; the message says why."""


def check_answer(answer: Any, problem: Problem) -> Skeleton:
    """Return the answer after checks that it is a skeleton of this problem.

    Raises:
        InvalidAnswer: the answer has another type; the adjacency matrix is not (p, p) bool, symmetric and False on its
            diagonal; names differ; separating sets are out of range, belong to edges, are not sorted or contain their
            own pair; counts or times are negative or no numbers; or the facts are of another problem.
    """
    if not isinstance(answer, Skeleton):
        raise InvalidAnswer(f"it returned a {type(answer).__name__}, not a Skeleton")
    _check_adjacency(answer.adjacency, problem.n_variables)
    if answer.names != problem.names:
        raise InvalidAnswer("the names of its skeleton are not those of the problem's variables, in their order")
    if not isinstance(answer.sepsets, SeparatingSets):
        raise InvalidAnswer(f"sepsets is a {type(answer.sepsets).__name__}, not SeparatingSets")
    _check_sets(answer.sepsets, answer.adjacency)
    for name in ("levels_run", "undefined_tests", "pseudo_inverses"):
        _check_counts(name, (getattr(answer, name),))
    for name in ("tests_per_level", "edges_per_level"):
        _check_counts(name, getattr(answer, name))
    seconds = answer.seconds_per_level
    if not (isinstance(seconds, (tuple, list)) and all(_is_time(value) for value in seconds)):
        raise InvalidAnswer(f"seconds_per_level is {_shown(seconds)}; it must hold numbers of at least 0")
    if not isinstance(answer.stopped_because, str):
        raise InvalidAnswer(f"stopped_because is {_shown(answer.stopped_because)}; it must be a sentence")
    _check_facts(answer.facts, problem)
    return answer


def _check_adjacency(adjacency: Any, p: int) -> None:
    if not isinstance(adjacency, np.ndarray) or adjacency.dtype != np.bool_ or adjacency.shape != (p, p):
        got = f"{adjacency.dtype} {adjacency.shape}" if isinstance(adjacency, np.ndarray) else type(adjacency).__name__
        raise InvalidAnswer(f"its adjacency is {got}; it must be an array of bool of shape {(p, p)}")
    if np.diagonal(adjacency).any():
        raise InvalidAnswer(f"its adjacency has {np.diagonal(adjacency).sum()} variable(s) adjacent to themselves")
    for rows in mapped.row_pieces(adjacency):
        if (differs := adjacency[rows] != adjacency[:, rows].T).any():
            i, j = np.argwhere(differs)[0] + (rows.start, 0)
            raise InvalidAnswer(f"its adjacency is not symmetric: [{i}, {j}] is {adjacency[i, j]}, [{j}, {i}] is not")


def _check_sets(sepsets: SeparatingSets, adjacency: np.ndarray) -> None:
    p = len(adjacency)
    for name, of_indexes in (("pairs", 2), ("members", 1)):
        array = getattr(sepsets, name)
        if not (isinstance(array, np.ndarray) and array.dtype == np.int32 and array.ndim == of_indexes):
            raise InvalidAnswer(f"sepsets.{name} must be an array of int32 in {of_indexes} dimension(s)")
    pairs, offsets, members = sepsets.pairs, sepsets.offsets, sepsets.members
    if pairs.shape[1] != 2 or len(offsets) != len(pairs) + 1:
        raise InvalidAnswer(f"sepsets has pairs of shape {pairs.shape} and {len(offsets)} offsets; one more than pairs")
    if offsets[0] != 0 or offsets[-1] != len(members):
        raise InvalidAnswer(f"the offsets of sepsets go from {offsets[0]} to {offsets[-1]} of {len(members)} members")
    last = -1
    for part in mapped.pieces(len(pairs), _PAIRS_AT_ONCE):
        i, j = pairs[part].T.astype(np.int64)
        sizes = np.diff(offsets[part.start : min(part.stop, len(pairs)) + 1])
        _refuse((i < 0) | (i >= j) | (j >= p), pairs[part], f"is no pair i < j of {p} variables")
        _refuse(adjacency[i, j], pairs[part], "is an edge, and has a separating set")
        keys = i * p + j
        _refuse(np.diff(keys, prepend=last) <= 0, pairs[part], "is not after the pair before it")
        last = int(keys[-1])
        _refuse(sizes < 0, pairs[part], "has a separating set of negative size")
        own = members[offsets[part.start] : offsets[min(part.stop, len(pairs))]]
        of = np.repeat(np.arange(len(i)), sizes)
        among = f"is no variable, of {p}; it is in the separating set of a pair"
        _refuse((own < 0) | (own >= p), own, among)
        _refuse((own == i[of]) | (own == j[of]), pairs[part][of], "has itself in its separating set")
        _refuse((np.diff(own) <= 0) & (np.diff(of) == 0), pairs[part][of[1:]], "has a separating set in disorder")


def _refuse(wrong: np.ndarray, things: np.ndarray, why: str) -> None:
    if wrong.any():
        raise InvalidAnswer(f"separating sets: {things[int(np.argmax(wrong))].tolist()} {why}")


def _check_counts(name: str, counts: Any) -> None:
    if not (isinstance(counts, (tuple, list)) and all(type(count) is int and count >= 0 for count in counts)):
        raise InvalidAnswer(f"{name} is {_shown(counts)}; it must be whole numbers of at least 0")


def _is_time(value: Any) -> bool:
    return isinstance(value, (int, float)) and 0 <= value < math.inf


def _check_facts(facts: Any, problem: Problem) -> None:
    """Check the facts about the problem. A reference that supports only one of the problem's conventions may state
    another one."""
    if not isinstance(facts, Mapping):
        raise InvalidAnswer(f"facts is {_shown(facts)}; it must be a mapping")
    if not _is_time(facts.get("translation_s", 0.0)):
        raise InvalidAnswer(f"facts['translation_s'] is {_shown(facts['translation_s'])}; it must be seconds")
    ours, given = problem.facts(), facts.get("problem") or {}
    merged = ours | dict(given) if isinstance(given, Mapping) else {}
    fits = (
        merged.keys() == ours.keys()
        and (not given or given.keys() | {"fingerprint"} == ours.keys())
        and all(merged[name] == ours[name] for name in ("alpha", "n_variables"))
        and all(type(merged[name]) in (type(ours[name]), int, type(None)) for name in ours)
        and re.fullmatch("[0-9a-f]{64}", str(merged["fingerprint"]))
    )
    if not fits:
        raise InvalidAnswer(f"facts['problem'] is {_shown(given)}; it must be the problem's facts()")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else text[:100] + " ..."
