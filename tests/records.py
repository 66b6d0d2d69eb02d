"""Records of made-up runs."""

import dataclasses
from typing import Any

from gpupc_impl.measurement.environment import environment
from gpupc_impl.measurement.record import Limits, Peaks, Record, Result, Times

RECORD = Record(
    **{"setting": "s", "method": "m", "family": "gaussian", "reference": False, "canonical": True, "backend": "cpu"},
    **{"params": {}, "separating_sets": "canonical", "dataset": "d", "status": "ok", "why": None, "code": "c" * 64},
    **{"problem": None, "result": None, "limits": Limits(), "peak_bytes": Peaks(process=1000)},
    time_s=Times(1.0, 0.5, [0.3], [[0.3]]),
    environment=environment(1, 1),
)


def record_of(problem: Any, found: Any = None, **changes: Any) -> Record:
    """The record of a skeleton, or of none, of a problem."""
    if found is not None:
        counts = list(found.edges_per_level), list(found.tests_per_level)
        digests = found.sha256, found.sepsets.sha256
        result = Result(found.n_edges, found.levels_run, found.stopped_because, *counts, 0, 0, *digests)
        changes = {"result": result, **changes}
    return dataclasses.replace(RECORD, problem=problem.facts(), **changes)
