"""Method `distributed`: one search on many GPUs or machines (docs/distributed.md)."""

from __future__ import annotations

from gpupc_impl.core.pc_stable import pc_stable
from gpupc_impl.core.registry import Parameter, Run, method
from gpupc_impl.core.result import Skeleton
from gpupc_impl.distributed._cluster import ClientParameter, FolderParameter, missing
from gpupc_impl.distributed._search import DistributedSearch
from gpupc_impl.gaussian.problem import GaussianProblem


@method(
    "distributed",
    family="gaussian",
    source="ours: docs/distributed.md",
    summary="on a Dask cluster: pairs of row panels made of the samples, no p x p matrix anywhere",
    params={
        "client": ClientParameter("", "Dask client, or a scheduler's address; none: a cluster of this machine"),
        "workers": Parameter(
            0, "workers of the cluster of this machine; 0: one a GPU, or one", minimum=0, maximum=1024
        ),
        "workers_on": Parameter(
            "auto",
            "where the workers' kernels run; auto: as `backend`, which may differ from the client's machine",
            choices=("auto", "cuda", "host"),
        ),
        "panel": Parameter(0, "variables a panel, rounded up to 32; 0: by the workers' memory", minimum=0),
        "host_memory_limit": Parameter(0, "bytes of host memory a worker; 0: its share of what is free", minimum=0),
        "folder": FolderParameter(
            "", "where shards go, seen by all; a search called again finds them. Empty: a temporary one"
        ),
    },
    cluster=True,
    problem_defaults={"correlations": "device"},  # workers make them, of the samples
    unavailable=missing,
)
def distributed(problem: GaussianProblem, run: Run) -> Skeleton:
    with DistributedSearch(problem, run) as search:
        params = {**run.params, "client": "given" if run.params["client"] else ""}  # no address is recorded
        facts = {**run.facts, "params": params, "distributed": search.report}
        return pc_stable(problem, search, facts=facts, progress=run.progress)
