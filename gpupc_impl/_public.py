"""The public names, which `gpupc_impl` imports on first use."""

# ruff: noqa: F401

from gpupc_impl.api import fci, pc, skeleton
from gpupc_impl.backends import BackendUnavailable, DeviceMemoryError
from gpupc_impl.core.knowledge import BackgroundKnowledge
from gpupc_impl.core.orientation import CPDAG, orient
from gpupc_impl.core.pag import PAG
from gpupc_impl.core.problem import InvalidProblem, Problem
from gpupc_impl.core.registry import InvalidParameter, UnknownMethod, methods
from gpupc_impl.core.result import SeparatingSets, Skeleton
from gpupc_impl.discrete.problem import DiscreteProblem
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.kernel.problem import KernelProblem
from gpupc_impl.latent.oracle import IndependenceOracle
from gpupc_impl.mixed.problem import MixedProblem
from gpupc_impl.nonlinear.problem import NonlinearProblem
from gpupc_impl.regression.problem import RegressionProblem
from gpupc_impl.studies.alpha_path import AlphaPath, alpha_path
from gpupc_impl.studies.bootstrap import Bootstrap, bootstrap, resampled_rows
from gpupc_impl.time_series.result import TimeSeriesGraph
from gpupc_impl.time_series.search import pcmci
