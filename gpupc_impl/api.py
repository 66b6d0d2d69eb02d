"""The calls a practitioner makes: a table in, a graph out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpupc_impl.backends import Backend
from gpupc_impl.core.family import Family, families, get_family
from gpupc_impl.core.orientation import CPDAG, orient
from gpupc_impl.core.pc_stable import Progress
from gpupc_impl.core.problem import InvalidProblem, Problem
from gpupc_impl.core.registry import InvalidParameter, Method, get_method
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
        family: the kind of data and test: ``"gaussian"`` (Fisher's z), ``"discrete"`` (Pearson's chi-square),
            ``"nonlinear"`` (CMIknn) or ``"mixed"`` (CMIknn of numbers and categories). ``"auto"`` is the method's,
            where one is named; else discrete for a DataFrame of categorical, text and Boolean columns, and Gaussian
            for numbers.
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
            `GaussianProblem`, `DiscreteProblem`, `NonlinearProblem` and `MixedProblem`), and the method's own
            parameters, such as ``theta=64``.

    Raises:
        InvalidProblem: the data, alpha, max_level or the test's options cannot be used, or the method is of another
            family.
        UnknownMethod, InvalidParameter: no such method or parameter.
        BackendUnavailable: the backend cannot be used on this machine.
        DeviceMemoryError: the problem does not fit in device memory.
    """
    if family == method == "auto":
        family = data_family(data)
    prepared = prepare(family, method, backend, device_memory_limit, options)
    if isinstance(data, Problem):
        carried = {
            "alpha": alpha != 0.05,
            "n_samples": n_samples is not None,
            "names": names is not None,
            "max_level": max_level is not None,
            **dict.fromkeys(prepared.test, True),
        }
        if any(carried.values()):
            given = ", ".join(name for name, here in carried.items() if here)
            raise InvalidProblem(f"data is a ready problem, which carries its own {given}; set it where that is built")
        problem = data
    else:
        problem = prepared.problem(data, alpha=alpha, max_level=max_level, names=names, n_samples=n_samples)
    return prepared.solve(problem, separating_sets=separating_sets, pmax=pmax, progress=progress)


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A search that waits for its data.

    Attributes:
        family, method, backend: chosen and ready; the backend is None for a method that has none.
        params: of the method, checked.
        test: what the family's problem takes beside the data, as given.
    """

    family: Family
    method: Method
    backend: Backend | None
    params: Mapping[str, Any]
    test: Mapping[str, Any]

    def problem(self, data: Any, *, n_samples: int | None = None, **search: Any) -> Problem:
        """The problem of samples or, with `n_samples`, of a correlation matrix.

        Args:
            search: alpha, max_level and names.

        Raises:
            InvalidProblem: the data, or what is given with them, cannot be used.
        """
        if n_samples is None:
            return self.family.problem.from_data(data, **search, **self.test)
        return self.family.problem.from_correlation(data, n_samples=n_samples, **search, **self.test)

    def solve(self, problem: Problem, **how: Any) -> Skeleton:
        """`gpupc_impl.core.solve.solve`, which takes `how`."""
        return solve(problem, self.method, self.backend, self.params, **how)


def prepare(
    family: str, method: str, backend: str, device_memory_limit: int | None, options: Mapping[str, Any]
) -> Prepared:
    """Find everything that a search needs beside its data, and whatever is wrong with it.

    The arguments are those of `skeleton`; where family and method are both ``"auto"``, the data are numbers.

    Raises:
        What `skeleton` raises for them.
    """
    if family == "auto":
        family = default_family("numbers") if method == "auto" else get_method(method).family
    known, chosen = get_family(family), choose_method(method, backend, family)
    if chosen.family != family:
        raise InvalidProblem(f"method {chosen.name!r} is of family {chosen.family!r}, not {family!r}")
    own = (*known.problem.PARAMETERS, *known.problem.DATA_PARAMETERS)
    params = {name: value for name, value in options.items() if name not in own}
    for name in sorted(set(params) - set(chosen.params)):
        raise InvalidParameter(
            f"method {chosen.name!r} has no parameter {name!r}; it has: {', '.join(chosen.params) or 'none'}; "
            f"the {family} test has: {', '.join(own)}"
        )
    return Prepared(
        family=known,
        method=chosen,
        params=chosen.parse_params(params),
        backend=open_method_backend(chosen, backend, device_memory_limit),
        test={name: value for name, value in options.items() if name in own},
    )


def data_family(data: Any) -> str:
    """The family of a ready problem, else the default one for its kind of data: labels where a DataFrame has no column
    of numbers, numbers elsewhere."""
    if isinstance(data, Problem):
        return data.family
    kinds = [dtype.kind for dtype in getattr(data, "dtypes", [])] if hasattr(data, "columns") else []
    return default_family("labels" if kinds and not set(kinds) & set("iufc") else "numbers")


def default_family(data: str) -> str:
    """The family of data of a kind (see `Family.data`) where nothing else is said."""
    return next(family.name for family in families().values() if family.default and family.data == data)


def pc(data: Any, alpha: float = 0.05, **options: Any) -> CPDAG:
    """The CPDAG behind the data: `skeleton`, then `orient`.

    Args:
        data, alpha, options: all that `skeleton` takes. Leave ``separating_sets`` at ``"canonical"`` for directions
            that are the same on every run.

    Raises:
        What `skeleton` raises.
    """
    return orient(skeleton(data, alpha, **options))
