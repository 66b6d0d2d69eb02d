"""Checks that a method returned a skeleton of its problem. Verification checks whether the skeleton is the right
one."""

import re
from collections.abc import Mapping
from typing import Any

from gpupc_impl.core.invariants import check_skeleton, excerpt, is_time
from gpupc_impl.core.problem import Problem
from gpupc_impl.core.result import SeparatingSets, Skeleton


class InvalidAnswer(ValueError):
    """A method returned no valid skeleton of its problem; the message says why."""


def check_answer(answer: Any, problem: Problem) -> Skeleton:
    """Return the answer after checks that it is a skeleton of this problem.

    Raises:
        InvalidAnswer: the answer has another type, its names differ, `check_skeleton` finds a fault, or the facts are
            of another problem.
    """
    if not isinstance(answer, Skeleton):
        raise InvalidAnswer(f"it returned a {type(answer).__name__}, not a Skeleton")
    if answer.names != problem.names:
        raise InvalidAnswer("the names of its skeleton are not those of the problem's variables, in their order")
    if not isinstance(answer.sepsets, SeparatingSets):
        raise InvalidAnswer(f"sepsets is a {type(answer.sepsets).__name__}, not SeparatingSets")
    try:
        check_skeleton(answer)
    except ValueError as error:
        raise InvalidAnswer(str(error)) from error
    _check_facts(answer.facts, problem)
    return answer


def _check_facts(facts: Any, problem: Problem) -> None:
    """Check the facts about the problem. A reference that supports only one of the problem's conventions may state
    another one."""
    if not is_time(facts.get("translation_s", 0.0)):
        raise InvalidAnswer(f"facts['translation_s'] is {excerpt(facts['translation_s'])}; it must be seconds")
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
        raise InvalidAnswer(f"facts['problem'] is {excerpt(given)}; it must be the problem's facts()")
