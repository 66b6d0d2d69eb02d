"""The tests of mixed data with the conditional mutual information, by the kernels of the searches: for reports."""

from gpupc_impl.mixed.device import MixedEngine
from gpupc_impl.nonlinear import strength


class Strength(strength.Strength):
    """See `core.family.Strength` and `nonlinear.strength.Strength`; estimates are below zero at times."""

    engine_of = MixedEngine
