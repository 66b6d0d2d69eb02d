"""What the sources of a script and of a method are, and that a change in any of them changes the digest."""

import re
import sys
from pathlib import Path

import pytest

from gpupc_impl.core.registry import Method, methods
from gpupc_impl.measurement import digest, exclusions
from gpupc_impl.measurement.normal_form import python_form, python_tree

ROOT = Path(__file__).parents[3]

CLOCK = Method(
    name="timed",
    family="gaussian",
    backends=("cpu",),
    source="",
    summary="",
    solve=None,
    module="gpupc_impl.measurement.clock",
)
ALWAYS = digest.code_sources(CLOCK, "cpu")
"""What counts for every method on Gaussian data."""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of two methods that share a helper, one of which has a kernel."""
    folder = tmp_path / "versioned_package"
    (folder / "kernels").mkdir(parents=True)
    (folder / "inner").mkdir()
    files = {
        "__init__.py": "from versioned_package import two\n",
        "one.py": "from versioned_package.helper import f\nNAME = 'one'\nSOURCE = 'kernels/one.cu'\n",
        "two.py": "def late():\n    from . import helper\nNAME = 'two'\nPARTS = 'versioned_package.named'\n",
        "dynamic.py": "NAME = 'dynamic'\ndef source(n):\n    return f'kernels/{n}.cu'\n",
        "helper.py": "import typing\nf = 'table.json'\nif typing.TYPE_CHECKING:\n    from . import two\n",
        "named.py": "from versioned_package.inner.deep import g\n",
        "inner/__init__.py": "",
        "inner/deep.py": "",
        "table.json": "{}\n",
        "found.py": "def load(name):\n    return f'versioned_package.inner.{name}'\n",
        "kernels/one.cu": '#include "shared.cuh"\n#include <nowhere>\n',
        "kernels/shared.cuh": "// shared\n",
        "kernels/other.cu": "// other\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    for name in [name for name in sys.modules if name.startswith("versioned_package")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("name", "module", "files"),
    [
        ("one", "one", {"one.py", "helper.py", "table.json", "one.cu", "shared.cuh"}),
        ("two", "two", {"two.py", "helper.py", "table.json"}),
        ("dynamic", "dynamic", {"dynamic.py", "one.cu", "shared.cuh", "other.cu"}),
        (
            "registered elsewhere",
            "helper",
            {"__init__.py", "one.py", "two.py", "dynamic.py", "helper.py", "named.py", "deep.py", "found.py"}
            | {"table.json", "one.cu", "shared.cuh", "other.cu"},
        ),
    ],
)
def test_sources_of_a_method(package, name, module, files):
    method = Method(
        name=name,
        family="gaussian",
        backends=("cpu",),
        source="",
        summary="",
        solve=None,
        module=f"versioned_package.{module}",
    )
    found = {source: path for source, path in digest.code_sources(method, "cpu").items() if source not in ALWAYS}
    assert {path.name for path in found.values()} == files
    for path in [path for path in package.rglob("*.*") if path.suffix != ".pyc"]:
        before = digest.code_version(method, "cpu")
        path.write_text(path.read_text() + ("int edited;" if path.parent.name == "kernels" else "edited = 1\n"))
        assert (digest.code_version(method, "cpu") != before) == (path in found.values()), path.name


def test_modules_that_strings_name_count_for_scripts(package):
    names = {"two.py", "helper.py", "table.json", "named.py", "inner/__init__.py", "inner/deep.py"}
    assert set(digest.sources("versioned_package.two")) == {f"versioned_package/{name}" for name in names}
    assert "versioned_package/inner/deep.py" in digest.sources("versioned_package.found")
    assert set(digest.sources("versioned_package.found", named=False)) == {"versioned_package/found.py"}


def test_a_file_that_an_environment_variable_names_counts(package, tmp_path, monkeypatch):
    (package / "found.py").write_text("LIBRARY = 'GPUPC_SOME_LIBRARY'\n")
    alone = digest.sources("versioned_package.found")
    (tmp_path / "library.so").write_bytes(b"\x7fELF")
    monkeypatch.setenv("GPUPC_SOME_LIBRARY", str(tmp_path / "library.so"))
    assert set(digest.sources("versioned_package.found").values()) - set(alone.values()) == {tmp_path / "library.so"}
    assert digest.sources("versioned_package.found").keys() - alone.keys() == {"library.so"}  # wherever it lies
    monkeypatch.setenv("GPUPC_SOME_LIBRARY", str(tmp_path))
    assert digest.sources("versioned_package.found") == alone


def test_a_root_that_is_not_there_is_named():
    with pytest.raises(ValueError, match=r"workflow/scripts/none\.py is no module"):
        digest.sources("workflow/scripts/none.py")
    with pytest.raises(ValueError, match=r"datasets\.nothing is no module"):
        digest.sources("datasets.nothing")


def test_exclusions_name_what_is_there():
    tables = (
        exclusions.EXCLUDED,
        exclusions.EXCLUDED_OF_SCRIPTS,
        exclusions.EXCLUDED_OF_METHODS,
        exclusions.DOCSTRINGS_COUNT,
        *exclusions.EXCLUDED_OF_BACKENDS.values(),
    )
    for pattern in (pattern for table in tables for pattern in table):
        file, _, definition = pattern.partition(":")
        paths = list(ROOT.glob(file))
        assert paths, pattern
        if definition:
            forms = [
                [python_form(python_tree(path.read_bytes(), names)) for path in paths] for names in ((), [definition])
            ]
            assert forms[0] != forms[1], pattern


def test_every_method_counts_the_kernels_it_can_run_and_no_other_familys_code():
    families = {"gaussian", "discrete", "nonlinear", "mixed", "kernel", "regression"}
    built_on = {"mixed": {"mixed", "nonlinear"}}
    for method in methods().values():
        for backend in method.backends:
            names = list(digest.code_sources(method, backend))
            kernels = [name for name in names if name.endswith(".cu") and not name.startswith("gpupc_impl/backends/")]
            ours = method.module.startswith("gpupc_impl")  # the authors' programs have kernels of their own
            by_libraries = method.family in (
                "kernel",
                "regression",
            )  # its products and factors are those of CuPy and NumPy
            assert bool(kernels) == (backend != "cpu" and ours and not by_libraries), method.name
            assert {"gpupc_impl/core/result.py", "gpupc_impl/core/pc_stable.py"} <= set(names)
            assert f"gpupc_impl/{method.family}/problem.py" in names
            others = families - built_on.get(method.family, {method.family})
            foreign = [name for name in names if re.match(rf"gpupc_impl/({'|'.join(others)})/", name)]
            beyond = [name for name in foreign if not name.endswith((".cuh", "problem.py", "__init__.py"))]
            assert not ours or not beyond, method.name  # an authors' program may serve two families by one module


def test_sources_of_the_backends():
    method = methods()["cupc-s"]
    cuda, host = (set(digest.code_sources(method, backend)) for backend in ("cuda", "host"))
    assert "gpupc_impl/backends/cuda.py" in cuda - host
    assert {"gpupc_impl/backends/host.py", "gpupc_impl/backends/simt/runtime.cpp"} <= host - cuda
    assert {"gpupc_impl/backends/base.py", "gpupc_impl/gaussian/kernels/fisher_z.cuh"} <= cuda & host


def test_every_kernel_counts_for_some_method():
    counted = {name for m in methods().values() for backend in m.backends for name in digest.code_sources(m, backend)}
    kernels = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("gpupc_impl/**/*.cu*")}
    assert kernels <= counted
