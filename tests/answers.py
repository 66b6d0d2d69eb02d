"""Prints the digest of the answer of every method on every backend that is here: ``python -m tests.answers``.

Two versions of the project give the same answers, bit for bit, if this prints the same lines for both. The problems are
the golden ones of `tests/golden` and one of each other family. A digest covers the edges, all separating sets, the
largest p-values where they were asked for, and the directions that `orient` gives by each rule for v-structures.
Methods whose answers are their own (random numbers, separating sets that are not canonical, other people's programs)
are left out.
"""

import hashlib
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas

from datasets.mixed import categorized_noise
from datasets.nonlinear import additive_noise
from gpupc_impl import Skeleton, methods, orient, skeleton
from gpupc_impl.core.solve import unavailable

GOLDEN = Path(__file__).parent / "golden" / "data"


def problems() -> Iterator[tuple[str, str, object, dict[str, object]]]:
    """Yield the family, name, data and arguments of each problem."""
    gaussian = np.loadtxt(GOLDEN / "generated-p200.csv.gz", delimiter=",")
    yield "gaussian", "generated-p200", gaussian, {"alpha": 0.01}
    yield "gaussian", "generated-p60-m40", gaussian[:40, :60], {"alpha": 0.2}
    alarm = pandas.read_csv(GOLDEN / "alarm-5000.csv")
    for test, df_rule in [("chi-square", "full"), ("chi-square", "adjusted"), ("g-square", "full")]:
        yield "discrete", f"alarm-{test}-{df_rule}", alarm, {"alpha": 0.01, "test": test, "df_rule": df_rule}
    nonlinear = additive_noise(p=6, n=120, seed=1).values
    yield "nonlinear", "noise-p6", nonlinear, {"alpha": 0.05, "permutations": 40, "k_perm": 5}
    mixed = categorized_noise(p=5, n=100, seed=1)
    frame = pandas.DataFrame(mixed.values, columns=mixed.names)
    coded = [name for name in frame if frame[name].nunique() < 10]
    yield "mixed", "mixed-p5", frame, {"categories": coded, "permutations": 40, "k_perm": 5}
    yield "regression", "mixed-p5", frame, {"categories": coded}
    for test in ("rcit", "rcot", "kci"):
        yield "kernel", f"noise-p6-{test}", nonlinear, {"test": test}


def digest(found: Skeleton) -> str:
    """Return a digest of everything in an answer that a contract fixes."""
    total = hashlib.sha256(found.sha256.encode())
    for pair in sorted(found.sepsets):
        total.update(repr((pair, tuple(map(int, found.sepsets[pair])))).encode())
    if found.pmax is not None:
        total.update(np.nan_to_num(found.pmax, nan=-1.0).tobytes())
    for rule in ("standard", "majority", "conservative"):
        cpdag = orient(found, problem=found.problem, v_structures=rule)
        total.update(np.ascontiguousarray(cpdag.directed).tobytes())
    return total.hexdigest()[:16]


def main() -> None:
    warnings.simplefilter("ignore", UserWarning)
    for family, name, data, arguments in problems():
        for method in methods(family).values():
            peer = method.module.startswith("baselines.peers.")
            for backend in method.backends:
                if peer or method.random or not method.canonical or method.cluster or unavailable(method, backend):
                    continue
                pmax = {"pmax": True} if name in ("generated-p60-m40", "alarm-chi-square-full", "noise-p6") else {}
                found = skeleton(data, family=family, method=method.name, backend=backend, **arguments, **pmax)
                print(family, name, method.name, backend, found.n_edges, digest(found), flush=True)


if __name__ == "__main__":
    main()
