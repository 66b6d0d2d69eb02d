"""Methods that only tests register, through GPUPC_PLUGINS: some err, one takes its time, others harm what is around."""

import contextlib
import dataclasses
import os
import subprocess
import time
from pathlib import Path

import numpy as np

from baselines.references import stable
from gpupc_impl.core.registry import method
from gpupc_impl.core.result import SeparatingSets

FACTS = {"family": "gaussian", "backends": ("cpu",), "source": "a test"}


@method("planted", summary="stable-serial with one edge too many, the first that goes at level 0", **FACTS)
def planted(problem, run):
    found = stable(problem, run)
    removed = ~found.adjacency & ~np.eye(problem.n_variables, dtype=bool)
    removed[found.sepsets.pairs[:, 0], found.sepsets.pairs[:, 1]] = False
    i, j = np.argwhere(np.triu(removed))[0]
    adjacency = found.adjacency.copy()
    adjacency[i, j] = adjacency[j, i] = True
    sets = SeparatingSets(adjacency, found.sepsets.pairs, found.sepsets.offsets, found.sepsets.members)
    edges = tuple(edges + 1 for edges in found.edges_per_level)
    return dataclasses.replace(found, adjacency=adjacency, sepsets=sets, edges_per_level=edges)


@method("raises", summary="a method that has no answer", **FACTS)
def raises(problem, run):
    raise RuntimeError("nothing works")


@method("turned", summary="stable-serial that takes variables in reverse order, so it finds other sets first", **FACTS)
def turned(problem, run):
    correlation, last = problem.correlation[::-1, ::-1], problem.n_variables - 1
    found = stable(dataclasses.replace(problem, correlation=np.ascontiguousarray(correlation)), run)
    sets, adjacency = found.sepsets, found.adjacency[::-1, ::-1].copy()
    sizes, levels = np.diff(sets.offsets), []
    for size in range(1, sizes.max() + 1):
        rows = np.flatnonzero(sizes == size)
        members = sets.members[sets.offsets[rows][:, None] + np.arange(size)]
        levels.append((last - sets.pairs[rows][:, ::-1], np.sort(last - members)))
    return dataclasses.replace(found, adjacency=adjacency, sepsets=SeparatingSets.from_levels(adjacency, levels))


@method("slow", summary="stable-serial after a nap", **FACTS)
def slow(problem, run):
    time.sleep(0.5)
    return stable(problem, run)


@method("fills", summary="stable-serial that writes to FILL_DISK until nothing more fits, where that is set", **FACTS)
def fills(problem, run):
    if path := os.environ.get("FILL_DISK"):
        with contextlib.suppress(OSError), open(path, "ab", buffering=0) as file:
            while True:
                file.write(bytes(1 << 12))
    return stable(problem, run)


@method("ends_jobs", summary="stable-serial that cancels the Slurm jobs it runs in, as many as ENDS_JOBS says", **FACTS)
def ends_jobs(problem, run):
    path, _, times = os.environ.get("ENDS_JOBS", os.devnull + ":0").rpartition(":")
    ended = Path(path).read_text() if Path(path).is_file() else ""
    if len(ended.split()) < int(times):
        Path(path).write_text(f"{ended}{os.environ['SLURM_JOB_ID']}\n")
        subprocess.run(["scancel", os.environ["SLURM_JOB_ID"]], check=True)
        time.sleep(600)
    return stable(problem, run)
