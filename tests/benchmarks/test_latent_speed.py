"""The time of RFCI and FCI at p = 400 (1,000 samples, mean degree 3, 20 hidden variables, alpha 0.01), and beside it
that of andrey-core's FCI where it is installed, in turns.

``pytest -m slow tests/benchmarks/test_latent_speed.py -s`` prints the medians.
"""

import statistics
import time

import pytest

from gpupc_impl import fci
from tests.golden.test_latent_pags import linear_gaussian

pytestmark = pytest.mark.slow
REPEATS = 5


def test_beside_andrey():
    values = linear_gaussian(400)
    programs = {name: lambda name=name: fci(values, algorithm=name) for name in ("rfci", "fci")}
    try:
        import andrey

        programs["andrey-core"] = lambda: andrey.fci(values, alpha=0.01)
    except ImportError:
        pass
    seconds = {name: [] for name in programs}
    for run in programs.values():
        run()
    for _ in range(REPEATS):
        for name, run in programs.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    for name, times in seconds.items():
        print(f"{name}: {statistics.median(times):.3f} s ({min(times):.3f} to {max(times):.3f})")
    if "andrey-core" in seconds:
        assert statistics.median(seconds["fci"]) * 10 < statistics.median(seconds["andrey-core"])
    assert statistics.median(seconds["rfci"]) < 5
