"""RFCI and FCI as measured in experiments."""

from gpupc_impl.core.family import Family
from gpupc_impl.gaussian.retest import Retest
from gpupc_impl.latent.problem import LatentProblem

FAMILY = Family(
    name="latent",
    problem=LatentProblem,
    retest=Retest,
    auto={},
    packages=("gpupc_impl.latent", "baselines", "baselines.peers"),
    call="fci",
)
