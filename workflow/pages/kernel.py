"""Makes the tables and the figure of docs/kernel.md: calibration, power, and accuracy against time.

``python -m workflow.pages.kernel --page docs/kernel.md --figure docs/images/kernel.svg`` replaces the text between the
page's marks and draws the figure.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from gpupc_impl.api import skeleton
from gpupc_impl.backends import open_backend
from gpupc_impl.core.family import get_family
from gpupc_impl.reporting.tables import markdown

LEVELS = range(4)
REPLICATES = 50
"""The number of independent data sets whose variables form one problem, which is faster than separate problems."""

COLUMNS = 3 + 2 * len(LEVELS)
"""The columns of a replicate: three variables that form the sets, then x and y of each level."""

EFFECTS = (np.sin, np.tanh, lambda v: v**2 / 2, lambda v: np.exp(-v * v), lambda v: v)

TESTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "RCIT": ("kernel", {"test": "rcit"}),
    "RCIT, published weights": ("kernel", {"test": "rcit", "weights": "published"}),
    "RCoT": ("kernel", {"test": "rcot"}),
    "KCI": ("kernel", {"test": "kci"}),
    "CMIknn": ("nonlinear", {}),
    "Fisher's z": ("gaussian", {}),
}
COLOURS = dict(zip(TESTS, ("#0072B2", "#56B4E9", "#009E73", "#D55E00", "#CC79A7", "#000000"), strict=True))
CALIBRATED = {200: tuple(TESTS)[:4], 1000: tuple(TESTS)[:3]}
"""The tests whose calibration is shown, by the number of samples."""

POWER_SAMPLES, GRAPH_VARIABLES, GRAPH_SAMPLES = 300, 8, 300


def replicate(rng: np.random.Generator, n: int, strength: float) -> np.ndarray:
    """Return (n, COLUMNS) samples: x and y of a level depend on that many variables and on a common cause.

    `strength` is the factor of the common cause, which enters x linearly and y as its square.
    """
    z = rng.standard_normal((n, 3))
    columns = [z]
    for level in LEVELS:
        common = rng.standard_normal(n)
        for response in (common, common**2 - 1):
            total = z[:, :level] @ rng.uniform(0.5, 1.5, level)
            effect = EFFECTS[rng.integers(len(EFFECTS))](total) if level else 0.0
            columns.append((effect + 0.7 * rng.standard_normal(n) + strength * response)[:, None])
    return np.concatenate(columns, axis=1)


def p_values(name: str, n: int, seeds: int, strength: float) -> np.ndarray:
    """Return the p-values of a test: (levels, seeds)."""
    family, options = TESTS[name]
    parts = []
    for first in range(0, seeds, REPLICATES):
        numbers = range(first, min(first + REPLICATES, seeds))
        data = np.concatenate([replicate(np.random.default_rng([k, n]), n, strength) for k in numbers], axis=1)
        own = {"seed": first} if "seed" in get_family(family).problem.PARAMETERS else {}
        problem = get_family(family).problem.from_data(data, **options, **own)
        test = get_family(family).strength(problem, "auto")
        begin = COLUMNS * np.arange(len(numbers))[:, None]
        parts.append([test(begin + 3 + 2 * k + [0, 1], begin + np.arange(k))[0] for k in LEVELS])
    return np.concatenate(parts, axis=1)


def calibration_table(found: Mapping[tuple[str, int], np.ndarray]) -> str:
    rows = []
    for (name, n), values in found.items():
        for level in LEVELS:
            own = values[level]
            ks = stats.kstest(own, "uniform")
            shares = [f"{100 * np.mean(own < alpha):.1f} %" for alpha in (0.05, 0.01)]
            rows.append([name, f"{n:,}", str(level), f"{len(own):,}", *shares, f"{ks.statistic:.3f}"])
    header = ["test", "samples", "size of S", "draws", "p < 0.05", "p < 0.01", "Kolmogorov-Smirnov distance"]
    return markdown(header, rows, range(1, 7))


def power_table(seeds: int) -> str:
    rows = []
    for name in TESTS:
        values = p_values(name, POWER_SAMPLES, seeds, 0.6)
        rows.append([name, *(f"{100 * np.mean(own < 0.05):.0f} %" for own in values)])
    return markdown(["test", *(f"size of S: {level}" for level in LEVELS)], rows, range(1, 5))


def graphs(seeds: int) -> Iterator[tuple[str, float, float]]:
    """Yield the test, the seconds and the structural Hamming distance of skeletons of additive-noise graphs."""
    for seed in range(-1, seeds):  # The first seed is not counted, because its searches compile and warm up.
        rng = np.random.default_rng([max(seed, 0), 1])
        edges = np.triu(rng.random((GRAPH_VARIABLES, GRAPH_VARIABLES)) < 0.3, 1).T
        data = rng.standard_normal((GRAPH_SAMPLES, GRAPH_VARIABLES))
        for v in range(GRAPH_VARIABLES):
            for u in np.flatnonzero(edges[v]):
                data[:, v] += 1.5 * EFFECTS[rng.integers(len(EFFECTS))](data[:, u])
        for name, (family, options) in TESTS.items():
            start = time.perf_counter()
            found = skeleton(data, 0.05, family=family, **options)
            seconds = time.perf_counter() - start
            if seed >= 0:
                yield name, seconds, np.count_nonzero(np.triu(found.adjacency ^ (edges | edges.T)))


def accuracy_table(outcomes: Sequence[tuple[str, float, float]]) -> str:
    rows = []
    for name in TESTS:
        seconds, distances = np.array([outcome[1:] for outcome in outcomes if outcome[0] == name]).T
        rows.append([name, f"{np.median(seconds):.2g}", f"{distances.mean():.1f}"])
    return markdown(["test", "median seconds a search", "mean structural Hamming distance"], rows, range(1, 3))


def draw(found: Mapping[tuple[str, int], np.ndarray], outcomes: Sequence[tuple[str, float, float]], path: Path) -> None:
    """Draw the distributions of p-values under independence, and accuracy against time."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "kernel", "font.size": 8})
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(9, 3), layout="constrained")
    for ax, level in zip(axes, (1, 3), strict=False):
        ax.plot([0, 1], [0, 1], color="#999999", linewidth=1)
        for (name, n), values in found.items():
            own = np.sort(values[level])
            label = f"{name}, n = {n:,}"
            ax.plot(
                own, (np.arange(len(own)) + 1) / len(own), color=COLOURS[name], ls="-" if n == 200 else ":", label=label
            )
        ax.set(title=f"independence, |S| = {level}", xlabel="p-value", ylabel="share of draws up to it")
    axes[1].legend(fontsize=6, frameon=False)
    for name in TESTS:
        seconds, distances = np.array([outcome[1:] for outcome in outcomes if outcome[0] == name]).T
        axes[2].plot(np.median(seconds), distances.mean(), "o", color=COLOURS[name])
        axes[2].annotate(name, (np.median(seconds), distances.mean()), xytext=(4, 4), textcoords="offset points")
    axes[2].set(xscale="log", xlabel="seconds a search", ylabel="structural Hamming distance")
    axes[2].set_title(f"{GRAPH_VARIABLES} variables, {GRAPH_SAMPLES} samples")
    axes[2].margins(0.3)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m workflow.pages.kernel", description=__doc__)
    parser.add_argument("--page", type=Path, help="the page whose tables are replaced (default: they are printed)")
    parser.add_argument("--figure", type=Path, help="where the figure goes")
    parser.add_argument("--seeds", type=int, default=2000, help="draws of the calibration (default: %(default)s)")
    parser.add_argument("--power-seeds", type=int, default=100, help="draws of the power (default: %(default)s)")
    parser.add_argument("--graphs", type=int, default=10, help="graphs of the accuracy (default: %(default)s)")
    options = parser.parse_args(arguments)
    found = {(name, n): p_values(name, n, options.seeds, 0.0) for n, names in CALIBRATED.items() for name in names}
    outcomes = list(graphs(options.graphs))
    device = open_backend("auto").describe()["device"]
    tables = {
        "calibration": calibration_table(found),
        "power": power_table(options.power_seeds),
        "accuracy": f"Measured on: {device}.\n\n{accuracy_table(outcomes)}",
    }
    if options.figure:
        draw(found, outcomes, options.figure)
    if not options.page:
        print("\n\n".join(tables.values()))
        return
    text = options.page.read_text()
    for name, table in tables.items():
        begin, end = f"<!-- {name} -->\n", "<!-- end -->"
        head, _, rest = text.partition(begin)
        text = f"{head}{begin}\n{table}\n\n{end}{rest.partition(end)[2]}"
    options.page.write_text(text)


if __name__ == "__main__":
    main()
