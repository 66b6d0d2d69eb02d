"""PCMCI and PCMCI+ as measured in experiments."""

from gpupc_impl.core.family import Family
from gpupc_impl.time_series.problem import TimeSeriesProblem

FAMILY = Family(
    name="time_series",
    problem=TimeSeriesProblem,
    retest=lambda problem: None,  # A graph is compared as a whole: its tests depend on each other's p-values.
    auto={},
    packages=("gpupc_impl.time_series", "baselines.peers"),
    call="pcmci",
)
