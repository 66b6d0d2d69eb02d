"""Our own call `pc`, from samples to a CPDAG on the cores, so that it stands beside other packages' calls."""

from __future__ import annotations

from typing import Any

import numpy as np

from baselines.peers._answer import call_package
from baselines.peers.packages import package_methods, skeleton_only
from gpupc_impl.api import pc as call
from gpupc_impl.backends import backend_class, open_backend
from gpupc_impl.core.orientation import CPDAG
from gpupc_impl.core.registry import Run
from gpupc_impl.core.result import Skeleton


@package_methods("pc", "gpupc, gpupc_impl.pc", lambda: backend_class("host").unavailable())
def pc(problem: Any, run: Run) -> Skeleton:
    options = {name: getattr(problem, name) for name in ("test", "df_rule", "df_convention") if hasattr(problem, name)}
    return call_package(
        problem,
        run,
        lambda samples: call(
            samples, problem.alpha, family=problem.family, backend="host", max_level=problem.max_level, **options
        ),
        _skeleton,
    )


def _skeleton(graph: CPDAG) -> tuple[np.ndarray, list[Any]]:
    """Return the skeleton when the call's prefetched kernels are compiled, so no later call runs beside a compiler."""
    open_backend("host").finish_prefetched()
    return skeleton_only(graph.skeleton.adjacency)
