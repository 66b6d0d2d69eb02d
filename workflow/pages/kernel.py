"""Makes the tables and the figure of docs/kernel.md.

``python -m workflow.pages.kernel results/kernel`` makes the measurements that are missing in that folder; with
``--backend cuda`` it makes the measurements for a GPU. With ``--page docs/kernel.md --figure docs/images/kernel.svg``
it measures nothing, and writes the results between the marks of the page.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from gpupc_impl.reporting.tables import markdown
from workflow.pages import kernel_runs as runs
from workflow.pages import marks

COLOURS = dict(
    zip(
        runs.TESTS,
        ("#0072B2", "#56B4E9", "#009E73", "#999999", "#D55E00", "#CC79A7", "#000000"),
        strict=True,
    )
)
PARTS = {
    "host": ("calibration", "power", "accuracy", "speed", "searches"),
    "cuda": ("calibration", "speed", "searches"),
}

Lines = Sequence[Mapping[str, Any]]


def draws(lines: Lines, part: str) -> dict[tuple[str, int], np.ndarray]:
    """Return (levels, draws) p-values by test and number of samples."""
    batches: dict[tuple[str, int], list[np.ndarray]] = {}
    own = [line for line in lines if line["part"] == part]
    for line in sorted(own, key=lambda line: (line["samples"], [*runs.TESTS].index(line["test"]))):
        batches.setdefault((line["test"], line["samples"]), []).append(np.array(line["p_values"]))
    return {key: np.concatenate(parts, axis=1) for key, parts in batches.items()}


def calibration_table(lines: Lines) -> str:
    rows = []
    for (name, n), values in draws(lines, "calibration").items():
        for level, own in enumerate(values):
            ks = stats.kstest(own, "uniform")
            shares = [f"{100 * np.mean(own < alpha):.1f} %" for alpha in (0.05, 0.01)]
            rows.append([name, f"{n:,}", str(level), f"{len(own):,}", *shares, f"{ks.statistic:.3f}"])
    header = ["test", "samples", "size of S", "draws", "p < 0.05", "p < 0.01", "Kolmogorov-Smirnov distance"]
    return markdown(header, rows, range(1, 7))


def power_table(lines: Lines) -> str:
    rows = []
    for (name, _), values in draws(lines, "power").items():
        rows.append([name, f"{values.shape[1]:,}", *(f"{100 * np.mean(own < 0.05):.0f} %" for own in values)])
    return markdown(["test", "draws", *(f"size of S: {level}" for level in runs.LEVELS)], rows, range(1, 6))


def accuracies(lines: Lines) -> dict[str, np.ndarray]:
    """Return (2, graphs) seconds and distances by test."""
    by_test: dict[str, list[tuple[float, float]]] = {}
    for line in lines:
        if line["part"] == "accuracy":
            by_test.setdefault(line["test"], []).append((line["seconds"], line["distance"]))
    return {name: np.array(own).T for name, own in by_test.items()}


def accuracy_table(lines: Lines) -> str:
    rows = []
    for name, (seconds, distances) in accuracies(lines).items():
        error = distances.std(ddof=1) / len(distances) ** 0.5
        rows.append([name, str(len(distances)), f"{np.median(seconds):.2g}", f"{distances.mean():.1f} ± {error:.1f}"])
    header = ["test", "graphs", "median seconds a search", "mean structural Hamming distance, standard error"]
    return f"Measured on: {devices(lines, 'accuracy')}.\n\n{markdown(header, rows, range(1, 4))}"


def speed_table(lines: Lines) -> str:
    rows = []
    for line in lines:
        if line["part"] == "speed":
            ours, theirs = line["seconds"], line["their_seconds"]
            where = f"{line['device']}, {line['threads']} cores" if line["backend"] == "host" else line["device"]
            row = [line["test"].upper(), f"{line['samples']:,}", str(line["level"]), line["core"]]
            rows.append([*row, f"{1e3 * theirs:,.0f}", where, f"{1e3 * ours:.3g}", f"{theirs / ours:,.0f}"])
    header = ["test", "samples", "size of S", "causal-learn on one core of", "ms", "here on", "ms", "times"]
    return markdown(header, rows, (1, 2, 4, 6, 7))


def searches_table(lines: Lines) -> str:
    rows = []
    for line in lines:
        if line["part"] == "searches":
            numbers = (f"{line[name]:,}" for name in ("variables", "samples", "tests", "levels", "edges"))
            rows.append([line["data"], line["test"].upper(), line["device"], *numbers, f"{line['seconds']:.2g}"])
    header = ["data", "test", "on", "variables", "samples", "tests", "levels", "edges", "seconds"]
    return markdown(header, rows, range(3, 9))


def devices(lines: Lines, part: str) -> str:
    return ", ".join(sorted({line["device"] for line in lines if line["part"] == part}))


def draw(lines: Lines, path: Path) -> None:
    """Draw the share of p-values below 0.05 under independence by the size of the set, and accuracy against time."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "kernel", "font.size": 8})
    import matplotlib.pyplot as plt

    calibrated = draws(lines, "calibration")
    figure, axes = plt.subplots(1, 3, figsize=(9.5, 3.2), layout="constrained", width_ratios=(1, 1, 1.3))
    for ax, n in zip(axes, (200, 1000), strict=False):
        ax.axhline(5, color="#999999", linewidth=1)
        for (name, samples), values in calibrated.items():
            if samples == n:
                ax.plot(runs.LEVELS, 100 * np.mean(values < 0.05, axis=1), "o-", ms=3, color=COLOURS[name], label=name)
        ax.set(title=f"independence, {n:,} samples", xlabel="size of S", xticks=runs.LEVELS, yscale="log")
        ax.set(ylim=(2, 60), yticks=(2, 5, 10, 20, 50), yticklabels=(2, 5, 10, 20, 50))
        ax.minorticks_off()
    axes[0].set_ylabel("% of p-values below 0.05")
    axes[0].legend(fontsize=6, frameon=False)
    for name, (seconds, distances) in accuracies(lines).items():
        at = np.median(seconds), distances.mean()
        error = distances.std(ddof=1) / len(distances) ** 0.5
        axes[2].errorbar(*at, error, fmt="o", color=COLOURS[name], capsize=2)
        axes[2].annotate(name, at, xytext=(5, 4), textcoords="offset points")
    axes[2].set(xscale="log", xlabel="seconds a search", ylabel="structural Hamming distance")
    axes[2].set_title(f"graphs of {runs.GRAPH_VARIABLES} variables, {runs.GRAPH_SAMPLES} samples")
    axes[2].margins(0.25)
    axes[2].set_ylim(bottom=-0.3)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)


TABLES = {
    "calibration": calibration_table,
    "power": power_table,
    "accuracy": accuracy_table,
    "speed": speed_table,
    "searches": searches_table,
}
"""The page's tables, by the name in the comment before each."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m workflow.pages.kernel", description=__doc__)
    parser.add_argument("results", type=Path, help="the folder of the results")
    parser.add_argument("--page", type=Path, help="the page whose tables are replaced")
    parser.add_argument("--figure", type=Path, help="where the figure goes")
    parser.add_argument("--backend", choices=PARTS, default="host", help="where to measure (default: %(default)s)")
    parser.add_argument("--parts", nargs="+", choices=PARTS["host"], help="what to measure (default: all)")
    parser.add_argument("--seeds", type=int, default=2000, help="draws of the calibration (default: %(default)s)")
    parser.add_argument("--power-seeds", type=int, default=200, help="draws of the power (default: %(default)s)")
    parser.add_argument("--graphs", type=int, default=10, help="graphs of the accuracy (default: %(default)s)")
    options = parser.parse_args(arguments)
    if options.page or options.figure:
        lines = runs.read(options.results)
        if options.page:
            marks.replace(options.page, {name: make(lines) for name, make in TABLES.items()})
        if options.figure:
            draw(lines, options.figure)
        return
    results = runs.Results(options.results, options.backend)
    counts = {"calibration": (options.seeds,), "power": (options.power_seeds,), "accuracy": (options.graphs,)}
    for part in options.parts or PARTS[options.backend]:
        getattr(runs, part)(results, *counts.get(part, ()))


if __name__ == "__main__":
    main()
