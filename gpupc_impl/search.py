"""The steps of a search from the request to the skeleton, for the library, the command line and studies."""

from __future__ import annotations

import dataclasses
import difflib
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpupc_impl.backends import Backend, BackendUnavailable, backend_class, compilations
from gpupc_impl.core import allocation
from gpupc_impl.core.family import Family, get_family
from gpupc_impl.core.files import shortened
from gpupc_impl.core.knowledge import with_knowledge
from gpupc_impl.core.pc_stable import Progress
from gpupc_impl.core.problem import InvalidProblem, Problem, as_number, search_parameters
from gpupc_impl.core.registry import InvalidParameter, Method, UnknownMethod, get_method, methods
from gpupc_impl.core.result import Skeleton
from gpupc_impl.core.solve import choose_method, open_method_backend, prefetched, solve, unavailable
from gpupc_impl.intake import FEWEST_SAMPLES, TREATMENTS, Table, TableFormat, choose_family, read_input, shown, warn
from gpupc_impl.views.progress import compile_report, level_progress

# Arguments of `pc` and `fci` themselves, which pass everything else on.
OF_CALLS = ("conflicts", "v_structures", "algorithm", "max_possible_d_sep", "max_path_length")
MINUTE = "%Y-%m-%d %H:%M"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchRequest(TableFormat):
    """The user's request except for the data, as `gpupc_impl.skeleton` explains it. Parameters of the test and of the
    method are `options`."""

    alpha: float = 0.05
    family: str = "auto"
    method: str = "auto"
    backend: str = "auto"
    n_samples: int | None = None
    names: Sequence[str] | None = None
    max_level: int | None = None
    knowledge: Any = None
    missing: str = "error"
    transpose: bool | None = None
    separating_sets: str = "canonical"
    pmax: bool = False
    device_memory_limit: int | None = None
    progress: Callable[[Progress], None] | bool | None = None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, fits, kind in (
            ("names", lambda value: np.ndim(value) > 0, "a sequence of names"),
            ("transpose", _is_truth, "True or False"),
            ("pmax", _is_truth, "True or False"),
            ("device_memory_limit", lambda value: not math.isnan(as_number(value)), "a number of bytes"),
        ):
            value = getattr(self, name)
            if value is not None and not fits(value):
                raise InvalidProblem(f"{name} is {shortened(repr(value), 60)}; it must be {kind}")

    @classmethod
    def of(cls, **arguments: Any) -> SearchRequest:
        """Return the request that arguments make; those with other names are options."""
        own = {name: arguments.pop(name) for name in ARGUMENTS if name in arguments}
        return cls(**own, options=arguments)

    def open(self, data: Any) -> Search:
        """Read the data, choose family and method, and open the backend; data come last, since they take time."""
        search_parameters(self.alpha, self.max_level)
        source: Table | Problem | None = data if isinstance(data, Problem) else None
        if self.family != "auto":
            family = get_family(self.family)
        elif self.method != "auto":
            family = get_family(get_method(self.method).family)
        elif isinstance(source, Problem):
            family = get_family(source.family)
        else:
            if self.backend != "auto" and (reason := backend_class(self.backend).unavailable()):
                raise BackendUnavailable(f"backend {self.backend!r} cannot be used here: {reason}")
            source = self.read(data, None)
            family = choose_family(source)
        problem_class, method = self._choose(family)
        test, params = self._split_options(problem_class, method)
        backend = open_method_backend(method, self.backend, self.device_memory_limit)
        with prefetched(method, backend, params, pmax=self.pmax, max_level=self.max_level):
            if isinstance(source, Problem):
                self._refuse_repeated(test)
            elif source is None:
                source = self.read(data, family.data)
                choose_family(source, family)
        return Search(self, _data_name(data), source, problem_class, method, backend, params, test)

    def read(self, data: Any, kind: str | None) -> Table:
        """Read the data, whose columns are of this kind (see `gpupc_impl.tables.read_table`)."""
        if self.n_samples is not None and as_number(self.n_samples) < FEWEST_SAMPLES:
            warn(f"n_samples is {self.n_samples}, too few to test anything with: the edges are those of no test")
        of_samples = {"missing": self.missing, "transpose": self.transpose}
        is_matrix = self.n_samples is not None
        return read_input(data, names=self.names, kind=kind, form=self, correlation=is_matrix, **of_samples)

    def _choose(self, family: Family) -> tuple[type[Problem], Method]:
        if family.call != "skeleton":
            raise InvalidProblem(
                f"family {family.name!r} is measured in experiments alone; call `{family.call}` instead"
            )
        if self.missing in TREATMENTS:
            if self.missing not in family.treatments:
                raise InvalidProblem(
                    f"missing={self.missing!r} is for tests on correlations, which the {family.name} test is not; "
                    "say missing='drop-rows', or give one table whose missing values are imputed"
                )
            problem_class, method = family.treatments[self.missing]
            if self.method not in ("auto", method.name):
                raise InvalidProblem(
                    f"method {self.method!r} has one critical value for all tests of a level, unlike "
                    f"missing={self.missing!r}; leave method out (it is {method.name!r}), or say missing='drop-rows'"
                )
            return problem_class, method
        try:
            method = choose_method(self.method, self.backend, family.name)
        except UnknownMethod as error:
            known = methods(family.name)
            candidates = ((known[name], place) for place, name in family.auto.items() if name in known)
            reasons = [f"{why} ({each.name})" for each, place in candidates if (why := unavailable(each, place))]
            if self.method != "auto" or self.backend != "auto" or not reasons:
                raise
            raise BackendUnavailable(
                f"no method of family {family.name!r} can run here: {'; '.join(reasons)}"
            ) from error
        if method.family != family.name:
            raise InvalidProblem(f"method {method.name!r} is of family {method.family!r}, not {family.name!r}")
        return family.problem, method

    def _split_options(self, problem_class: type[Problem], method: Method) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the parameters of the problem's test, as requested, and all of the method, checked."""
        names = (*problem_class.PARAMETERS, *problem_class.DATA_PARAMETERS)
        test = {name: value for name, value in self.options.items() if name in names}
        params = {name: value for name, value in self.options.items() if name not in names}
        for name in sorted(set(params) - set(method.params)):
            near = difflib.get_close_matches(name, [*method.params, *names, *ARGUMENTS, *OF_CALLS], n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise InvalidParameter(
                f"{hint}method {method.name!r} has no parameter {name!r}; "
                f"it has: {', '.join(method.params) or 'none'}; the {method.family} test has: {', '.join(names)}"
            )
        return test, method.parse_params(params)

    def _refuse_repeated(self, test: Mapping[str, Any]) -> None:
        """Refuse arguments that a ready problem already contains."""
        repeated = {
            "alpha": self.alpha != SearchRequest.alpha,
            **{name: getattr(self, name) is not None for name in ("n_samples", "names", "max_level")},
            "missing": self.missing != "error",
            "transpose": bool(self.transpose),
            **dict.fromkeys(test, True),
        }
        if names := ", ".join(name for name, is_repeated in repeated.items() if is_repeated):
            raise InvalidProblem(f"data is a ready problem, which carries its own {names}; set it where that is built")


ARGUMENTS = tuple(field.name for field in dataclasses.fields(SearchRequest))


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool) or as_number(value) in (0, 1)


def _data_name(data: Any) -> str:
    """Return the name of a file and the time of its last change, or the name of the type of another object."""
    if isinstance(data, (list, tuple)) and data and isinstance(data[0], (str, os.PathLike)):
        return f"{len(data)} tables, the first {_data_name(data[0])}"
    if not isinstance(data, (str, os.PathLike)):
        return type(data).__name__
    if str(data) == "-":
        return "standard input"
    return f"{Path(data).name}, last changed {time.strftime(MINUTE, time.localtime(Path(data).stat().st_mtime))}"


@dataclasses.dataclass(frozen=True)
class Search:
    """A search that is ready to run; as a context manager it frees the device's memory at the end."""

    request: SearchRequest
    data_name: str  # see `_data_name`
    source: Table | Problem  # the table that was read, or the ready problem that was passed as data
    problem_class: type[Problem]  # the class of the problem that the table becomes
    method: Method
    backend: Backend | None  # None for a method that has no kernels
    params: Mapping[str, Any]  # the parameters of the method, complete and checked
    test: Mapping[str, Any]  # the parameters of the family's test, as requested

    def __enter__(self) -> Search:
        return self

    def __exit__(self, *exception: object) -> None:
        # The backend and its kernels form a reference cycle, which would keep their memory until garbage collection.
        if self.backend is not None:
            self.backend.release_memory()
            if any(exception):
                self.backend.drop_prefetched()

    @property
    def reading(self) -> dict[str, str]:
        """The data, and the chosen test with the reason, as texts by name."""
        request, source = self.request, self.source
        table, labels, why = "a ready problem", (), "the problem's"
        if isinstance(source, Table):
            reasons = {"labels": "all columns are categories", "both": "columns of both kinds"}
            table, labels = source.summary, source.label_columns
            why = reasons.get(source.kind, "all columns are numbers")
        if request.family != "auto":
            why = "as requested"
        elif request.method != "auto":
            why = f"the family of method {request.method}"
        remark = self.problem_class.remark(self.test)
        return {
            "data": self.data_name,
            "searched": time.strftime(MINUTE),
            "table": table,
            **({"categories": shown(labels)} if labels else {}),
            "test": f"{self.method.family} test ({why}){f', {remark}' if remark else ''}",
        }

    @property
    def compile_seconds(self) -> float:
        return 0.0 if self.backend is None else self.backend.compile_seconds

    def problem(self) -> Problem:
        """Return the problem of the source with the background knowledge."""
        request, problem = self.request, self.source
        if isinstance(problem, Table):
            parameters = {"alpha": request.alpha, "max_level": request.max_level, "names": problem.names, **self.test}
            if request.missing == "pairwise":
                parameters["backend"] = self.backend
            if request.n_samples is None:
                parameters = {**self.method.problem_defaults, **parameters}
                make = self.problem_class.from_data
            else:
                parameters["n_samples"] = request.n_samples
                make = self.problem_class.from_correlation
            with allocation.allocated_by(None if self.backend is None else self.backend.host_arrays):
                problem = make(problem.values, **parameters)
        permutations = getattr(problem, "permutations", None)
        if permutations is not None and problem.alpha < 1 / permutations:
            warn(
                f"alpha {problem.alpha:g} is below 1/permutations = {1 / permutations:g}, the smallest p-value above 0 "
                f"of {permutations:,} permutations, and acts like it; say permutations="
                f"{math.ceil(1 / problem.alpha)} or more"
            )
        return problem if request.knowledge is None else with_knowledge(problem, request.knowledge)

    def solve(self, problem: Problem) -> Skeleton:
        request = self.request
        compiling = compile_report(request.progress is not False)
        options = {"separating_sets": request.separating_sets, "pmax": request.pmax}
        with compilations.reported(compiling), level_progress(request.progress) as report:
            skeleton = solve(problem, self.method, self.backend, self.params, progress=report, **options)
        return dataclasses.replace(skeleton, problem=problem, reading=self.reading)
