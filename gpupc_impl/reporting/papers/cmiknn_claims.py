"""Compares the quantitative sentences of the GPU-CMIknn paper with our records (results/reported/cmiknn_claims.csv)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from gpupc_impl.reporting import quantities
from gpupc_impl.reporting.catalogue import CsvRows, table
from gpupc_impl.reporting.cells import status_word
from gpupc_impl.reporting.claims import table_of
from gpupc_impl.reporting.papers.cmiknn import PAPER, REFERENCE, SINGLE_THREADED
from gpupc_impl.reporting.quantities import Measure, Missing, Numbers, Quantity, by_size, ratio, seconds
from gpupc_impl.reporting.runs import Runs, VerifiedRecord, device_backends, on_backend
from gpupc_impl.reporting.tables import Table

SINGLE, PARALLEL = "gpucmiknn-single", "gpucmiknn-parallel"
INSERTION = {"selection": "insertion"}
"""The parameter that selects the paper's way to find the k-th nearest neighbour."""


class Adaptive(float):
    """The k_CMI that the paper calls adaptive, 0.2 n, among fixed ones: it has a name and follows all numbers."""

    def __format__(self, _: str) -> str:
        return "adaptive"


ADAPTIVE = Adaptive("inf")

# --- section 5.2: single tests ---------------------------------------------------------------------------------------

METHODS = {"GPU": (SINGLE, INSERTION), "CPU": (REFERENCE, SINGLE_THREADED)}


@dataclasses.dataclass(frozen=True)
class Case:
    """The single tests with one k_CMI, perm, |S| and n, in place of the generated data set of other claims."""

    size: Mapping[str, float]

    @property
    def dataset(self) -> str:
        return f"({', '.join(f'{symbol} = {value:,}' for symbol, value in self.size.items())})"


class Tests:
    """The single tests of one backend and of the CPU reference.

    Attributes:
        runs: the cases.
    """

    def __init__(self, timed: Iterable[Mapping[str, Any]], backend: str):
        self._cells: dict[str, list[Mapping[str, Any]]] = {}
        self.runs = []
        for cell in (cell for its in timed for cell in its["cells"] if cell["backend"] in (backend, "cpu")):
            k = ADAPTIVE if cell["k_rule"] == "adaptive" else cell["k_cmi"]
            case = Case({"k_CMI": k, "perm": cell["permutations"], "|S|": cell["set_size"], "n": cell["samples"]})
            self.runs.append(case)
            self._cells.setdefault(case.dataset, []).append(cell)

    def seconds(self, who: str, case: str) -> float:
        """Return the median seconds of a case; if several tables have the case, the median over them."""
        method, params = METHODS[who]
        its = [c for c in self._cells[case] if c["method"] == method and params.items() <= c["params"].items()]
        done = [float(np.median(cell["seconds"])) for cell in its if cell["status"] == "ok"]
        if not done:
            raise Missing(f"{who} test {status_word(its[0]['status']) if its else 'not measured'}")
        return float(np.median(done))


def of(who: str) -> Measure:
    return lambda tests, case: tests.seconds(who, case)


GAIN, LOSS = ratio(of("CPU"), of("GPU")), ratio(of("GPU"), of("CPU"))

Chosen = Callable[[Mapping[str, float]], bool]


def case_of(*ks: float) -> Callable[[Case], Mapping[str, float] | None]:
    """Return a function that describes a case if its k_CMI is one of these, or every case if none is passed."""
    return lambda case: case.size if not ks or case.size["k_CMI"] in ks else None


def of_tests(quantity: Quantity) -> Quantity:
    return lambda evidence, datasets: quantity(evidence.tests, datasets)


def timed(measure: Measure, chosen: Chosen, one: Callable[[Sequence[float]], float] | None = None) -> Quantity:
    """Return a number of each chosen case; with `one`, one number computed from them."""
    return of_tests(quantities.by_size(case_of(), measure, chosen, one))


def grown(who: str, axis: str, compute: quantities.Compute, *ks: float) -> Quantity:
    """Return what `compute` makes of the series over one dimension, for each k_CMI that is passed."""
    if not ks:
        return of_tests(quantities.along(case_of(), axis, {f"{who} test": of(who)}, compute))
    series = [quantities.along(case_of(k), axis, {f"{who} test at k_CMI = {k}": of(who)}, compute) for k in ks]
    return of_tests(quantities.together(*series))


def over_k(size: Mapping[str, float]) -> bool:
    """Return whether a case belongs to Table 1, the only table that varies k_CMI and not the set."""
    return size["k_CMI"] != ADAPTIVE and size["|S|"] == 1


# --- section 5.3: searches -------------------------------------------------------------------------------------------


class Evidence(quantities.Evidence):
    """The searches of section 5.3 and the single tests of section 5.2.

    If Parallel was measured with insertion, the paper's selection, on at least one data set, insertion stands for the
    paper's methods on every data set; otherwise their default does. No number therefore compares the two selections.
    """

    def __init__(self, runs: Iterable[VerifiedRecord], backend: str, timed: Iterable[Mapping[str, Any]]):
        here = on_backend(runs, backend)
        published = any(run.method == PARALLEL and INSERTION.items() <= run.params.items() for run in here)
        selection = INSERTION if published else {"selection": "auto"}
        super().__init__(here, backend, {SINGLE: [selection], PARALLEL: [selection], REFERENCE: [SINGLE_THREADED]})
        self.tests = Tests(timed, backend)


def graph(run: VerifiedRecord) -> Mapping[str, float] | None:
    facts = run.problem
    return facts and {"N": facts["n_variables"], "k_CMI": facts["k_cmi"], "n": facts["n_samples"]}


def graph_at_7(run: VerifiedRecord) -> Mapping[str, float] | None:
    size = graph(run)
    return size if size and size["k_CMI"] == 7 else None


def with_k(*ks: float) -> Chosen:
    return lambda size: size["k_CMI"] in ks


CPU_8 = seconds(REFERENCE, workers=8)
CPU_8_OVER_1 = ratio(seconds(REFERENCE), CPU_8)
PARALLEL_OVER_1 = ratio(seconds(REFERENCE), seconds(PARALLEL))
PARALLEL_OVER_8 = ratio(CPU_8, seconds(PARALLEL))
PARALLEL_OVER_SINGLE = ratio(seconds(SINGLE), seconds(PARALLEL))


def mean_at_200_over_7(evidence: Evidence, datasets: Sequence[str]) -> Numbers:
    at_200, at_7 = (by_size(graph, CPU_8_OVER_1, with_k(k))(evidence, datasets) for k in (200, 7))
    if not (at_200.values and at_7.values):
        return Numbers({}, {**at_7.missing, **at_200.missing})
    return Numbers({"; ".join([*at_7.values, *at_200.values]): [float(np.mean(at_200.all) / np.mean(at_7.all))]})


QUANTITIES: dict[str, Quantity] = {
    "test-range": timed(GAIN, over_k),
    "test-up-to-352": timed(GAIN, lambda size: over_k(size) and size["k_CMI"] <= 50, max),
    "test-k-500": timed(GAIN, with_k(500)),
    "cpu-over-k": grown("CPU", "k_CMI", quantities.percent_growth(7, 500)),
    "gpu-over-k": grown("GPU", "k_CMI", quantities.growth(7, 500)),
    "drop-after-50": grown("GPU", "k_CMI", quantities.growth(50, 75)),
    "cpu-over-permutations": grown("CPU", "perm", quantities.growth(50, 1000), 200),
    "gpu-over-permutations": grown("GPU", "perm", quantities.growth(50, 1000), 7, 20),
    "gpu-over-permutations-200": grown("GPU", "perm", quantities.growth(50, 1000), 200),
    "cpu-over-sets": grown("CPU", "|S|", quantities.percent_growth(1, 5), 200),
    "gpu-over-sets": grown("GPU", "|S|", quantities.growth(1, 5), 7, 20, 200),
    "gpu-quadratic": grown("GPU", "n", quantities.per_doubling(2500, 10_000), 7, 20),
    "gain-to-1000": timed(GAIN, lambda size: size["n"] <= 1000 and size["k_CMI"] in (7, 20, ADAPTIVE)),
    "gain-from-2500": timed(GAIN, lambda size: size["n"] >= 2500 and size["k_CMI"] in (7, 20), max),
    "adaptive-loss": timed(LOSS, lambda size: size["n"] == 10_000 and size["k_CMI"] == ADAPTIVE),
    "cpu-8": by_size(graph, CPU_8_OVER_1, with_k(7, 20)),
    "cpu-8-at-200": mean_at_200_over_7,
    "parallel-up-to-1000": by_size(graph, quantities.reaching(1000, PARALLEL, REFERENCE), of=max),
    "parallel-up-to-240": by_size(graph, quantities.reaching(240, PARALLEL, REFERENCE, workers=8), of=max),
    "parallel-up-to-3": by_size(graph, PARALLEL_OVER_SINGLE, of=max),
    "parallel-over-single": by_size(graph, PARALLEL_OVER_SINGLE, with_k(7, 20)),
    "parallel-at-200": by_size(graph, PARALLEL_OVER_SINGLE, with_k(200)),
    "cpu-8-similar-at-200": by_size(graph, PARALLEL_OVER_8, with_k(200)),
    "parallel-over-N": quantities.along(
        graph_at_7, "N", {"Parallel over CPU": PARALLEL_OVER_1}, quantities.growth(10, 40)
    ),
}
"""The quantity for each id in results/reported/cmiknn_claims.csv."""


@table("cmiknn_claims", "Section 5: claims", paper=PAPER, experiments=("cmiknn_table5",))
def cmiknn_claims(runs: Runs, every_test: Sequence[Mapping[str, Any]], reported: CsvRows) -> Table:
    """The table compares what the abstract and section 5 of the GPU-CMIknn paper state in numbers with the same
    quantities from our records, on the tests and graphs named in the last column. The paper used an Nvidia A40 and an
    AMD EPYC 7343; on the backend ``host`` kernels run on CPU cores.
    """
    backends = {cell["backend"] for its in every_test for cell in its["cells"]} | {*device_backends(runs)}
    evidence = {backend: Evidence(runs, backend, every_test) for backend in sorted(backends - {"cpu"}) or ["cpu"]}
    notes = [
        "Paper: Nvidia A40; one or eight cores of an AMD EPYC 7343. GPU test: GPU-CMIknn-Single with insertion, the "
        f"paper's way to find the k-th neighbour; CPU test: {REFERENCE}, as in the paper. All searches use insertion "
        "if Parallel was measured with it, else the default.",
        "Numbers are medians over the graphs of a size. If several of Tables 1 to 4 timed the same single test, the "
        "median over these tables counts, so a speedup may differ a little from that in one of them.",
    ]
    return table_of("Claims of GPU-CMIknn beside our records", reported, QUANTITIES, evidence, notes)
