"""The growth of pair-scan's time, from made-up records."""

from pathlib import Path

import matplotlib.pyplot as plt
import pytest

from gpupc_impl.core.files import read_csv
from gpupc_impl.reporting.papers import pair_scan

REPORTED = read_csv(Path(__file__).parents[3] / "results/reported/ooc_table1.csv")


def record(dataset, backend, seconds, status="ok"):
    return {
        "setting": "pair-scan",
        "method": "pair-scan",
        "family": "gaussian",
        "reference": False,
        "backend": backend,
        "dataset": {"name": dataset},
        "status": status,
        "why": None if status == "ok" else "a reason",
        "time_s": {"warm": [seconds] * 3, "levels": [[0.1 * seconds, 0.5 * seconds]] * 3} if status == "ok" else {},
        "result": {} if status == "ok" else None,
    }


@pytest.mark.parametrize("power", [1, 2.5])
def test_the_exponent_of_a_power_law(power):
    assert pair_scan.exponent([(p, 0.3 * p**power) for p in (100, 1000, 7000)]) == pytest.approx(power)


def test_backends_are_lines_of_their_own_and_what_failed_is_a_row(load):
    graphs = {"g100": 100, "g200": 200, "g400": 400}
    runs = load(
        [record(name, "host", p**3 / 1e6) for name, p in graphs.items() if p < 400]
        + [record(name, "cuda", p**2 / 1e6) for name, p in graphs.items() if p < 400]
        + [record("g400", "cuda", 0, status="oom")]
    )
    drawing = pair_scan.pair_scan_scaling(runs, {"p": graphs}, REPORTED)
    (axes,) = drawing.figure.axes
    lines = {line.get_label(): list(zip(*line.get_data(), strict=True)) for line in axes.lines}
    assert lines["whole, cuda"] == [(100, pytest.approx(0.01)), (200, pytest.approx(0.04))]
    assert lines["level 1, host"] == [(100, pytest.approx(0.5)), (200, pytest.approx(4))]
    assert lines["block-based, paper (V100)"] == [(55572, pytest.approx(0.46 * 3600))]
    assert "whole, host: time grows as p to the power of 3.00" in drawing.figure.get_suptitle()
    assert "level 1, cuda: time grows as p to the power of 2.00" in drawing.figure.get_suptitle()
    assert [(row["backend"], row["variables"], row["status"]) for row in drawing.rows][:3] == [
        ("cuda", 100, "ok"),
        ("cuda", 200, "ok"),
        ("cuda", 400, "oom"),
    ]
    plt.close(drawing.figure)
