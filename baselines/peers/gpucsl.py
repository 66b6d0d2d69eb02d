"""GPUCSL, by authors of gpuPC: the skeleton searches of the package gpucsl on Gaussian and on discrete data."""

import contextlib
import dataclasses
import importlib
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from baselines.peers._answer import Found, call_program, peer, to_skeleton
from gpupc_impl.core.pc_stable import stop_reason
from gpupc_impl.core.problem import InvalidProblem, Problem
from gpupc_impl.core.registry import Run, needs_package
from gpupc_impl.core.result import Skeleton
from gpupc_impl.discrete.problem import DiscreteProblem
from gpupc_impl.gaussian.problem import GaussianProblem

LIMITS = {"gaussian": range(5, 64, 3), "discrete": range(2, 64)}
"""Levels tried as limits of a problem without one, by family; another level doubles discrete tables or more."""

HEADERS = {"cassert": "", "stdint.h": "typedef unsigned char uint8_t;\ntypedef unsigned int uint32_t;\n"}
"""Headers that GPUCSL's sources include and NVRTC lacks. NVRTC provides `assert` without its header."""

MAX_CATEGORIES = 255  # the upper bound on a variable's categories, whose number the program stores in 8 bits


@peer(
    "gpucsl",
    family="gaussian",
    backends=("cuda",),
    source="GPUCSL, discover_skeleton_gpu_gaussian",
    summary="skeleton search of the package gpucsl on Gaussian data",
    unavailable=needs_package("gpucsl", "gpucsl"),
)
def gpucsl(problem: GaussianProblem, run: Run) -> Skeleton:
    """Run GPUCSL's own search (see `_search`). With n samples GPUCSL uses n - l - 4 degrees of freedom at level l, as
    ``df_convention="cupc"`` does. For the other convention GPUCSL receives one sample more."""
    p, samples = problem.n_variables, problem.degrees_of_freedom(0) + 4
    shape_of_data = np.empty((max(samples, 0), 0))  # The program reads only the number of samples.

    def discover(module, limit: int, kernels):
        graph = np.ones((p, p), np.uint16)
        return module.discover_skeleton_gpu_gaussian(
            graph, shape_of_data, problem.correlation, problem.alpha, limit, p, samples, kernels=kernels
        )

    # GPUCSL has thresholds for 50 levels or for as many as the samples allow, and does not use the last one.
    most = min(50, samples - 3) - 3
    kernels = lambda kinds, limit: [kinds.for_gaussian_ci(p, 1, limit)]  # noqa: E731
    return _search(problem, run, "gpucsl.pc.discover_skeleton_gaussian", kernels, discover, most)


@peer(
    "gpucsl-discrete",
    family="discrete",
    backends=("cuda",),
    source="GPUCSL, discover_skeleton_gpu_discrete",
    summary="skeleton search of the package gpucsl on discrete data",
    unavailable=needs_package("gpucsl", "gpucsl"),
)
def gpucsl_discrete(problem: DiscreteProblem, run: Run) -> Skeleton:
    """Run GPUCSL's own search (see `_search`). It implements the chi-square test with full degrees of freedom, which
    also solves a problem with another test, as the result's facts then state. InvalidProblem is raised if a variable
    has more than `MAX_CATEGORIES` categories, or a category that does not occur, which the program would not count."""
    for name, codes, categories in zip(problem.names, problem.codes, problem.categories, strict=True):
        occurring = np.count_nonzero(np.bincount(codes))
        if occurring < categories or categories > MAX_CATEGORIES:
            raise InvalidProblem(
                f"variable {name!r} has {categories} categories, of which {occurring} occur; method 'gpucsl-discrete' "
                f"counts those that occur, up to {MAX_CATEGORIES}: leave out the others, or merge some"
            )
    p, n = problem.codes.shape
    data = problem.codes.T

    def discover(module, limit: int, kernels):
        return module.discover_skeleton_gpu_discrete(
            np.ones((p, p), np.uint16), data, problem.alpha, limit, p, n, kernels=kernels
        )

    solved = dataclasses.replace(problem, test="chi-square", df_rule="full")
    kernels = lambda kinds, limit: kinds.for_discrete_ci(limit, p, int(problem.categories.max()), n)  # noqa: E731
    return _search(solved, run, "gpucsl.pc.discover_skeleton_discrete", kernels, discover, p)


def _search(
    problem: Problem, run: Run, module_name: str, make_kernels: Callable, discover: Callable, most: int
) -> Skeleton:
    """Search with kernels for one limit on the level, since GPUCSL compiles and allocates for all levels in advance.
    The limit is the problem's `max_level`. Without one, it is the smallest limit with which the search ends by itself:
    the first call finds it by trial, and later calls reuse it. The backend counts the time of compilation, as ours.
    ``make_kernels(Kernels, limit)`` returns the compiled kernels, ``discover(module, limit, kernels)`` GPUCSL's result
    and its seconds; `most` is the deepest level that GPUCSL can run."""
    module = importlib.import_module(module_name)

    def call(limit: int) -> Found:
        kernels = _kernels(problem, run, limit, make_kernels)
        with _level_seconds(module) as seconds:
            answer = discover(module, limit, kernels).result
        return Found(answer.skeleton, answer.seperation_sets, seconds)

    def search(deepest: int) -> Found:
        if problem.max_level is not None:
            return call(deepest)
        if problem.fingerprint not in _ENDS_WITH:
            for limit in LIMITS[problem.family]:
                tried = min(limit, deepest)
                skeleton = to_skeleton(problem, run, call(tried), tried)
                if limit >= deepest or _ended(problem, skeleton):
                    break
            _ENDS_WITH[problem.fingerprint] = skeleton.levels_run - 1
        return call(_ENDS_WITH[problem.fingerprint])

    return call_program(problem, run, most, search)


_ENDS_WITH: dict[str, int] = {}  # the smallest limit with which the search ends, by the fingerprint of the problem


def _ended(problem: Problem, skeleton: Skeleton) -> bool:
    return stop_reason(problem, skeleton.levels_run, int(skeleton.adjacency.sum(axis=1).max())) is not None


_COMPILED: dict[tuple[str, int], object] = {}


def _kernels(problem: Problem, run: Run, limit: int, make_kernels: Callable):
    """Return the kernels for a problem and a limit, which are compiled once."""
    key = (problem.fingerprint, limit)
    if key not in _COMPILED:
        start = time.perf_counter()
        management = importlib.import_module("gpucsl.pc.kernel_management")
        with _plain_nvrtc(management):
            _COMPILED[key] = make_kernels(management.Kernels, limit)
        if run.backend is not None:
            run.backend.compile_seconds += time.perf_counter() - start
    return _COMPILED[key]


@contextlib.contextmanager
def _plain_nvrtc(management: ModuleType) -> Iterator[None]:
    """Let GPUCSL's modules be compiled immediately, and by NVRTC alone, inside this context. GPUCSL requests Jitify
    from CuPy, which CuPy deprecates. Jitify compiles repeatedly at the first launch, to find headers."""
    original = management.get_module
    with tempfile.TemporaryDirectory() as headers:
        for name, content in HEADERS.items():
            (Path(headers) / name).write_text(content)

        def get_module(file_name: str, name_expressions: Sequence[str], *_, **__) -> Any:
            cupy = importlib.import_module("cupy")
            folders = (management.cuda_dir, management.cuda_helpers_dir, headers)
            module = cupy.RawModule(
                code=(management.cuda_dir / file_name).read_text(),
                options=("--std=c++11", *(f"-I{folder}" for folder in folders)),
                name_expressions=name_expressions,
            )
            module.compile()
            return module

        management.get_module = get_module
        try:
            yield
        finally:
            management.get_module = original


@contextlib.contextmanager
def _level_seconds(module) -> Iterator[list[float]]:
    """Yield a list that receives the seconds which a search of GPUCSL logs for each level."""
    seconds: list[float] = []

    def note(message: str, value: float, **_) -> None:
        if re.search(r"Level \d+ time", message):
            seconds.append(value)

    original, module.log_time = module.log_time, note
    try:
        yield seconds
    finally:
        module.log_time = original
