"""The calls a practitioner makes: a table in, a graph out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpupc_impl.backends import Backend, BackendUnavailable
from gpupc_impl.core import placing
from gpupc_impl.core.family import Family, families, get_family
from gpupc_impl.core.knowledge import with_knowledge
from gpupc_impl.core.orientation import CPDAG, check_choices, orient
from gpupc_impl.core.pc_stable import Progress
from gpupc_impl.core.problem import InvalidProblem, Problem
from gpupc_impl.core.registry import InvalidParameter, Method, UnknownMethod, get_method, methods
from gpupc_impl.core.result import Skeleton
from gpupc_impl.core.solve import choose_method, open_method_backend, solve, unavailable
from gpupc_impl.intake import Table, fitting_family, take
from gpupc_impl.views.progress import level_progress


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
    knowledge: Any = None,
    missing: str = "error",
    transpose: bool | None = None,
    separating_sets: str = "canonical",
    pmax: bool = False,
    device_memory_limit: int | None = None,
    progress: Callable[[Progress], None] | bool | None = None,
    **options: Any,
) -> Skeleton:
    """The skeleton of the causal graph behind the data, found by PC-stable.

    Args:
        data: samples in rows and variables in columns: an array, a DataFrame, whose column names are kept, an AnnData
            object, or the path of a file (docs/input.md); a correlation matrix when ``n_samples`` is given; or a ready
            `Problem`, which carries its own alpha, n_samples, names, max_level and test.
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
        knowledge: a `BackgroundKnowledge`, or causal-learn's: edges that are required stay, and those that are
            forbidden are gone from the start; neither is tested.
        missing: what is done about missing values: ``"error"``; ``"drop-rows"``; or ``"pairwise"``: each pair of
            variables has the samples that hold both, and a test the smallest size among its pairs (Gaussian test only).
        transpose: whether variables are in rows and samples in columns; None: no, with a warning where it looks so.
        separating_sets: ``"canonical"`` or ``"first-come"`` (the papers' rule: fewer tests, sets vary).
        pmax: also record the largest p-value seen for every pair.
        device_memory_limit: bytes of device memory to use at most.
        progress: called with a `Progress` after each level; or True for a line on the terminal or in the notebook that
            says what is left (extra ``progress``).
        options: what the family's problem takes (``df_convention`` for Gaussian data; see ``from_data`` of
            `GaussianProblem`, `DiscreteProblem`, `NonlinearProblem` and `MixedProblem`), and the method's own
            parameters, such as ``theta=64``.

    Raises:
        InvalidProblem: the data, alpha, max_level, the test's options or the knowledge cannot be used, or the method
            is of another family.
        gpupc_impl.tables.DataError, OSError: a file cannot be read.
        UnknownMethod, InvalidParameter: no such method or parameter.
        BackendUnavailable: the backend cannot be used on this machine.
        DeviceMemoryError: the problem does not fit in device memory.
    """
    _, found = _search(
        data,
        alpha,
        family=family,
        method=method,
        backend=backend,
        n_samples=n_samples,
        names=names,
        max_level=max_level,
        missing=missing,
        transpose=transpose,
        knowledge=knowledge,
        separating_sets=separating_sets,
        pmax=pmax,
        device_memory_limit=device_memory_limit,
        progress=progress,
        **options,
    )
    return found


def _search(
    data: Any,
    alpha: float = 0.05,
    *,
    family: str = "auto",
    method: str = "auto",
    backend: str = "auto",
    n_samples: int | None = None,
    names: Sequence[str] | None = None,
    max_level: int | None = None,
    missing: str = "error",
    transpose: bool | None = None,
    knowledge: Any = None,
    separating_sets: str = "canonical",
    pmax: bool = False,
    device_memory_limit: int | None = None,
    progress: Callable[[Progress], None] | bool | None = None,
    **options: Any,
) -> tuple[Problem, Skeleton]:
    """The problem of the data and its skeleton; the arguments are those of `skeleton`."""
    if isinstance(data, Problem):
        family = data.family if family == method == "auto" else family
        prepared = prepare(family, method, backend, device_memory_limit, options)
        carried = {
            "alpha": alpha != 0.05,
            "n_samples": n_samples is not None,
            "names": names is not None,
            "max_level": max_level is not None,
            "missing": missing != "error",
            "transpose": bool(transpose),
            **dict.fromkeys(prepared.test, True),
        }
        if any(carried.values()):
            given = ", ".join(name for name, here in carried.items() if here)
            raise InvalidProblem(f"data is a ready problem, which carries its own {given}; set it where that is built")
        problem = data
    else:
        prepared, problem = prepare_for(
            data,
            alpha,
            family,
            method,
            backend,
            n_samples,
            names,
            max_level,
            missing,
            transpose,
            device_memory_limit,
            options,
        )
    if knowledge is not None:
        problem = with_knowledge(problem, knowledge)
    try:
        with level_progress(progress) as told:
            found = prepared.solve(problem, separating_sets=separating_sets, pmax=pmax, progress=told)
    finally:
        if prepared.backend is not None:  # its kernels and it refer to one another, so it goes when Python next looks
            prepared.backend.release_memory()
    return problem, dataclasses.replace(found, problem=problem)


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A search that waits for its data.

    Attributes:
        family, method, backend: chosen and ready; the backend is None for a method that has none.
        params: of the method, checked.
        test: what the family's problem takes beside the data, as given.
        made_by: the class of its problems.
    """

    family: Family
    method: Method
    backend: Backend | None
    params: Mapping[str, Any]
    test: Mapping[str, Any]
    made_by: type[Problem]

    def problem(self, table: Table, *, n_samples: int | None = None, **search: Any) -> Problem:
        """The problem of samples or, with `n_samples`, of a correlation matrix.

        Args:
            search: alpha and max_level.

        Raises:
            InvalidProblem: the data, or what is given with them, cannot be used.
        """
        search |= {"names": table.names, **self.test}
        with placing.inside(None if self.backend is None else self.backend.host_arrays):
            if n_samples is None:
                return self.made_by.from_data(table.values, **{**self.method.problem_defaults, **search})
            return self.made_by.from_correlation(table.values, n_samples=n_samples, **search)

    def solve(self, problem: Problem, **how: Any) -> Skeleton:
        """`gpupc_impl.core.solve.solve`, which takes `how`."""
        return solve(problem, self.method, self.backend, self.params, **how)


def prepare(
    family: str,
    method: str,
    backend: str,
    device_memory_limit: int | None,
    options: Mapping[str, Any],
    missing: str = "error",
) -> Prepared:
    """Find everything that a search needs beside its data, and whatever is wrong with it.

    The arguments are those of `skeleton`; where family and method are both ``"auto"``, the data are numbers.

    Raises:
        What `skeleton` raises for them.
    """
    if family == "auto":
        family = default_family("numbers") if method == "auto" else get_method(method).family
    known = get_family(family)
    if missing == "pairwise":
        made_by, chosen = _pairwise(known, method)
    else:
        made_by, chosen = known.problem, _chosen(known, method, backend)
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
        made_by=made_by,
    )


def _chosen(family: Family, method: str, backend: str) -> Method:
    """The method of that name; where ``"auto"`` can mean none here, every reason is told."""
    try:
        return choose_method(method, backend, family.name)
    except UnknownMethod as error:
        known = methods(family.name)
        meant = {place: known[name] for place, name in family.auto.items() if name in known}
        told = {place: unavailable(each, place) for place, each in meant.items()}
        if method != "auto" or backend != "auto" or not any(told.values()):
            raise
        reasons = [f"{reason} ({meant[place].name})" for place, reason in told.items() if reason]
        raise BackendUnavailable(f"no method of family {family.name!r} can run here: {'; '.join(reasons)}") from error


def _pairwise(family: Family, method: str) -> tuple[type[Problem], Method]:
    """What makes the family's problems of data with missing values, and what solves them."""
    if family.pairwise is None:
        raise InvalidProblem(
            f"missing='pairwise' is for tests on correlations, which the {family.name} test is not; "
            "say missing='drop-rows', or impute the missing values"
        )
    if method not in ("auto", family.pairwise[1].name):
        raise InvalidProblem(
            f"method {method!r} knows one sample size for all pairs; with missing='pairwise' leave method out (it is "
            f"{family.pairwise[1].name!r}), or say missing='drop-rows'"
        )
    return family.pairwise


def prepare_for(
    data: Any,
    alpha: float,
    family: str,
    method: str,
    backend: str,
    n_samples: int | None,
    names: Sequence[str] | None,
    max_level: int | None,
    missing: str,
    transpose: bool | None,
    device_memory_limit: int | None,
    options: Mapping[str, Any],
) -> tuple[Prepared, Problem]:
    """A search, and the problem of data that are not a problem yet; the arguments are those of `skeleton`.

    Raises:
        What `skeleton` raises for them.
    """
    how = {"names": names, "missing": missing, "transpose": transpose, "correlation": n_samples is not None}
    table = None
    if family == method == "auto":
        table = take(data, **how)
        family = fitting_family(table, None)
    prepared = prepare(family, method, backend, device_memory_limit, options, missing)
    if table is None:
        table = take(data, kind=prepared.family.data, **how)
        fitting_family(table, prepared.family.name)
    return prepared, prepared.problem(table, alpha=alpha, max_level=max_level, n_samples=n_samples)


def default_family(data: str) -> str:
    """The family of data of a kind (see `Family.data`) where nothing else is said."""
    return next(family.name for family in families().values() if family.default and family.data == data)


def pc(
    data: Any,
    alpha: float = 0.05,
    *,
    knowledge: Any = None,
    conflicts: str = "relaxed",
    v_structures: str = "standard",
    **options: Any,
) -> CPDAG:
    """The CPDAG behind the data: `skeleton`, then `orient`.

    Args:
        knowledge, conflicts, v_structures: what `orient` takes.
        data, alpha, options: all that `skeleton` takes. Leave ``separating_sets`` at ``"canonical"`` for directions
            that are the same on every run.

    Raises:
        What `skeleton` and `orient` raise.
    """
    check_choices(conflicts, v_structures)
    problem, found = _search(data, alpha, knowledge=knowledge, **options)
    return orient(found, problem=problem, knowledge=knowledge, conflicts=conflicts, v_structures=v_structures)
