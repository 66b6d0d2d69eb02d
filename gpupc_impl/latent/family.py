"""RFCI and FCI as measured in experiments: `fci` as a method, whose graphs are verified like those of others."""

from gpupc_impl.core.family import Family
from gpupc_impl.core.registry import Run, method
from gpupc_impl.core.result import Skeleton
from gpupc_impl.core.solve import choose_method, solve
from gpupc_impl.gaussian.retest import Retest
from gpupc_impl.latent.inference import Inference, find_pag
from gpupc_impl.latent.problem import LatentProblem, pag_answer

FAMILY = Family(
    name="latent",
    problem=LatentProblem,
    retest=Retest,
    auto={},
    packages=("gpupc_impl.latent", "baselines", "baselines.peers"),
    call="fci",
)


@method(
    "fci",
    family="latent",
    code=("gpupc_impl.latent.family", "gpupc_impl.gaussian.pair_scan", "gpupc_impl.gaussian.single_tests"),
    source="RFCI (Colombo et al. 2012) and FCI (Spirtes et al. 2000; Zhang 2008), in any order of the variables",
    summary="RFCI and FCI on the skeleton of pair-scan, with batches of tests on a device",
)
def fci(problem: LatentProblem, run: Run) -> Skeleton:
    """Find the PAG, from the correlations in host memory to the marks there."""
    assert run.backend is not None
    gaussian, backend = problem.gaussian, run.backend.name
    skeleton = solve(gaussian, choose_method("auto", backend, gaussian.family), run.backend)
    pag = find_pag(skeleton, gaussian, Inference(problem.algorithm, problem.max_possible_d_sep), backend=backend)
    return pag_answer(problem, run, pag.marks)
