"""The PC algorithm for causal structure learning, on a GPU or on the cores of any machine.

>>> from gpupc_impl import methods, skeleton
>>> "pair-scan" in methods("gaussian")
True
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import gpupc_impl.examples as examples
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

__version__ = "0.3.6"

__all__ = [
    "CPDAG",
    "PAG",
    "AlphaPath",
    "BackendUnavailable",
    "BackgroundKnowledge",
    "Bootstrap",
    "DeviceMemoryError",
    "DiscreteProblem",
    "GaussianProblem",
    "IndependenceOracle",
    "InvalidParameter",
    "InvalidProblem",
    "KernelProblem",
    "MixedProblem",
    "NonlinearProblem",
    "Problem",
    "RegressionProblem",
    "SeparatingSets",
    "Skeleton",
    "TimeSeriesGraph",
    "UnknownMethod",
    "alpha_path",
    "bootstrap",
    "examples",
    "fci",
    "methods",
    "orient",
    "pc",
    "pcmci",
    "resampled_rows",
    "skeleton",
]

# The modules of the public names.
_HOMES = {
    "api": "fci pc skeleton",
    "backends": "BackendUnavailable DeviceMemoryError",
    "core.knowledge": "BackgroundKnowledge",
    "core.orientation": "CPDAG orient",
    "core.pag": "PAG",
    "core.problem": "InvalidProblem Problem",
    "core.registry": "InvalidParameter UnknownMethod methods",
    "core.result": "SeparatingSets Skeleton",
    **{
        f"{family.lower()}.problem": f"{family}Problem"
        for family in ["Discrete", "Gaussian", "Kernel", "Mixed", "Nonlinear", "Regression"]
    },
    "latent.oracle": "IndependenceOracle",
    "studies.alpha_path": "AlphaPath alpha_path",
    "studies.bootstrap": "Bootstrap bootstrap resampled_rows",
    "time_series.result": "TimeSeriesGraph",
    "time_series.search": "pcmci",
}


def __getattr__(name: str) -> object:
    """Import a public name on first use: most processes need few of them, and all together take as long as a search."""
    if name == "examples":
        return importlib.import_module(f"{__name__}.examples")
    home = next((module for module, names in _HOMES.items() if name in names.split()), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
