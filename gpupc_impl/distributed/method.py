"""Method `distributed`: one search on many GPUs or machines (docs/distributed.md)."""

from __future__ import annotations

from gpupc_impl.core.pc_stable import pc_stable
from gpupc_impl.core.registry import Parameter, Run, method
from gpupc_impl.core.result import Skeleton
from gpupc_impl.distributed.cluster import ClientParameter, FolderParameter, missing
from gpupc_impl.distributed.filtered_search import FilteredSearch, filtering_devices
from gpupc_impl.distributed.search import DistributedSearch
from gpupc_impl.gaussian.problem import GaussianProblem


@method(
    "distributed",
    family="gaussian",
    source="ours: docs/distributed.md",
    summary="on a Dask cluster: pairs of row panels computed from the samples, no p x p matrix anywhere",
    params={
        "client": ClientParameter("", "Dask client, or a scheduler's address; none: a new cluster of this machine"),
        "workers": Parameter(
            0,
            "GPUs of this machine, or workers of a new cluster; 0: one for each GPU (one for small problems), or one "
            "on CPU cores",
            minimum=0,
            maximum=1024,
        ),
        "workers_on": Parameter(
            "auto",
            "where workers run kernels; auto: on `backend`, as the client does",
            choices=("auto", "cuda", "host"),
        ),
        "panel": Parameter(0, "variables of a panel, rounded up to 32; 0: chosen by the workers' memory", minimum=0),
        "host_memory_limit": Parameter(0, "bytes of host memory of a worker; 0: its share of what is free", minimum=0),
        "folder": FolderParameter(
            "", "folder of shards, which all machines see and a search called again finds; empty: a temporary one"
        ),
    },
    cluster=True,
    problem_defaults={"correlations": "device"},  # workers compute correlations from the samples
    unavailable=missing,
)
def distributed(problem: GaussianProblem, run: Run) -> Skeleton:
    devices = filtering_devices(problem, run)
    with FilteredSearch(problem, run, devices) if devices else DistributedSearch(problem, run) as search:
        params = {**run.params, "client": "given" if run.params["client"] else ""}  # an address is not recorded
        facts = {**run.facts, "params": params, "distributed": search.report}
        return pc_stable(problem, search, facts=facts, progress=run.progress)
