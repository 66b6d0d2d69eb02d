"""PCMCI and PCMCI+ as measured in experiments: `pcmci` and its reference as methods, whose graphs are verified."""

from gpupc_impl.core.family import Family
from gpupc_impl.core.registry import Run, method
from gpupc_impl.core.result import Skeleton
from gpupc_impl.time_series.problem import TimeSeriesProblem, series_answer

FAMILY = Family(
    name="time_series",
    problem=TimeSeriesProblem,
    retest=lambda problem: None,  # A graph is compared as a whole: its tests depend on each other's p-values.
    auto={},
    packages=("gpupc_impl.time_series", "baselines.peers"),
    call="pcmci",
)
ABOUT = {"family": "time_series", "source": "PCMCI (Runge et al. 2019) and PCMCI+ (Runge 2020)"}


@method("pcmci", **ABOUT, summary="PCMCI and PCMCI+ with batches of tests on a device")
@method("pcmci-serial", **ABOUT, backends=("cpu",), reference=True, summary="PCMCI and PCMCI+, test by test in NumPy")
def pcmci(problem: TimeSeriesProblem, run: Run) -> Skeleton:
    """Find the graph of a series, from host memory to host memory."""
    from gpupc_impl.time_series import search  # imported here, since lists of families do not need it

    found = search.pcmci(
        problem.series,
        tau_min=problem.tau_min,
        tau_max=problem.tau_max,
        alpha=problem.alpha,
        contemporaneous=problem.algorithm == "pcmciplus",
        test=problem.test,
        names=problem.names,
        backend="auto" if run.backend is None else run.backend.name,
        method="reference" if run.backend is None else "batched",
        **({"permutations": problem.permutations} if problem.test == "cmiknn" else {}),
    )
    return series_answer(problem, run, found.graph, found.p_values, found.facts["tests"])
