"""PCMCI and PCMCI+ beside tigramite and andrey-core, on the same series, in turns.

andrey-core is imported where it is installed, and runs only where it accepts the number of steps. Tigramite runs with
10 variables alone unless slow tests are wanted, since it takes minutes with 50.
"""

import time

import numpy as np
import pytest

from gpupc_impl import pcmci
from tests.time_series_systems import random_series

TURNS = 3
TAU_MAX = 5


def ours(values, plus):
    return pcmci(values, tau_max=TAU_MAX, alpha=0.01, contemporaneous=plus).graph


def tigramites(values, plus):
    from tigramite.data_processing import DataFrame
    from tigramite.independence_tests.parcorr import ParCorr
    from tigramite.pcmci import PCMCI

    search = PCMCI(DataFrame(values), ParCorr())
    if plus:
        return search.run_pcmciplus(tau_max=TAU_MAX, pc_alpha=0.01)["graph"]
    return search.run_pcmci(tau_max=TAU_MAX, pc_alpha=0.2, alpha_level=0.01)["graph"]


def andreys(values, plus):
    import andrey

    if plus:
        return andrey.pcmciplus(values, tau_max=TAU_MAX, pc_alpha=0.01)
    return andrey.pcmci(values, tau_max=TAU_MAX, pc_alpha=0.2, alpha_level=0.01)


PEERS = {"tigramite": tigramites, "andrey": andreys}


@pytest.mark.slow
@pytest.mark.parametrize("plus", [False, True], ids=["pcmci", "pcmci+"])
@pytest.mark.parametrize(("peer", "n"), [("tigramite", 10), ("tigramite", 50), ("andrey", 50), ("andrey", 100)])
def test_beside_other_packages(peer, n, plus):
    pytest.importorskip(peer)
    values = random_series(1, n, TAU_MAX, 1000 if n < 100 else 1200)  # andrey-core refuses 1,000 steps of 100 variables
    ours(values, plus)  # compiles the kernel
    seconds = {"ours": [], peer: []}
    for _ in range(1 if peer == "tigramite" and n > 10 else TURNS):
        for name, search in (("ours", ours), (peer, PEERS[peer])):
            start = time.perf_counter()
            graph = search(values, plus)
            seconds[name].append(time.perf_counter() - start)
            if name == "tigramite":
                assert (graph == ours(values, plus)).all()
    medians = {name: float(np.median(each)) for name, each in seconds.items()}
    ratio = medians[peer] / medians["ours"]
    print(f"{'pcmci+' if plus else 'pcmci'} N={n}: {peer} {seconds[peer]}, ours {seconds['ours']}, ratio {ratio:.1f}")
