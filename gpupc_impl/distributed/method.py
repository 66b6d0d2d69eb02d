"""Method `distributed`: one search on many GPUs or machines (docs/distributed.md)."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpupc_impl.backends import BackendUnavailable
from gpupc_impl.core.pc_stable import pc_stable
from gpupc_impl.core.registry import InvalidParameter, Parameter, Run, get_method, method, needs_package
from gpupc_impl.core.result import Skeleton
from gpupc_impl.distributed import cluster
from gpupc_impl.distributed.edge_shards import WideSkeleton
from gpupc_impl.distributed.search import DistributedSearch
from gpupc_impl.distributed.team import Team, open_threads
from gpupc_impl.gaussian.problem import GaussianProblem


class ClientParameter(Parameter):
    """A parameter that takes a Dask client, the address of a scheduler, or None."""

    def parse(self, name: str, value: Any) -> Any:
        if not (value is None or isinstance(value, str) or hasattr(value, "scheduler_info")):
            raise InvalidParameter(
                f"parameter {name} is {value!r}; it must be a distributed.Client or the address of a scheduler"
            )
        return value or ""


class FolderParameter(Parameter):
    """A parameter that takes the path of a folder, or None for no folder."""

    def parse(self, name: str, value: Any) -> Any:
        return super().parse(name, "" if value is None else str(value) if isinstance(value, Path) else value)


@method(
    "distributed",
    family="gaussian",
    source="ours: docs/distributed.md",
    summary="on the GPUs of a machine or on a Dask cluster: correlations from the samples, no p x p matrix anywhere",
    params={
        "client": ClientParameter("", "Dask client, or a scheduler's address; none: workers are threads"),
        "workers": Parameter(
            0,
            "GPUs of this machine, or workers on its CPU cores; 0: all GPUs (one for small problems), or one worker",
            minimum=0,
            maximum=1024,
        ),
        "workers_on": Parameter(
            "auto",
            "where workers of a cluster run kernels; auto: on `backend`, as the client does",
            choices=("auto", "cuda", "host"),
        ),
        "folder": FolderParameter(
            "", "folder in which the search keeps what is done, for a search called again; empty: none is kept"
        ),
    },
    cluster=True,
    problem_defaults={"correlations": "device"},  # workers compute correlations from the samples
)
def distributed(problem: GaussianProblem, run: Run) -> Skeleton:
    params, backend, stack = run.params, run.backend, contextlib.ExitStack()
    assert backend is not None
    client, workers, workers_on = params["client"], params["workers"], params["workers_on"]
    if client and workers:
        raise InvalidParameter(
            f"parameter workers is {workers}, and a client is given, whose cluster has its own workers: leave one out"
        )
    if not client and workers_on not in ("auto", backend.name):
        raise InvalidParameter(
            f"parameter workers_on is {workers_on!r}, and no client is given: workers of this process are on "
            f"{backend.name!r}; choose them by backend={workers_on!r}"
        )
    if client and (reason := needs_package("distributed", "distributed")()):
        raise BackendUnavailable(f"workers of a cluster cannot be reached: {reason}")
    if problem.correlations != "device" and not (client or workers or params["folder"] or run.pmax):
        in_blocks = get_method("out-of-core-block")  # The matrix is in this process already.
        return in_blocks.solve(problem, dataclasses.replace(run, params=in_blocks.parse_params({})))
    with stack:
        open_team: Callable[[], Team]
        if not client:
            open_team = functools.partial(open_threads, problem, run, workers)
        else:
            if isinstance(client, str):
                client = stack.enter_context(cluster.connected(client))
            on, limit = backend.name if workers_on == "auto" else workers_on, backend.device_memory_limit
            open_team = functools.partial(cluster.ClusterTeam, client, problem, on, limit)
        search = stack.enter_context(contextlib.closing(DistributedSearch(problem, run, open_team)))
        params = {**params, "client": "given" if client else ""}  # an address is not recorded
        facts = {**run.facts, "params": params, "distributed": search.report}
        found = pc_stable(problem, search, facts=facts, progress=run.progress)
        return WideSkeleton.of(found) if found.levels_run else found
