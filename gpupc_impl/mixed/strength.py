"""Conditional mutual information of mixed data, estimated for reports by the kernels of the searches."""

from gpupc_impl.mixed.device import MixedCmiEstimator
from gpupc_impl.nonlinear import strength


class Strength(strength.Strength):
    """See `core.family.Strength` and `nonlinear.strength.Strength`; estimates can be negative."""

    estimator_of = MixedCmiEstimator
