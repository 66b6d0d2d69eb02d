"""The state of a search between two levels, in a file from which a killed search resumes."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from gpupc_impl.core.files import open_arrays, write_whole
from gpupc_impl.core.pc_stable import LevelOutcome
from gpupc_impl.core.problem import InvalidProblem

COUNTS = ("edges", "max_degree", "tests", "undefined", "pseudo_inverses")


@dataclasses.dataclass(frozen=True)
class State:
    """The state of a search after some levels.

    Attributes:
        adjacency: (p, p) bool.
        outcomes: of each level so far, with its seconds where the search that goes on is to tell them.
        pmax: (p, p) float64, or None when it is not recorded.
    """

    adjacency: np.ndarray
    outcomes: list[LevelOutcome]
    pmax: np.ndarray | None


class Checkpoint:
    """A file that holds the state of one problem's search; its folder is made.

    Args:
        fingerprint: of the problem.
        separating_sets: the rule by which sets are chosen; those of levels done cannot be chosen anew.
        pmax: whether the search records p-values.

    Raises:
        InvalidProblem: its folder cannot be made.
    """

    def __init__(self, path: str, fingerprint: str, separating_sets: str, pmax: bool):
        make_folder("checkpoint", path)
        self.path, self.fingerprint, self.separating_sets, self.pmax = Path(path), fingerprint, separating_sets, pmax

    def save(self, state: State) -> None:
        """Replace the stored state by this one, atomically."""
        levels = [{name: getattr(outcome, name) for name in (*COUNTS, "seconds")} for outcome in state.outcomes]
        arrays: dict[str, Any] = {} if state.pmax is None else {"pmax": state.pmax}
        for level, outcome in enumerate(state.outcomes):
            if level or outcome.pairs is not None:
                arrays[f"pairs_{level}"], arrays[f"sets_{level}"] = outcome.pairs, outcome.sets
        described = {
            "fingerprint": self.fingerprint,
            "separating_sets": self.separating_sets,
            "levels": levels,
            "p": len(state.adjacency),
        }
        with write_whole(self.path) as temporary, open(temporary, "wb") as file:
            np.savez(file, described=json.dumps(described), adjacency=np.packbits(state.adjacency, axis=1), **arrays)

    def load(self) -> State | None:
        """The state to resume from; None when there is no such file.

        Raises:
            InvalidProblem: the file is no checkpoint, or another problem's, or of another kind of search.
        """
        if not self.path.exists():
            return None
        try:
            with open_arrays(self.path) as stored:
                described = json.loads(str(stored["described"]))
                refusal, written = None, described["separating_sets"]
                if described["fingerprint"] != self.fingerprint:
                    refusal = "belongs to another problem (other data, alpha, max_level or parameters of the test)"
                elif written != self.separating_sets:
                    refusal = (
                        f"was written with separating_sets={written!r}, and {self.separating_sets!r} is asked for now"
                    )
                elif self.pmax and "pmax" not in stored:
                    refusal = "was written without pmax, which is asked for now"
                if refusal:
                    raise InvalidProblem(
                        f"checkpoint {str(self.path)!r} {refusal}; give another path, or delete it to start anew"
                    )
                packed, p = stored["adjacency"], described["p"]
                if packed.shape != (p, (p + 7) // 8) or packed.dtype != np.uint8:
                    raise ValueError(f"adjacency is {packed.dtype} {packed.shape} for {p} variables")
                adjacency = np.empty((p, p), bool)
                for i in range(p):
                    adjacency[i] = np.unpackbits(packed[i], count=p)
                outcomes = [
                    LevelOutcome(
                        **counts,
                        pairs=stored[f"pairs_{level}"] if level or "pairs_0" in stored else None,
                        sets=stored[f"sets_{level}"] if level or "pairs_0" in stored else None,
                    )
                    for level, counts in enumerate(described["levels"])
                ]
                state = State(adjacency, outcomes, stored["pmax"] if self.pmax else None)
                _check(state)
                return state
        except (InvalidProblem, MemoryError):
            raise
        except Exception as error:  # a damaged file raises nearly anything
            raise InvalidProblem(f"checkpoint {str(self.path)!r} cannot be read: {error}; delete it") from error

    def remove(self) -> None:
        """Delete the file, because the search has ended."""
        self.path.unlink(missing_ok=True)


def _check(state: State) -> None:
    """Refuse what no search wrote, and what kernels would take as granted.

    Raises:
        ValueError: what does not fit together.
    """
    p = len(state.adjacency)
    for level, outcome in enumerate(state.outcomes):
        if any(type(count) is not int or count < 0 for count in (getattr(outcome, name) for name in COUNTS)):
            raise ValueError(f"level {level} has counts that are none")
        seconds = outcome.seconds
        if seconds is not None and not (type(seconds) is float and 0 <= seconds < math.inf):
            raise ValueError(f"level {level} has seconds that are none")
        if outcome.pairs is not None:
            arrays: dict[str, np.ndarray] = {name: getattr(outcome, name) for name in ("pairs", "sets")}
            for (name, array), width in zip(arrays.items(), (2, level), strict=True):
                fits = array.ndim == 2 and array.shape[1] == width and array.dtype.kind in "iu"
                if not fits or (array.size and not 0 <= array.min() <= array.max() < p):
                    raise ValueError(f"the {name} of level {level} are {array.dtype} {array.shape} of {p} variables")
            pairs, sets = map(len, arrays.values())
            if pairs != sets:
                raise ValueError(f"level {level} has {pairs} pairs and {sets} sets")
    if state.pmax is not None and (state.pmax.shape != (p, p) or state.pmax.dtype != np.float64):
        raise ValueError(f"pmax is {state.pmax.dtype} {state.pmax.shape} for {p} variables")


def make_folder(parameter: str, path: str) -> None:
    """Make the folder of a file that a search will write, before any work is done.

    Raises:
        InvalidProblem: that cannot be done.
    """
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidProblem(
            f"{parameter} {path!r} cannot be written: no folder for it can be made: {error}"
        ) from error
