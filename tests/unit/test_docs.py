"""The documentation is true: its Python examples run, its commands are parsed, its links lead somewhere."""

import functools
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "datasets" / "README.md"]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(language):
    return [
        pytest.param(body, id=f"{page.name}-{number}")
        for page in PAGES
        for number, (kind, body) in enumerate(FENCE.findall(page.read_text()))
        if kind == language
    ]


@functools.cache
def shown_help(command):
    done = subprocess.run([sys.executable, "-m", "gpupc_impl", command, "--help"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("code", blocks("python"))
def test_python_example_runs(code, tmp_path):
    """Examples run in a folder of their own, with the data file `data.csv` that they speak of."""
    (tmp_path / "data.csv").write_text("a,b,c\n" + "\n".join(f"{k},{k * k % 7},{(k * 3) % 5}" for k in range(40)))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("code", blocks("bash"))
def test_command_exists(code):
    """Make targets exist; the command line accepts the options shown."""
    for line in filter(None, re.sub(r"\\\n", " ", code).splitlines()):
        words = shlex.split(line, comments=True)
        if not words:
            continue
        if words[0] == "make":
            targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
            assert next(w for w in words[1:] if "=" not in w) in targets, line
        elif words[:3] == ["python", "-m", "gpupc_impl"]:
            options = {word for word in words[3:] if word.startswith("--")}
            assert all(option in shown_help(words[3]) for option in options), line
        elif words[0] in ("snakemake", "git", "cd", "pip", "python", "export"):
            continue
        else:
            pytest.fail(f"nobody checks this command: {line}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if not target.startswith("https://"):
            assert (page.parent / target).exists(), target
    for source in re.findall(
        r"`((?:gpupc_impl|baselines|datasets|workflow|config|results|tests)/[\w./-]+)`", page.read_text()
    ):
        if not source.startswith("results/") and "NAME" not in source:
            assert (ROOT / source).exists(), source
