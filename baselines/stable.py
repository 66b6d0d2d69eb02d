"""PC-stable with Fisher's z on one core and on several.

The serial reference replaces pcalg's Stable.fast, the serial reference of cuPC's Table 2. The parallel one replaces
Parallel-PC (cuPC, reference [17]).
"""

from baselines._numba_methods import PARALLEL, SERIAL, threads
from gpupc_impl.core.registry import Run, method
from gpupc_impl.core.result import Skeleton
from gpupc_impl.gaussian.problem import GaussianProblem


@method(
    "stable-serial",
    family="gaussian",
    source="cuPC, Algorithm 1; as pcalg's skeleton(method='stable.fast')",
    summary="PC-stable edge by edge on one core (numba)",
    **SERIAL,
)
@method(
    "stable-parallel",
    family="gaussian",
    source="cuPC, Algorithm 1, with the edges of a level shared among threads; as R package ParallelPC",
    summary="PC-stable with a level's edges spread over the cores (numba)",
    **PARALLEL,
)
def stable(problem: GaussianProblem, run: Run) -> Skeleton:
    from baselines._fisher_z import stable_skeleton  # imports numba

    return stable_skeleton(problem, run, threads(run.params))
