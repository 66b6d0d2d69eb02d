"""Compares the quantitative sentences of the GPU-CMIknn paper with our records (results/reported/cmiknn_claims.csv)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from gpupc_impl.reporting import quantities as q
from gpupc_impl.reporting.catalogue import CsvRows, table
from gpupc_impl.reporting.claims import table_of
from gpupc_impl.reporting.papers.cmiknn import PAPER, REFERENCE, SINGLE_THREADED
from gpupc_impl.reporting.runs import Runs, VerifiedRecord, kernels_of
from gpupc_impl.reporting.tables import Table

SINGLE, PARALLEL = "gpucmiknn-single", "gpucmiknn-parallel"
INSERTION = {"selection": "insertion"}
"""The parameter that selects the paper's way to find the k-th nearest neighbour."""

Chosen = Callable[[q.Size], bool]


class Adaptive(float):
    """The k_CMI that the paper calls adaptive, 0.2 n, among fixed ones: it has a name and follows all numbers."""

    def __format__(self, _: str) -> str:
        return "adaptive"


ADAPTIVE = Adaptive("inf")

# --- section 5.2: single tests ---------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class TimedTests:
    """The single tests of one implementation with one k_CMI, perm, |S| and n, in the place of a run on a data set; the
    median seconds over the tables that have the case."""

    method: str
    params: Mapping[str, Any]
    size: q.Size
    status: str
    median: float | None
    separating_sets: str = ""

    @property
    def setting(self) -> str:
        return f"{'CPU' if self.method == REFERENCE else 'GPU'} test"

    @property
    def dataset(self) -> str:
        return f"({', '.join(f'{symbol} = {value:,}' for symbol, value in self.size.items())})"

    @property
    def counts(self) -> bool:
        return self.median is not None

    ok = counts


def timed_tests(every_test: Iterable[Mapping[str, Any]]) -> list[TimedTests]:
    """Return the single tests of all tables, without those that were measured twice."""
    groups: dict[str, list[TimedTests]] = {}
    for cell in (cell for its in every_test for cell in its["cells"]):
        k = ADAPTIVE if cell["k_rule"] == "adaptive" else cell["k_cmi"]
        size = {"k_CMI": k, "perm": cell["permutations"], "|S|": cell["set_size"], "n": cell["samples"]}
        done = float(np.median(cell["seconds"])) if cell["status"] == "ok" else None
        test = TimedTests(cell["method"], cell["params"], size, cell["status"], done)
        groups.setdefault(str([test.method, test.params, size]), []).append(test)
    found = []
    for tests in groups.values():
        times = [test.median for test in tests if test.median is not None]
        found.append(dataclasses.replace(tests[0], median=float(np.median(times)) if times else None))
    return found


CPU, GPU = q.seconds(REFERENCE), q.seconds(SINGLE)


def case_of(*ks: float) -> Callable[[TimedTests], q.Size | None]:
    """Return a function that describes a case if its k_CMI is one of these, or every case if none is passed."""
    return lambda test: test.size if not ks or test.size["k_CMI"] in ks else None


def of_tests(quantity: q.Quantity) -> q.Quantity:
    return lambda evidence, datasets: quantity(evidence.tests, datasets)


def gain(chosen: Chosen, reduce: q.Reduce | None = None) -> q.Quantity:
    """Return how many times faster the GPU's test is in each chosen case; with `reduce`, one number of them."""
    return of_tests(q.by_size(case_of(), q.ratio(CPU, GPU), chosen, reduce))


def grown(who: str, axis: str, compute: q.Compute, *ks: float) -> q.Quantity:
    """Return what `compute` makes of the series over one dimension, for each k_CMI that is passed."""
    measure = {"CPU": CPU, "GPU": GPU}[who]
    series = [q.along(case_of(k), axis, {f"{who} test at k_CMI = {k}": measure}, compute) for k in ks]
    return of_tests(q.together(*(series or [q.along(case_of(), axis, {f"{who} test": measure}, compute)])))


def over_k(size: q.Size) -> bool:
    """Return whether a case belongs to Table 1, the only table that varies k_CMI and not the set."""
    return size["k_CMI"] != ADAPTIVE and size["|S|"] == 1


# --- section 5.3: searches -------------------------------------------------------------------------------------------


def evidence_of(runs: Runs, every_test: Iterable[Mapping[str, Any]]) -> q.Evidence:
    """Return the searches of section 5.3 and the single tests of section 5.2.

    If Parallel was measured with insertion, the paper's selection, on at least one data set, insertion stands for the
    paper's methods on every data set; otherwise their default does. No number therefore compares the two selections.
    """
    published = any(run.method == PARALLEL and INSERTION.items() <= run.params.items() for run in runs)
    selection = INSERTION if published else {"selection": "auto"}
    tests = q.Evidence(timed_tests(every_test), {SINGLE: [INSERTION], REFERENCE: [SINGLE_THREADED]})
    selected = {SINGLE: [selection], PARALLEL: [selection], REFERENCE: [SINGLE_THREADED]}
    return q.Evidence(runs, selected, tests=tests)


def graph(run: VerifiedRecord) -> q.Size | None:
    facts = run.problem
    return facts and {"N": facts["n_variables"], "k_CMI": facts["k_cmi"], "n": facts["n_samples"]}


def graph_at_7(run: VerifiedRecord) -> q.Size | None:
    size = graph(run)
    return size if size and size["k_CMI"] == 7 else None


def with_k(*ks: float) -> Chosen:
    return lambda size: size["k_CMI"] in ks


CPU_8 = q.seconds(REFERENCE, workers=8)
CPU_8_OVER_1 = q.ratio(CPU, CPU_8)
PARALLEL_OVER_1 = q.ratio(CPU, q.seconds(PARALLEL))
PARALLEL_OVER_SINGLE = q.ratio(q.seconds(SINGLE), q.seconds(PARALLEL))


def mean_at_200_over_7(evidence: q.Evidence, datasets: Sequence[str]) -> q.Numbers:
    at_200, at_7 = (q.by_size(graph, CPU_8_OVER_1, with_k(k))(evidence, datasets) for k in (200, 7))
    if not (at_200.values and at_7.values):
        return q.Numbers({}, {**at_7.missing, **at_200.missing})
    return q.Numbers({"; ".join([*at_7.values, *at_200.values]): [float(np.mean(at_200.all) / np.mean(at_7.all))]})


QUANTITIES: dict[str, q.Quantity] = {
    "test-range": gain(over_k),
    "test-up-to-352": gain(lambda size: over_k(size) and size["k_CMI"] <= 50, max),
    "test-k-500": gain(with_k(500)),
    "cpu-over-k": grown("CPU", "k_CMI", q.percent_growth(7, 500)),
    "gpu-over-k": grown("GPU", "k_CMI", q.growth(7, 500)),
    "drop-after-50": grown("GPU", "k_CMI", q.growth(50, 75)),
    "cpu-over-permutations": grown("CPU", "perm", q.growth(50, 1000), 200),
    "gpu-over-permutations": grown("GPU", "perm", q.growth(50, 1000), 7, 20),
    "gpu-over-permutations-200": grown("GPU", "perm", q.growth(50, 1000), 200),
    "cpu-over-sets": grown("CPU", "|S|", q.percent_growth(1, 5), 200),
    "gpu-over-sets": grown("GPU", "|S|", q.growth(1, 5), 7, 20, 200),
    "gpu-quadratic": grown("GPU", "n", q.per_doubling(2500, 10_000), 7, 20),
    "gain-to-1000": gain(lambda size: size["n"] <= 1000 and size["k_CMI"] in (7, 20, ADAPTIVE)),
    "gain-from-2500": gain(lambda size: size["n"] >= 2500 and size["k_CMI"] in (7, 20), max),
    "adaptive-loss": of_tests(
        q.by_size(case_of(), q.ratio(GPU, CPU), lambda size: size["n"] == 10_000 and size["k_CMI"] == ADAPTIVE)
    ),
    "cpu-8": q.by_size(graph, CPU_8_OVER_1, with_k(7, 20)),
    "cpu-8-at-200": mean_at_200_over_7,
    "parallel-up-to-1000": q.by_size(graph, q.reaching(1000, PARALLEL, REFERENCE), reduce=max),
    "parallel-up-to-240": q.by_size(graph, q.reaching(240, PARALLEL, REFERENCE, workers=8), reduce=max),
    "parallel-up-to-3": q.by_size(graph, PARALLEL_OVER_SINGLE, reduce=max),
    "parallel-over-single": q.by_size(graph, PARALLEL_OVER_SINGLE, with_k(7, 20)),
    "parallel-at-200": q.by_size(graph, PARALLEL_OVER_SINGLE, with_k(200)),
    "cpu-8-similar-at-200": q.by_size(graph, q.ratio(CPU_8, q.seconds(PARALLEL)), with_k(200)),
    "parallel-over-N": q.along(graph_at_7, "N", {"Parallel over CPU": PARALLEL_OVER_1}, q.growth(10, 40)),
}
"""The quantity for each id in results/reported/cmiknn_claims.csv."""

NOTES = (
    "Paper: Nvidia A40; one or eight cores of an AMD EPYC 7343. GPU test: GPU-CMIknn-Single with insertion, the "
    f"paper's way to find the k-th neighbour; CPU test: {REFERENCE}, as in the paper. All searches use insertion "
    "if Parallel was measured with it, else the default.",
    "Numbers are medians over the graphs of a size. If several of Tables 1 to 4 timed the same single test, the "
    "median over these tables counts, so a speedup may differ a little from that in one of them.",
)


@table("cmiknn_claims", "Section 5: claims", paper=PAPER, experiments=("cmiknn_table5",))
def cmiknn_claims(runs: Runs, every_test: Sequence[Mapping[str, Any]], reported: CsvRows) -> Table:
    """The table compares what the abstract and section 5 of the GPU-CMIknn paper state in numbers with the same
    quantities from our records, on the tests and graphs named in the last column. The paper used an Nvidia A40 and an
    AMD EPYC 7343; on the backend ``host`` kernels run on CPU cores.
    """
    return table_of("GPU-CMIknn", reported, QUANTITIES, evidence_of(runs, every_test), kernels_of(runs), NOTES)
