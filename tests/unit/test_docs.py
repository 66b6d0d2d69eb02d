"""The documentation is true: its Python examples run, its commands are parsed, its links lead somewhere."""

import ast
import contextlib
import functools
import io
import json
import os
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from gpupc_impl.reporting.catalogue import entries

ROOT = Path(__file__).parents[2]
PAGES = [page for folder in ("", "docs", "docs/design") for page in sorted((ROOT / folder).glob("*.md"))]
PAGES.append(ROOT / "datasets" / "README.md")
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
"""Run as a whole by tests/unit/test_tutorials.py."""
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
ENVIRONMENT = set(re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/architecture.md").read_text(), re.MULTILINE))
"""The variables that docs/architecture.md lists."""

FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page, language):
    return [body for kind, body in FENCE.findall(page.read_text()) if kind == language]


RUN_EACH = """
import json, os, sys
import matplotlib.pyplot, networkx, pandas, scipy.stats  # which many pages import
from gpupc_impl import skeleton
from gpupc_impl.core import registry
registry.methods()
registry._discover.cache_clear()  # a page has methods of its own
for line in sys.stdin:
    page = json.loads(line)
    if (pid := os.fork()) == 0:
        os.chdir(page["folder"])
        os.dup2(os.open("said.txt", os.O_WRONLY | os.O_CREAT), 1)
        os.dup2(1, 2)
        for number, code in enumerate(page["examples"]):
            print("example", number, "of the page", file=sys.stderr, flush=True)
            exec(compile(code, f"<example {number}>", "exec"), {"__name__": "__main__"})
        sys.exit()
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def pages():
    """The process that is forked for each page."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", RUN_EACH], env=environment, **pipes) as process:
        yield process


@pytest.mark.xdist_group("pages")
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.name)
def test_python_examples_run(page, pages, tmp_path):
    """Examples run in a folder of their page's, with the data file `data.csv` that they speak of; none sees another's
    names, and no page what another did."""
    (tmp_path / "data.csv").write_text("a,b,c\n" + "\n".join(f"{k},{k * k % 7},{(k * 3) % 5}" for k in range(40)))
    pages.stdin.write(json.dumps({"folder": str(tmp_path), "examples": blocks(page, "python")}) + "\n")
    pages.stdin.flush()
    assert int(pages.stdout.readline()) == 0, (tmp_path / "said.txt").read_text()


@pytest.mark.parametrize(
    "code", [pytest.param(body, id=f"{page.name}-{k}") for page in PAGES for k, body in enumerate(blocks(page, "bash"))]
)
def test_command_works_as_shown(code):
    """Everything that a command names is there: targets, modules and their options, files, extras."""
    for line in filter(None, re.sub(r"\\\n", " ", code).splitlines()):
        words = shlex.split(line, comments=True)
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            assert words.pop(0).split("=")[0] in ENVIRONMENT, line
        match words:
            case []:
                pass
            case ["make", target, *variables]:
                assert {target} <= names(r"^([a-z-]+):"), line
                assert {variable.split("=")[0] for variable in variables} <= names(r"^([A-Z]+) \?="), line
                assert_files_are_there(variables)
            case ["python", "-m", "pytest", *arguments]:
                assert_files_are_there([argument.split("::")[0] for argument in arguments])
            case ["python", "-m", module, *arguments]:
                assert_options([module], arguments)
            case ["gpupc", *arguments]:
                assert_options(["gpupc", *arguments[: 2 if arguments[:1] == ["records"] else 1]], arguments)
            case ["snakemake", *arguments]:
                assert_options(["snakemake"], arguments)
                assert_files_are_there(arguments)
                targets = {*entries(), "record"}
                assert arguments[-1] in targets or arguments[-2:-1] == ["--cores"]  # else it makes everything
            case ["pip", "install" | "download", *arguments]:
                assert_files_are_there(arguments)
                assert set(re.findall(r"\[(\w+)\]", line)) <= EXTRAS.keys(), line
            case ["pre-commit", "install" | "run", *_]:
                assert (ROOT / ".pre-commit-config.yaml").is_file()
            case _:
                pytest.fail(f"nobody checks this command: {line}")


def names(pattern):
    """What the Makefile defines."""
    return set(re.findall(pattern, (ROOT / "Makefile").read_text(), re.MULTILINE))


def assert_files_are_there(words):
    for word in words:
        path = word.split("=")[-1]
        if re.fullmatch(r"(config|tests|workflow|results/recorded)/[\w./-]+|[\w-]+\.txt", path):
            assert (ROOT / path).exists(), path


def assert_options(command, arguments):
    options = {argument.split("=")[0] for argument in arguments if argument.startswith("--")}
    assert options <= known_options(*command), options


@functools.cache
def known_options(*command):
    """What `python -m MODULE WORDS... --help` shows, in this process, which has imported most of it."""
    shown = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(shown):
        patch.setattr(sys, "argv", [*command, "--help"])
        with pytest.raises(SystemExit) as ended:
            runpy.run_module(command[0], run_name="__main__", alter_sys=True)
    assert not ended.value.code
    return set(re.findall(r"--[a-z-]+", shown.getvalue()))


WALKS = (ROOT / "docs/architecture.md").read_text().partition("## Three walks")[2].partition("\n## ")[0]


def test_walks_go_through_code_that_is_there():
    stops = re.findall(r"^\d+\. `([\w.]+)[^`]*` \(`([\w/]+\.py)`(?:, `([\w/]+\.py)`)?\)", WALKS, re.MULTILINE)
    assert len(stops) == len(re.findall(r"^\d+\. ", WALKS, re.MULTILINE))
    for name, *paths in stops:
        for path in filter(None, paths):
            tree = ast.parse((ROOT / "gpupc_impl" / path).read_text())
            named = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
            assert name.split(".")[-1] in named, f"{name} is not in {path}"


@pytest.mark.parametrize("page", [*PAGES, *TUTORIALS], ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if not target.startswith("https://"):
            assert (page.parent / target).exists(), target
    for source in re.findall(
        r"`((?:gpupc_impl|baselines|datasets|workflow|config|results|tests)/[\w./-]+)`", page.read_text()
    ):
        if not source.startswith("results/") and "NAME" not in source:
            assert (ROOT / source).exists(), source


def test_the_site_is_built_strictly(tmp_path):
    """Links, anchors, the navigation and the docstrings of the API hold; pages from outside docs are in it, too."""
    pytest.importorskip("material")
    pytest.importorskip("mkdocstrings")
    mkdocs = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(mkdocs, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name in ("api", "changelog", "datasets", "tutorials/sachs"):
        assert (tmp_path / f"{name}.html").is_file()
    assert 'id="gpupc_impl.skeleton"' in (tmp_path / "api.html").read_text()
    assert 'href="../datasets.html"' in (tmp_path / "tutorials/sachs.html").read_text()


def test_a_page_that_nobody_placed_is_in_the_navigation(tmp_path):
    pytest.importorskip("mkdocs")
    from mkdocs.config.defaults import MkDocsConfig

    from workflow.pages import site

    for name in ("index.md", "new.md", "deep/other.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    config = MkDocsConfig()
    navigation = [{"Start": ["index.md"]}, {"Elsewhere": "https://example.org"}]
    config.load_dict({"docs_dir": str(tmp_path), "nav": navigation})
    assert site.on_config(config).nav[-1] == {"More": ["deep/other.md", "new.md"]}
    config.nav = ["index.md", {"New": "new.md"}, {"Deep": [{"Other": "deep/other.md"}]}]
    assert len(site.on_config(config).nav) == 3
