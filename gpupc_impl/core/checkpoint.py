"""Saves the state of a search between two levels to a file, from which a killed search resumes."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np

from gpupc_impl.core.files import read_sealed, write_sealed, write_whole
from gpupc_impl.core.fixed_pairs import write
from gpupc_impl.core.pc_stable import LevelOutcome
from gpupc_impl.core.problem import InvalidProblem, Problem
from gpupc_impl.core.result import NO_PAIRS

COUNTS = ("edges", "max_degree", "tests", "undefined", "pseudo_inverses")


@dataclasses.dataclass(frozen=True)
class SearchState:
    """The state of a search: the (p, p) bool `adjacency`, the outcome of each finished level, whose seconds are None
    unless the resumed search reports them, and `pmax`, the (p, p) float64 largest p-values, or None."""

    adjacency: np.ndarray
    outcomes: list[LevelOutcome]
    pmax: np.ndarray | None


class Checkpoint:
    """A file for the state of one problem's search, which resumes only under the same rule for separating sets."""

    def __init__(self, path: str, problem: Problem, separating_sets: str, pmax: bool):
        make_folder("checkpoint", path)
        self.path, self.problem, self.separating_sets, self.pmax = Path(path), problem, separating_sets, pmax

    def save(self, state: SearchState) -> None:
        levels = [{name: getattr(outcome, name) for name in (*COUNTS, "seconds")} for outcome in state.outcomes]
        arrays: dict[str, Any] = {} if state.pmax is None else {"pmax": state.pmax}
        for level, outcome in enumerate(state.outcomes):
            if level or outcome.pairs is not None:
                arrays[f"pairs_{level}"], arrays[f"sets_{level}"] = outcome.pairs, outcome.sets
        description = {
            "fingerprint": self.problem.fingerprint,
            "separating_sets": self.separating_sets,
            "levels": levels,
        }
        arrays["adjacency"] = np.packbits(state.adjacency, axis=1)
        with write_whole(self.path) as file:
            write_sealed(file, description, arrays)

    def load(self) -> SearchState | None:
        """Read the state; None if there is no file, InvalidProblem if it is damaged or of another search."""
        if not self.path.exists():
            return None
        try:
            description, arrays = read_sealed(self.path)
            self._refuse_another(description, arrays)
            p, packed = self.problem.n_variables, arrays["adjacency"]
            if packed.shape != (p, (p + 7) // 8) or packed.dtype != np.uint8:
                raise ValueError(f"adjacency is {packed.dtype} {packed.shape} for {p} variables")
            adjacency = np.empty((p, p), bool)
            for i in range(p):
                adjacency[i] = np.unpackbits(packed[i], count=p)
            outcomes = [
                LevelOutcome(
                    **counts,
                    pairs=arrays[f"pairs_{level}"] if level or "pairs_0" in arrays else None,
                    sets=arrays[f"sets_{level}"] if level or "pairs_0" in arrays else None,
                )
                for level, counts in enumerate(description["levels"])
            ]
            state = SearchState(adjacency, outcomes, arrays["pmax"] if self.pmax else None)
            _check_types(state)
            _check_graph(state, self.problem)
            return state
        except (InvalidProblem, MemoryError):
            raise
        except Exception as error:  # A damaged file can raise almost any exception.
            raise InvalidProblem(f"checkpoint {str(self.path)!r} cannot be read: {error}; delete it") from error

    def _refuse_another(self, description: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        refusal, written = None, description["separating_sets"]
        if description["fingerprint"] != self.problem.fingerprint:
            refusal = "belongs to another problem (other data, alpha, max_level or parameters of the test)"
        elif written != self.separating_sets:
            refusal = f"was written with separating_sets={written!r}, and {self.separating_sets!r} is asked for now"
        elif self.pmax and "pmax" not in arrays:
            refusal = "was written without pmax, which is asked for now"
        if refusal:
            raise InvalidProblem(
                f"checkpoint {str(self.path)!r} {refusal}; give another path, or delete it to start anew"
            )

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


def _check_types(state: SearchState) -> None:
    """Check types, shapes and ranges, on which kernels rely."""
    p = len(state.adjacency)
    for level, outcome in enumerate(state.outcomes):
        if any(type(count) is not int or count < 0 for count in (getattr(outcome, name) for name in COUNTS)):
            raise ValueError(f"level {level} has counts that are no whole numbers of at least 0")
        seconds = outcome.seconds
        if seconds is not None and not (type(seconds) is float and 0 <= seconds < math.inf):
            raise ValueError(f"level {level} has seconds that are no time")
        if outcome.pairs is not None:
            arrays: dict[str, np.ndarray] = {name: getattr(outcome, name) for name in ("pairs", "sets")}
            for (name, array), width in zip(arrays.items(), (2, level), strict=True):
                fits = array.ndim == 2 and array.shape[1] == width and array.dtype.kind in "iu"
                if not fits or (array.size and not 0 <= array.min() <= array.max() < p):
                    raise ValueError(f"the {name} of level {level} are {array.dtype} {array.shape} of {p} variables")
            pairs, sets = map(len, arrays.values())
            if pairs != sets:
                raise ValueError(f"level {level} has {pairs} pairs and {sets} sets")
    if not state.outcomes:
        raise ValueError("it has no level")
    if state.pmax is not None and (state.pmax.shape != (p, p) or state.pmax.dtype != np.float64):
        raise ValueError(f"pmax is {state.pmax.dtype} {state.pmax.shape} for {p} variables")


def _check_graph(state: SearchState, problem: Problem) -> None:
    graph, outcomes, fixed = state.adjacency, state.outcomes, problem.fixed
    degrees = np.count_nonzero(graph, axis=1)
    if any((graph[:, i] != graph[i]).any() or graph[i, i] for i in range(len(graph))):
        raise ValueError("its graph is not symmetric, or has an edge from a variable to itself")
    if outcomes[-1].edges * 2 != degrees.sum() or outcomes[-1].max_degree != problem.most_tested_degree(degrees):
        raise ValueError("its last level counts other edges or degrees than its graph has")
    if fixed is not None and len(fixed.broken_by(graph)):
        raise ValueError("its graph is against the background knowledge")
    recorded = [(level, each.pairs, each.sets) for level, each in enumerate(outcomes) if each.pairs is not None]
    try:
        for level, pairs, sets in reversed(recorded):
            before = outcomes[level - 1].edges if level else problem.tests_of_level_zero + len(_required(problem))
            i, j = pairs.T
            if before - outcomes[level].edges != len(pairs) or graph[i, j].any() or (i >= j).any():
                raise ValueError(f"level {level} does not remove what it counts")
            write(graph, pairs, True)
            if len(np.unique(pairs, axis=0)) != len(pairs) or (np.diff(sets, axis=1) <= 0).any():
                raise ValueError(f"level {level} has a pair twice, or a set that is not ascending")
            near = [
                graph[end[:, None], sets].all(axis=1) & (sets != other[:, None]).all(axis=1)
                for end, other in ((i, j), (j, i))
            ]
            if not (near[0] | near[1]).all():
                raise ValueError(f"level {level} has a set that is not among the neighbours of an end")
    finally:
        for _, pairs, _ in recorded:
            write(graph, pairs, False)


def _required(problem: Problem) -> np.ndarray:
    return NO_PAIRS if problem.fixed is None else problem.fixed.required


def make_folder(parameter: str, path: str) -> None:
    """Make the folder of a file that a search will write, before any work."""
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidProblem(
            f"{parameter} {path!r} cannot be written: no folder for it can be made: {error}"
        ) from error
