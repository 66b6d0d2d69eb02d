"""Runs a method on a problem; the library, the command line and the measurements all use this module."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from gpupc_impl.backends import Backend, BackendUnavailable, backend_class, open_backend, resolve_backend
from gpupc_impl.core.family import get_family
from gpupc_impl.core.fixed_pairs import write
from gpupc_impl.core.pc_stable import Progress
from gpupc_impl.core.problem import InvalidProblem, Problem
from gpupc_impl.core.registry import (
    SEPARATING_SETS,
    InvalidParameter,
    Method,
    Run,
    UnknownMethod,
    get_method,
    method_of,
    methods,
)
from gpupc_impl.core.result import Skeleton


def unavailable(method: Method, backend: str = "auto", problem: Problem | None = None) -> str | None:
    """Return the reason why a method cannot run on this backend and problem; None if it can."""
    if problem is not None and problem.family != method.family:
        return f"method {method.name!r} solves {method.family} problems, not {problem.family} ones"
    reason = method.unavailable()
    if reason is not None or method.backends == ("cpu",):
        return reason
    name = _resolve(method, backend)
    if name not in method.backends:
        return f"method {method.name!r} runs on backend {method.backends[0]} alone, not on {name}"
    return backend_class(name).unavailable()


def _resolve(method: Method, backend: str) -> str:
    """Return the backend's name; ``"auto"`` becomes the method's backend if it has only one."""
    only = len(method.backends) == 1 and backend == "auto"
    return method.backends[0] if only else resolve_backend(backend)


def choose_method(name: str, backend: str, family: str) -> Method:
    """Return the method of this name; ``"auto"`` selects the fastest that is installed (`Family.auto`)."""
    if name != "auto":
        return get_method(name)
    auto = get_family(family).auto
    resolved = resolve_backend(backend)
    candidates = [resolved] if backend != "auto" else [each for each in auto if each != "cuda" or resolved == "cuda"]
    for name in candidates:
        candidate = method_of(family, auto[name]) if name in auto else None
        if candidate is not None and (backend != "auto" or unavailable(candidate, name) is None):
            return candidate
    known = ", ".join(methods(family))
    raise UnknownMethod(f"family {family!r} has no method for backend {backend!r} here; name one: {known}")


def open_method_backend(method: Method, backend: str, device_memory_limit: int | None = None) -> Backend | None:
    """Open the backend on which a method runs; returns None if NumPy or numba makes its tests on the cores."""
    reference = method.backends == ("cpu",)
    if not reference and backend != "cpu":
        name = _resolve(method, backend)
        if name in method.backends:
            return open_backend(name, device_memory_limit)
        if name != "host" or "cpu" not in method.backends:
            raise BackendUnavailable(unavailable(method, name))
    if (reference and backend not in ("auto", "cpu")) or device_memory_limit is not None:
        name = "device_memory_limit" if device_memory_limit is not None else f"backend {backend!r}"
        raise InvalidParameter(f"method {method.name!r} has no kernels, so {name} means nothing to it; leave it out")
    return None


@contextlib.contextmanager
def prefetched(
    method: Method, backend: Backend | None, params: Mapping[str, Any], *, pmax: bool, max_level: int | None
) -> Iterator[None]:
    """Let threads compile the kernels that a search probably needs, while its data are prepared. If an error, such as
    Ctrl-C, ends the block, compilations that have not begun are dropped, for which the process would wait."""
    if backend is None:
        yield
        return
    try:
        backend.prefetch(method.kernels(backend, params, pmax, max_level))
        yield
    except BaseException:
        backend.drop_prefetched()
        raise


def solve(
    problem: Problem,
    method: Method,
    backend: Backend | None,
    params: Mapping[str, Any] | None = None,
    *,
    separating_sets: str = "canonical",
    pmax: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Skeleton:
    """Find the skeleton of a problem with a method. InvalidProblem is raised if the method belongs to another family or
    does not support the background knowledge, InvalidParameter for an invalid parameter, BackendUnavailable for a
    missing library, DeviceMemoryError if the problem does not fit in device memory."""
    if problem.family != method.family:
        raise InvalidProblem(unavailable(method, problem=problem))
    if separating_sets not in SEPARATING_SETS:
        raise InvalidParameter(f"separating_sets is {separating_sets!r}; choose one of: {', '.join(SEPARATING_SETS)}")
    _check_knowledge(problem, method)
    reason = method.unavailable()
    if reason is not None:
        raise BackendUnavailable(f"method {method.name!r} cannot be used here: {reason}")
    parsed = method.parse_params(params or {})
    facts = {
        "method": method.name,
        "backend": "cpu" if backend is None else backend.name,
        "params": parsed,
        "separating_sets": separating_sets if method.canonical else "the method's own",
        "problem": problem.outline(),
    }
    with prefetched(method, backend, parsed, pmax=pmax, max_level=problem.max_level):
        skeleton = method.solve(problem, Run(backend, parsed, separating_sets, pmax, progress, facts))
    if backend is not None:
        backend.drop_prefetched()
    return skeleton if problem.fixed is None else _with_fixed(problem, method, skeleton)


def _check_knowledge(problem: Problem, method: Method) -> None:
    for stated, ability, fault, way_out in (
        (problem.fixed, "knowledge", "knows nothing of required and forbidden edges", "the background knowledge"),
        (problem.tiers, "tiers", "cannot keep later tiers out of separating sets", "tiers_in_search"),
    ):
        if stated is not None and not getattr(method, ability):
            able = ", ".join(name for name, other in methods(method.family).items() if getattr(other, ability))
            choice = f"or take one of: {able}" if able else "since no method of its family can"
            raise InvalidProblem(f"method {method.name!r} {fault}; leave {way_out} out, {choice}")


def _with_fixed(problem: Problem, method: Method, skeleton: Skeleton) -> Skeleton:
    """The skeleton without separating sets and p-values of required and forbidden edges."""
    fixed, names = problem.fixed, problem.names
    assert fixed is not None
    if skeleton.levels_run == 0:  # The forbidden edges are absent from the start, so no level has removed them.
        fixed.apply(skeleton.adjacency)
    for i, j in fixed.broken_by(skeleton.adjacency)[:1]:
        kind = "forbidden" if skeleton.adjacency[i, j] else "required"
        raise RuntimeError(f"method {method.name!r} has not kept to the {kind} edge between {names[i]} and {names[j]}")
    pmax = skeleton.pmax
    if pmax is not None:
        write(pmax, np.concatenate([fixed.required, fixed.forbidden]), np.nan)
    return dataclasses.replace(skeleton, sepsets=skeleton.sepsets.with_gaps(fixed.forbidden), pmax=pmax)
