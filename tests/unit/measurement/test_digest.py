"""What the sources of a script and of a method are, and which edits change a digest."""

import os
import re
import subprocess
import sys

import pytest

from gpupc_impl.core.registry import Method, methods
from gpupc_impl.measurement import digest
from gpupc_impl.measurement.digest import CPP, ROOT, code_sources, code_version, is_stale, sources

FILES = {
    "__init__.py": "",
    "one.py": "from gpupc_impl.core import pairs\nSOURCE = 'kernels/one.cu'\n",
    "two.py": "def late(n):\n    import gpupc_impl.core.tiers\n    return f'kernels/{n}.cu'\n",
    "kernels/one.cu": '#include "shared.cuh"\n#include <nowhere>\n',
    "kernels/shared.cuh": "int shared;\n",
}


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """A package of two methods with kernels, outside of the project."""
    folder = tmp_path / "versioned_package"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    for name in [name for name in sys.modules if name.startswith("versioned_package")]:
        del sys.modules[name]


def names(paths):
    return {path.relative_to(ROOT).as_posix() for path in paths}


def test_a_plugin_counts_whole_with_what_it_imports(plugin):
    about = {"family": "gaussian", "backends": ("cpu",), "source": "", "summary": ""}
    method = Method(name="m", **about, solve=None, module="versioned_package.one")
    found = code_sources(method, "cpu")
    assert {path for path in found if path.is_relative_to(plugin)} == {plugin / name for name in FILES}
    assert ROOT / "gpupc_impl/core/tiers.py" in found
    for name in FILES:
        before = code_version(method, "cpu")
        added = "edited = 1\n" if name.endswith("py") else "int x;\n"
        (plugin / name).write_text((plugin / name).read_text() + added)
        assert code_version(method, "cpu") != before, name


def test_modules_that_strings_name_count_for_scripts_alone():
    script = "workflow/scripts/verify.py"
    assert "gpupc_impl/discrete/retest.py" in names(sources(script)) - names(sources(script, named=False))


def test_a_library_that_an_environment_variable_names_counts(tmp_path, monkeypatch):
    method = methods()["cupc-authors"]
    monkeypatch.delenv("GPUPC_CUPC_LIBRARY", raising=False)
    alone = code_version(method, "cuda")
    is_stale.cache_clear()
    assert is_stale("cupc-authors", "cuda", "0" * 64) is None
    monkeypatch.setenv("GPUPC_CUPC_LIBRARY", str(tmp_path / "library.so"))
    (tmp_path / "library.so").write_bytes(b"\x7fELF")
    is_stale.cache_clear()
    assert code_version(method, "cuda") != alone
    assert is_stale("cupc-authors", "cuda", "0" * 64) is True
    assert is_stale("cupc-authors", "cuda", code_version(method, "cuda")) is False
    is_stale.cache_clear()


def test_a_root_that_is_not_there_is_named():
    for root in ("workflow/scripts/none.py", "datasets.nothing"):
        with pytest.raises(ValueError, match=f"{re.escape(root)} is no module and no script"):
            sources(root)


@pytest.mark.parametrize(
    ("suffix", "one", "other", "same"),
    [
        (".py", "x = 1", "x = (1)  # a comment\n\n", True),
        (".py", '"""One."""\nx = 1\n"""What x is."""', '"""Other."""\nx = 1', True),
        (".py", "import typing\nif typing.TYPE_CHECKING:\n    import numpy", "import typing", True),
        (".py", "x = 1", "x = 2", False),
        (".py", "if a:\n    b\n    c", "if a:\n    b\nc", False),
        (".cu", "int x = 1;", "int x =\n   1;  // one\n", True),
        (".cu", "int x;", '/* x:\n * the "one" */ int\nx;\n', True),
        (".cu", "int x = 1;", "int x = 2;", False),
        (".cu", 'puts("a // b");', 'puts("a ");', False),
        (".cu", "char c = '\"'; // \"", "char c = '\\''; // \"", False),
        (".json", "{}", "{ }", False),
    ],
)
def test_an_edit_changes_a_digest_unless_it_is_of_words(tmp_path, suffix, one, other, same):
    paths = [tmp_path / f"{name}{suffix}" for name in ("one", "other")]
    for path, text in zip(paths, (one, other), strict=True):
        path.write_text(text)
    contents = [digest._sha256_of(path, 0, 0) for path in paths]
    assert (contents[0] == contents[1]) == same


def test_what_files_say_is_kept_for_later_processes(tmp_path):
    """A process that finds it reads no Python file; one that finds a damaged file reads all, with the same digest."""
    code = "from gpupc_impl.measurement import digest; {}; print(digest.digest('workflow/scripts/verify.py'))"
    environment = os.environ | {"GPUPC_CACHE_DIR": str(tmp_path / "cache")}

    def digest_after(statement):
        command = [sys.executable, "-c", code.format(statement)]
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout

    first = digest_after("pass")
    assert digest_after("digest._read = None") == first
    (kept,) = (tmp_path / "cache/digests").iterdir()
    kept.write_text(kept.read_text()[:-10])
    assert digest_after("pass") == first == digest_after("digest._read = None")


def test_every_method_counts_the_kernels_it_can_run_and_no_other_familys_code():
    families = {"gaussian", "discrete", "nonlinear", "mixed", "kernel", "regression"}
    built_on = {"mixed": {"mixed", "nonlinear"}}
    by_libraries = ("kernel", "regression")  # Their products and factors are those of CuPy and NumPy.
    for method in methods().values():
        for backend in method.backends:
            found = names(path for path in code_sources(method, backend) if path.is_relative_to(ROOT))
            kernels = [name for name in found if name.endswith(".cu") and not name.startswith("gpupc_impl/backends/")]
            ours = method.module.startswith("gpupc_impl")  # The authors' programs have kernels of their own.
            assert bool(kernels) == (backend != "cpu" and ours and method.family not in by_libraries), method.name
            assert {"gpupc_impl/core/result.py", "gpupc_impl/measurement/clock.py"} <= found
            assert f"gpupc_impl/{method.family}/problem.py" in found
            assert "gpupc_impl/measurement/worker.py" not in found
            others = families - built_on.get(method.family, {method.family})
            foreign = [name for name in found if re.match(rf"gpupc_impl/({'|'.join(others)})/", name)]
            beyond = [name for name in foreign if not name.endswith((".cuh", "problem.py", "__init__.py"))]
            assert not ours or not beyond, method.name  # An authors' program may serve two families by one module.


def test_sources_of_the_backends():
    cuda, host = (names(code_sources(methods()["cupc-s"], backend)) for backend in ("cuda", "host"))
    assert "gpupc_impl/backends/cuda.py" in cuda - host
    assert {"gpupc_impl/backends/host.py", "gpupc_impl/backends/simt/runtime.cpp"} <= host - cuda
    assert {"gpupc_impl/backends/base.py", "gpupc_impl/gaussian/kernels/fisher_z.cuh"} <= cuda & host


def test_every_kernel_counts_for_some_method():
    counted = {path for m in methods().values() for backend in m.backends for path in code_sources(m, backend)}
    kernels = {path for path in ROOT.glob("gpupc_impl/**/*") if path.suffix in CPP[:2]}
    # No recorded run is of a search in time series, which is no method of a family.
    assert {path for path in kernels if "time_series" not in path.parts} <= counted
