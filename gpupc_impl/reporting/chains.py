"""Judges claims over a program that is not on the GPU's machine, by a chain of two speedups.

`workflow/pages/factors.py` measures on one core of some machine how many times longer such a program takes than our
serial reference (results/recorded/cpu_factors.csv). That factor times the speedup of a method over our reference, on
the GPU's machine, is the method's speedup over the program. Both factors are printed, and the verdict is ``chained``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gpupc_impl.reporting.cells import label, number
from gpupc_impl.reporting.quantities import Missing, Numbers, Quantity, over


@dataclasses.dataclass(frozen=True)
class Factor:
    """The factor by which a program takes longer than our serial reference on one core.

    Attributes:
        ratio: the ratio of their CPU times.
        text: the factor with both names and the machine.
    """

    ratio: float
    text: str


Factors = Mapping[tuple[str, str], Factor]
"""The factors by program and data set."""


def load(rows: Iterable[Mapping[str, str]]) -> dict[tuple[str, str], Factor]:
    """Read the lines of cpu_factors.csv, except those whose skeletons differ, because the work was not the same."""
    factors = {}
    for row in rows:
        if row["differing_edges"] == "0":
            ratio = float(row["peer_cpu_s"]) / float(row["reference_cpu_s"])
            what = f"{row['peer']} over {row['reference']}, one core of {row['machine']}"
            factors[row["peer"], row["dataset"]] = Factor(ratio, f"{number(ratio)} ({what})")
    return factors


def chained(
    direct: Quantity, peer: str, slow: str, fast: str, of: Callable[[Sequence[float]], float] | None = None
) -> Quantity:
    """Return the speedup of a method over a program, by a chain on the data sets with a factor; `direct` if none has.

    Args:
        direct: the quantity over our reference instead of the program.
        peer: the program.
        slow: our reference on the GPU's machine; a parallel one is taken to gain as much from its cores as the program.
        fast: the method.
        of: computes one number from those of all data sets; by default each is kept.
    """

    def quantity(evidence: Any, datasets: Sequence[str]) -> Numbers:
        values, missing = {}, {}
        for dataset in datasets:
            factor = evidence.factors.get((peer, dataset))
            try:
                if factor is None:
                    raise Missing(f"{peer} not measured")
                ratio = over(fast, slow)(evidence, dataset)
                names = " over ".join(
                    label(evidence.run(dataset, name).setting).replace(",", "") for name in (fast, slow)
                )
            except Missing as reason:
                missing[dataset] = str(reason)
                continue
            values[f"{dataset}: {factor.text} × {number(ratio)} ({names})"] = [factor.ratio * ratio]
        if not values:
            return direct(evidence, datasets)
        if of is not None:
            values = {"; ".join(values): [of([value for [value] in values.values()])]}
        return Numbers(values, missing, chained=True)

    return quantity
