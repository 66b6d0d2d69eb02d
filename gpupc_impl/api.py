"""The calls a practitioner makes: a table in, a graph out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gpupc_impl.core.family import families, get_family
from gpupc_impl.core.orientation import CPDAG, orient
from gpupc_impl.core.pc_stable import Progress
from gpupc_impl.core.problem import InvalidProblem, Problem
from gpupc_impl.core.registry import InvalidParameter, get_method
from gpupc_impl.core.result import Skeleton
from gpupc_impl.core.solve import choose_method, open_method_backend, solve


def skeleton(
    data: Any,
    alpha: float = 0.05,
    *,
    family: str = "auto",
    method: str = "auto",
    backend: str = "auto",
    n_samples: int | None = None,
    names: Sequence[str] | None = None,
    max_level: int | None = None,
    separating_sets: str = "canonical",
    pmax: bool = False,
    device_memory_limit: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    **options: Any,
) -> Skeleton:
    """The skeleton of the causal graph behind the data, found by PC-stable.

    Args:
        data: samples in rows and variables in columns (array or DataFrame, whose column names are kept); a
            correlation matrix when ``n_samples`` is given; or a ready `Problem`, which carries its own alpha,
            n_samples, names, max_level and test.
        alpha: significance level of each test; an edge goes when a test's p-value is >= alpha.
        family: the kind of data and test: ``"gaussian"`` (Fisher's z), ``"discrete"`` (Pearson's chi-square) or
            ``"nonlinear"`` (CMIknn). ``"auto"`` is the method's, where one is named; else discrete for a DataFrame
            of categorical, text and Boolean columns, and Gaussian for numbers.
        method: a name from ``methods()``; ``"auto"`` is the family's fastest here. All of a family give the same
            answer.
        backend: where kernels run: ``"auto"`` (a GPU where one is visible, else this machine's cores), ``"cuda"`` or
            ``"host"``.
        n_samples: samples behind a correlation matrix given as ``data``.
        names: variable names, where ``data`` carries none.
        max_level: largest conditioning set to test; None for no limit.
        separating_sets: ``"canonical"`` or ``"first-come"`` (the papers' rule: fewer tests, sets vary).
        pmax: also record the largest p-value seen for every pair.
        device_memory_limit: bytes of device memory to use at most.
        progress: called with a `Progress` after each level.
        options: what the family's problem takes (``df_convention`` for Gaussian data; see ``from_data`` of
            `GaussianProblem`, `DiscreteProblem` and `NonlinearProblem`), and the method's own parameters, such as
            ``theta=64``.

    Raises:
        InvalidProblem: the data, alpha, max_level or the test's options cannot be used, or the method is of another
            family.
        UnknownMethod, InvalidParameter: no such method or parameter.
        BackendUnavailable: the backend cannot be used on this machine.
        DeviceMemoryError: the problem does not fit in device memory.
    """
    if family == "auto":
        family = get_method(method).family if method != "auto" else data_family(data)
    cls = get_family(family).problem
    chosen = choose_method(method, backend, family)
    if chosen.family != family:
        raise InvalidProblem(f"method {chosen.name!r} is of family {chosen.family!r}, not {family!r}")
    own = (*cls.PARAMETERS, *cls.DATA_PARAMETERS)
    test = {name: options.pop(name) for name in [*options] if name in own}
    for name in sorted(set(options) - set(chosen.params)):
        raise InvalidParameter(
            f"method {chosen.name!r} has no parameter {name!r}; it has: {', '.join(chosen.params) or 'none'}; "
            f"the {family} test has: {', '.join(own)}"
        )
    if isinstance(data, Problem):
        carried = {
            "alpha": alpha != 0.05,
            "n_samples": n_samples is not None,
            "names": names is not None,
            "max_level": max_level is not None,
            **dict.fromkeys(test, True),
        }
        if any(carried.values()):
            given = ", ".join(name for name, here in carried.items() if here)
            raise InvalidProblem(f"data is a ready problem, which carries its own {given}; set it where that is built")
        problem = data
    else:
        search = {"alpha": alpha, "max_level": max_level, "names": names, **test}
        if n_samples is None:
            problem = cls.from_data(data, **search)
        else:
            problem = cls.from_correlation(data, n_samples=n_samples, **search)
    return solve(
        problem,
        chosen,
        open_method_backend(chosen, backend, device_memory_limit),
        options,
        separating_sets=separating_sets,
        pmax=pmax,
        progress=progress,
    )


def data_family(data: Any) -> str:
    """The family of a ready problem, else the default one for its kind of data: labels where a DataFrame has no column
    of numbers, numbers elsewhere."""
    if isinstance(data, Problem):
        return data.family
    kinds = [dtype.kind for dtype in getattr(data, "dtypes", [])] if hasattr(data, "columns") else []
    kind = "labels" if kinds and not set(kinds) & set("iufc") else "numbers"
    return next(family.name for family in families().values() if family.default and family.data == kind)


def pc(data: Any, alpha: float = 0.05, **options: Any) -> CPDAG:
    """The CPDAG behind the data: `skeleton`, then `orient`.

    Args:
        data, alpha, options: all that `skeleton` takes. Leave ``separating_sets`` at ``"canonical"`` for directions
            that are the same on every run.

    Raises:
        What `skeleton` raises.
    """
    return orient(skeleton(data, alpha, **options))
