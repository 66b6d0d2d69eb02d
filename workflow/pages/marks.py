"""Replaces the parts of a page that scripts make, each between ``<!-- NAME -->`` and ``<!-- end -->``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def replace(page: Path, parts: Mapping[str, str]) -> None:
    """Replace parts of a page, by the name in the comment before each.

    Raises:
        OSError: the page cannot be read or written.
        ValueError: the page lacks the comments of a part; it stays as it is.
    """
    text = page.read_text(encoding="utf-8")
    for name, part in parts.items():
        begin, end = f"<!-- {name} -->\n", "<!-- end -->"
        head, found, rest = text.partition(begin)
        _, ended, tail = rest.partition(end)
        if not found or not ended:
            raise ValueError(f"the page has no comment {begin.strip()} with a comment {end} below it")
        text = f"{head}{begin}\n{part}\n\n{end}{tail}"
    page.write_text(text, encoding="utf-8")
