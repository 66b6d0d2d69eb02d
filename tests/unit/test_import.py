"""``import gpupc_impl`` is light, stands alone, and works with none of the optional libraries installed."""

import doctest
import json
import subprocess
import sys
from pathlib import Path

import pytest

import gpupc_impl

ROOT = Path(gpupc_impl.__file__).parents[1]
OPTIONAL = (
    *("cupy", "numba", "causallearn", "matplotlib", "snakemake", "pandas", "networkx", "tigramite", "pgmpy", "gpucsl"),
    *("anndata", "openpyxl", "pyarrow", "sklearn", "dask", "distributed"),
)

BLOCK = f"""
import sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {OPTIONAL!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Block())
"""


def run(code):
    """What a fresh interpreter prints, as JSON."""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_import_loads_nothing_heavy():
    loaded = run("import sys, json, gpupc_impl; print(json.dumps(sorted(sys.modules)))")
    packages = {name.partition(".")[0] for name in loaded}
    assert not packages & {*OPTIONAL, "numpy", "scipy", "baselines", "datasets", "workflow", "pytest"}
    assert not {"gpupc_impl.cli", "gpupc_impl.backends.cuda", "gpupc_impl.backends.host"} & set(loaded)


def test_a_search_loads_no_method_but_its_own_and_no_scipy():
    """Each would take as long as the search of a few variables."""
    code = "import sys, json, numpy, gpupc_impl; gpupc_impl.pc(numpy.random.default_rng(0).normal(size=(50, 4)))"
    loaded = run(f"{code}; print(json.dumps(sorted(sys.modules)))")
    assert not {name.partition(".")[0] for name in loaded} & {*OPTIONAL, "scipy", "baselines", "datasets"}
    assert not {"gpupc_impl.nonlinear", "gpupc_impl.distributed", "gpupc_impl.latent"} & set(loaded)


def test_the_command_line_and_the_list_of_methods_load_nothing_heavy():
    code = "import sys, json, gpupc_impl.cli; gpupc_impl.cli.arguments.parser(); started = sorted(sys.modules)"
    started, listing = run(f"{code}; gpupc_impl.methods(); print(json.dumps([started, sorted(sys.modules)]))")
    assert not {name.partition(".")[0] for name in listing} & {*OPTIONAL, "datasets", "workflow"}
    assert not {"scipy.special", "gpupc_impl.measurement.publish"} & set(started)
    assert "scipy.stats" not in listing, "twice the time that every worker takes to start"


def test_methods_are_listed_with_nothing_optional_installed():
    code = """
import json, gpupc_impl
from gpupc_impl.core.solve import unavailable
methods = gpupc_impl.methods()
print(json.dumps({name: unavailable(method, method.backends[0]) for name, method in methods.items()}))
"""
    reasons = run(BLOCK + code)
    assert reasons.keys() == gpupc_impl.methods().keys()
    serial = "stable-serial", "stable-parallel", "causal-learn"
    for name in ("cupc-s", *serial, "cupc-authors", "gpucsl", "gpucsl-discrete"):
        assert reasons[name], f"{name} cannot run here and must say why"


def test_every_public_name_is_there():
    assert all(hasattr(gpupc_impl, name) for name in gpupc_impl.__all__)
    assert len(set(gpupc_impl.__all__)) == len(gpupc_impl.__all__)
    assert set(run("import json, gpupc_impl; print(json.dumps(dir(gpupc_impl)))")) >= set(gpupc_impl.__all__)
    assert set(run("import json\nfrom gpupc_impl import *\nprint(json.dumps(dir()))")) >= set(gpupc_impl.__all__)
    with pytest.raises(AttributeError, match="'gpupc_impl' has no attribute 'skeletons'"):
        _ = gpupc_impl.skeletons


def test_the_example_in_the_docstring_is_true():
    failed, tried = doctest.testmod(gpupc_impl)
    assert tried > 0
    assert failed == 0
