"""The calls a practitioner makes: a table in, a graph out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gpupc_impl.core.orientation import CPDAG, orient
from gpupc_impl.core.pc_stable import Progress
from gpupc_impl.core.problem import InvalidProblem, Problem, problem_class
from gpupc_impl.core.result import Skeleton
from gpupc_impl.core.solve import choose_method, open_method_backend, solve


def skeleton(
    data: Any,
    alpha: float = 0.05,
    *,
    method: str = "auto",
    backend: str = "auto",
    n_samples: int | None = None,
    names: Sequence[str] | None = None,
    max_level: int | None = None,
    df_convention: str = "pcalg",
    separating_sets: str = "canonical",
    pmax: bool = False,
    device_memory_limit: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    **params: Any,
) -> Skeleton:
    """The skeleton of the causal graph behind the data, found by PC-stable.

    Args:
        data: samples in rows and variables in columns (array or DataFrame, whose column names are kept); a
            correlation matrix when ``n_samples`` is given; or a ready `Problem`, which carries its own alpha,
            n_samples, names, max_level and df_convention.
        alpha: significance level of each test; an edge goes when a test's p-value is >= alpha.
        method: a name from ``methods()``; ``"auto"`` is cuPC-S on a GPU and the fastest installed method elsewhere.
            All give the same answer.
        backend: where kernels run: ``"auto"`` (a GPU where one is visible, else this machine's cores), ``"cuda"`` or
            ``"host"``.
        n_samples: samples behind a correlation matrix given as ``data``.
        names: variable names, where ``data`` carries none.
        max_level: largest conditioning set to test; None for no limit.
        df_convention: ``"pcalg"`` (m - |S| - 3, the papers' equation) or ``"cupc"`` (the published code's).
        separating_sets: ``"canonical"`` or ``"first-come"`` (the papers' rule: fewer tests, sets vary).
        pmax: also record the largest p-value seen for every pair.
        device_memory_limit: bytes of device memory to use at most.
        progress: called with a `Progress` after each level.
        params: the method's own parameters, such as ``theta=64``.

    Raises:
        InvalidProblem: the data or alpha, max_level, df_convention cannot be used.
        UnknownMethod, InvalidParameter: no such method or parameter.
        BackendUnavailable: the backend cannot be used on this machine.
        DeviceMemoryError: the problem does not fit in device memory.
    """
    chosen = choose_method(method, backend)
    if isinstance(data, Problem):
        carried = {
            "alpha": alpha != 0.05,
            "n_samples": n_samples is not None,
            "names": names is not None,
            "max_level": max_level is not None,
            "df_convention": df_convention != "pcalg",
        }
        if any(carried.values()):
            given = ", ".join(name for name, here in carried.items() if here)
            raise InvalidProblem(f"data is a ready problem, which carries its own {given}; set it where that is built")
        problem = data
    else:
        search = {"alpha": alpha, "max_level": max_level, "df_convention": df_convention, "names": names}
        cls = problem_class(chosen.family)
        if n_samples is None:
            problem = cls.from_data(data, **search)
        else:
            problem = cls.from_correlation(data, n_samples=n_samples, **search)
    return solve(
        problem,
        chosen,
        open_method_backend(chosen, backend, device_memory_limit),
        params,
        separating_sets=separating_sets,
        pmax=pmax,
        progress=progress,
    )


def pc(data: Any, alpha: float = 0.05, **options: Any) -> CPDAG:
    """The CPDAG behind the data: `skeleton`, then `orient`.

    Args:
        data, alpha, options: all that `skeleton` takes. Leave ``separating_sets`` at ``"canonical"`` for directions
            that are the same on every run.

    Raises:
        What `skeleton` raises.
    """
    return orient(skeleton(data, alpha, **options))
