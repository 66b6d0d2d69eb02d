"""Searches by pair-scan with other launches than its own (`scan_state.LAUNCH`)."""

from typing import Any

import pytest

from gpupc_impl.core import solve as core
from gpupc_impl.core.result import Skeleton
from gpupc_impl.gaussian.scan_state import LAUNCH


def solve(problem: Any, method: Any, backend: Any, params: dict[str, Any] | None = None, **options: Any) -> Skeleton:
    """`core.solve.solve`; the parameters of `pair-scan` are those of its launches, by default each level its own."""
    if method.name != "pair-scan":
        return core.solve(problem, method, backend, params, **options)
    with pytest.MonkeyPatch.context() as patched:
        for name, value in {"fused_levels": "never", **(params or {})}.items():
            assert name in LAUNCH
            patched.setitem(LAUNCH, name, value)
        return core.solve(problem, method, backend, **options)
