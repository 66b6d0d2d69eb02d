"""Adds pages to the documentation site; mkdocs calls these functions (`hooks` in mkdocs.yml).

Pages of the repository outside docs become part of the site, with their links adapted. Pages that the navigation omits
are listed under `MORE`. The page of all devices gets its table and plots, and each number there the file of its record.
"""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from workflow.pages import devices

ROOT = Path(__file__).parents[2]

OUTSIDE = {
    "CHANGELOG.md": "changelog.md",
    "CITATION.cff": "CITATION.cff",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "config/README.md": "config.md",
    "datasets/README.md": "datasets.md",
}
"""The files of the repository outside docs to which pages lead, by path, and their names in the site."""

MORE = "More"
HEADLINES = "<!-- the headlines of README.md -->"  # the comment in docs/index.md that the headlines replace
WIDE = ("devices.md", "recorded.md")  # the pages whose tables take the width of the site, without a list of pages
LINK = re.compile(r"(?<=\]\()([^)#:\s]+)(?=[)#])")  # the path in a Markdown link to a file of the repository


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Append the pages that the navigation omits to its end."""
    docs = Path(config.docs_dir)
    placed = set(re.findall(r'"([^"]+\.md)"', json.dumps(config.nav, ensure_ascii=False)))  # at any depth
    unplaced = sorted(name for path in docs.rglob("*.md") if (name := path.relative_to(docs).as_posix()) not in placed)
    if unplaced:
        config.nav = [*config.nav, {MORE: unplaced}]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of `OUTSIDE`, the records, and the script that sorts and filters tables."""
    for path, name in OUTSIDE.items():
        text = (ROOT / path).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=_links(text, ROOT / path)))
    for name, content in devices.records(_runs()):
        files.append(File.generated(config, name, content=content))
    files.append(File.generated(config, "devices.js", abs_src_path=str(ROOT / "gpupc_impl/views/report.js")))
    return files


@functools.cache
def _runs() -> list[devices.Row]:
    """Return the runs of the project's published folders."""
    return devices.rows(sorted(path.parent for path in ROOT.glob("results/recorded/*/machines.json")))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Adapt links from docs to the pages of `OUTSIDE`."""
    if page.file.generated_by:
        return markdown
    if page.file.src_uri in WIDE:
        page.meta["hide"] = ["navigation", "toc"]
    if HEADLINES in markdown:
        text = (ROOT / "README.md").read_text(encoding="utf-8")
        inside = text.partition("<!-- headlines: `make images` -->")[2].partition("<!--")[0]
        markdown = markdown.replace(HEADLINES, f'<div class="headlines" markdown>\n{inside}\n</div>')
    if devices.PLACE in markdown:
        markdown = markdown.replace(devices.PLACE, devices.content(_runs()))
    return _links(markdown, Path(config.docs_dir) / page.file.src_uri)


def _links(text: str, page: Path) -> str:
    """Return the text of a page, with links to other pages replaced by those of the site."""

    def in_site(link: re.Match[str]) -> str:
        target = (page.parent / link[1]).resolve()
        if not target.is_relative_to(ROOT):
            return link[1]
        path = target.relative_to(ROOT).as_posix()
        up = "../" * (len(page.relative_to(ROOT / "docs").parts) - 1) if page.is_relative_to(ROOT / "docs") else ""
        if path in OUTSIDE:
            return up + OUTSIDE[path]
        return up + path.removeprefix("docs/") if path.startswith("docs/") else link[1]

    return LINK.sub(in_site, text)
