"""GPU versions of the PC algorithm, on a GPU or on any machine's cores.

>>> from gpupc_impl import methods, skeleton
>>> sorted(methods("gaussian"))[:2]
['baseline-1', 'baseline-2']
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpupc_impl._public import (
        CPDAG,
        AlphaPath,
        BackendUnavailable,
        BackgroundKnowledge,
        Bootstrap,
        DeviceMemoryError,
        DiscreteProblem,
        GaussianProblem,
        InvalidParameter,
        InvalidProblem,
        MixedProblem,
        NonlinearProblem,
        Problem,
        SeparatingSets,
        Skeleton,
        UnknownMethod,
        alpha_path,
        bootstrap,
        methods,
        orient,
        pc,
        resampled_rows,
        skeleton,
    )

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


def __getattr__(name: str) -> object:
    """The public names are imported when one is asked for: they take SciPy, which most processes of ours do without."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gpupc_impl import _public

    globals().update({each: getattr(_public, each) for each in __all__})
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
