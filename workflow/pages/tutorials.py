"""Runs the tutorials (scripts in docs/tutorials), and writes pages with the output of their cells.

    python -m workflow.pages.tutorials [NAME ...]

A script consists of cells, and opens as a notebook in Jupyter (jupytext), VS Code and Spyder: ``# %%`` begins a cell of
code, ``# %% [markdown]`` begins a cell of text in comments. A page has the text, the code, the printed output, and a
picture of each figure that a cell leaves open. The figure's label (``fig.set_label``) describes the picture.
"""

import argparse
import contextlib
import io
import re
import sys
import urllib.request
import urllib.response
from collections.abc import Iterator
from email.message import Message
from pathlib import Path
from typing import Any
from unittest import mock

import matplotlib
import matplotlib.pyplot as plt
from matplotlib.figure import Figure

import datasets
from datasets.dataset import DatasetUnavailable
from datasets.fetch import fetch

FOLDER = Path(__file__).parents[2] / "docs" / "tutorials"

STYLE = {
    **{"figure.dpi": 100, "savefig.dpi": 160, "figure.constrained_layout.use": True, "font.size": 9},
    **{"axes.spines.top": False, "axes.spines.right": False},
}  # the settings of matplotlib in a tutorial that differ from its defaults


def page(script: Path, pictures: Path) -> str:
    """Run a script, draw its pictures into a folder, and return its page, or raise DatasetUnavailable."""
    space: dict[str, Any] = {"__name__": script.stem}
    plt.close("all")  # What others have left open is not of this page.
    parts, drawn = [f"<!-- Made from {script.name} by `make tutorials`: edit that file. -->"], 0
    with _registered_addresses(), matplotlib.rc_context({**matplotlib.rcParamsDefault, "backend": "agg", **STYLE}):
        for is_text, source, line in _cells(script.read_text(encoding="utf-8")):
            if is_text:
                parts.append(source)
                continue
            parts.append(f"```python\n{source}\n```")
            try:
                if printed := _run(source, line, script, space):
                    parts.append(f"```text\n{printed}\n```")
                for number in plt.get_fignums():
                    drawn += 1
                    parts.append(_picture(plt.figure(number), pictures / f"{script.stem}-{drawn}.png"))
            finally:
                plt.close("all")
    return "\n\n".join(parts) + "\n"


@contextlib.contextmanager
def _registered_addresses() -> Iterator[None]:
    """Inside this context, addresses of registered data sets are read from the cache or from a mirror folder."""
    network = urllib.request.urlopen

    def opened(request: Any, *rest: Any, **more: Any) -> Any:
        url = getattr(request, "full_url", request)
        name = next((name for name in datasets.names() if datasets.entry(name).get("url") == url), None)
        if name is None:
            return network(request, *rest, **more)
        with mock.patch("urllib.request.urlopen", network):  # `fetch` asks the network.
            return urllib.response.addinfourl(fetch(name).open("rb"), Message(), url, 200)

    with mock.patch("urllib.request.urlopen", opened):
        yield


def _cells(text: str) -> Iterator[tuple[bool, str, int]]:
    """Yield for each cell whether it is text, its text or code, and the line on which that begins."""
    for cell in re.finditer(r"^# %%( \[markdown\])?\n(.*?)(?=^# %%|\Z)", text, re.MULTILINE | re.DOTALL):
        body = cell[2]
        first = text.count("\n", 0, cell.start(2)) + 1 + len(body) - len(body.lstrip("\n"))
        if cell[1]:
            body = re.sub(r"^# ?", "", body, flags=re.MULTILINE)
        yield bool(cell[1]), body.strip("\n"), first


def _run(source: str, line: int, script: Path, space: dict[str, Any]) -> str:
    """Run the code of a cell, and return what it printed."""
    code = compile("\n" * (line - 1) + source, str(script), "exec")  # The padding makes errors name the script's lines.
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, space)
    return "\n".join(text.rstrip() for text in out.getvalue().rstrip().splitlines())


def _picture(figure: Figure, path: Path) -> str:
    """Save a figure, and return the Markdown that shows it; ValueError is raised if no label describes it."""
    label = str(figure.get_label())
    if not label:
        raise ValueError(f"{path.stem}: the figure has no label; say what it shows with fig.set_label(...)")
    figure.savefig(path)
    return f"![{label}]({path.name})"


def main(names: list[str]) -> int:
    """Write the pages of some scripts, or of all; returns 1 if data are not available and a page stays unchanged."""
    missing = 0
    for script in sorted(path for path in FOLDER.glob("*.py") if not names or path.stem in names):
        try:
            content = page(script, FOLDER)
        except DatasetUnavailable as error:
            print(f"{script.name}: left as it is: {error}", file=sys.stderr)
            missing = 1
        else:
            script.with_suffix(".md").write_text(content, encoding="utf-8")
            print(f"written: {script.with_suffix('.md').relative_to(FOLDER.parents[1])}")
    return missing


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Run the tutorials and write their pages and pictures.")
    parser.add_argument("names", metavar="NAME", nargs="*", help="in docs/tutorials, without .py (default: all)")
    sys.exit(main(parser.parse_args().names))
