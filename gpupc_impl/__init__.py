"""GPU versions of the PC algorithm, on a GPU or on any machine's cores.

>>> from gpupc_impl import methods, skeleton
>>> sorted(methods("gaussian"))[:2]
['baseline-1', 'baseline-2']
"""

from gpupc_impl.api import pc, skeleton
from gpupc_impl.backends import BackendUnavailable, DeviceMemoryError
from gpupc_impl.core.knowledge import BackgroundKnowledge
from gpupc_impl.core.orientation import CPDAG, orient
from gpupc_impl.core.problem import InvalidProblem, Problem
from gpupc_impl.core.registry import InvalidParameter, UnknownMethod, methods
from gpupc_impl.core.result import SeparatingSets, Skeleton
from gpupc_impl.discrete.problem import DiscreteProblem
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.mixed.problem import MixedProblem
from gpupc_impl.nonlinear.problem import NonlinearProblem
from gpupc_impl.studies.alpha_path import AlphaPath, alpha_path
from gpupc_impl.studies.bootstrap import Bootstrap, bootstrap, resampled_rows

__version__ = "0.1.0"

__all__ = [
    "CPDAG",
    "AlphaPath",
    "BackendUnavailable",
    "BackgroundKnowledge",
    "Bootstrap",
    "DeviceMemoryError",
    "DiscreteProblem",
    "GaussianProblem",
    "InvalidParameter",
    "InvalidProblem",
    "MixedProblem",
    "NonlinearProblem",
    "Problem",
    "SeparatingSets",
    "Skeleton",
    "UnknownMethod",
    "alpha_path",
    "bootstrap",
    "methods",
    "orient",
    "pc",
    "resampled_rows",
    "skeleton",
]
