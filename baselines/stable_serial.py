"""PC-stable on one core, which replaces pcalg's Stable.fast, the serial reference of cuPC's Table 2."""

from gpupc_impl.core.registry import Run, method, needs_package
from gpupc_impl.core.result import Skeleton
from gpupc_impl.gaussian.problem import GaussianProblem


@method(
    "stable-serial",
    family="gaussian",
    backends=("cpu",),
    source="cuPC, Algorithm 1; as pcalg's skeleton(method='stable.fast')",
    summary="PC-stable edge by edge on one core (numba)",
    reference=True,
    unavailable=needs_package("numba", "numba"),
)
def stable_serial(problem: GaussianProblem, run: Run) -> Skeleton:
    from baselines._stable import stable_skeleton  # Loading the module imports numba.

    return stable_skeleton(problem, run, threads=1)
