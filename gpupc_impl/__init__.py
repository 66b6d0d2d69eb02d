"""The PC algorithm for causal structure learning, on a GPU or on the cores of any machine.

>>> from gpupc_impl import methods, skeleton
>>> sorted(methods("gaussian"))[:2]
['baseline-1', 'baseline-2']
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpupc_impl._public import (
        CPDAG,
        PAG,
        AlphaPath,
        BackendUnavailable,
        BackgroundKnowledge,
        Bootstrap,
        DeviceMemoryError,
        DiscreteProblem,
        GaussianProblem,
        IndependenceOracle,
        InvalidParameter,
        InvalidProblem,
        KernelProblem,
        MixedProblem,
        NonlinearProblem,
        Problem,
        RegressionProblem,
        SeparatingSets,
        Skeleton,
        TimeSeriesGraph,
        UnknownMethod,
        alpha_path,
        bootstrap,
        fci,
        methods,
        orient,
        pc,
        pcmci,
        resampled_rows,
        skeleton,
    )

__version__ = "0.2.0rc1"

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
    "fci",
    "methods",
    "orient",
    "pc",
    "pcmci",
    "resampled_rows",
    "skeleton",
]


def __getattr__(name: str) -> object:
    """Import the public names on first use: they need SciPy, which most processes of this project do not."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gpupc_impl import _public

    globals().update({public: getattr(_public, public) for public in __all__})
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
