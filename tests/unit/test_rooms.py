"""What is added is paid for: rooms keep to the lines that docs/architecture.md allows them."""

import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUFFIXES = ("py", "cu", "cuh", "hpp", "cpp", "smk")
LONGEST = 600
"""The most lines of a file, which holds one thing."""


@pytest.fixture(scope="module")
def lines():
    """The lines of each file of the project, by its path."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is no checkout, so other files may lie here")
    listed = subprocess.run(
        ["git", "ls-files", *(f"*.{suffix}" for suffix in SUFFIXES)], cwd=ROOT, capture_output=True, check=True
    )
    paths = [path for path in listed.stdout.decode().splitlines() if (ROOT / path).is_file()]
    return {path: (ROOT / path).read_bytes().count(b"\n") for path in paths}


def test_rooms_keep_to_their_lines(lines):
    """A row of the table may hold several rooms; one without the name of a room is for what lies beside them."""
    rows = re.findall(r"^\| ([^|]+) \| ([\d,]+) \|", (ROOT / "docs/architecture.md").read_text(), re.MULTILINE)
    row_of = {room: names for names, _ in rows for room in re.findall(r"`(\w+)`", names) or [""]}
    used = Counter()
    for path, count in lines.items():
        first, *rest = path.removeprefix("gpupc_impl/").split("/")
        used[row_of.get(first if rest else first.removesuffix(".py"), row_of[""])] += count
    over = [f"{names}: {used[names]:,} of {most}" for names, most in rows if used[names] > int(most.replace(",", ""))]
    assert not over, "\n".join(over)


def test_files_are_not_too_long(lines):
    over = [f"{path}: {count}" for path, count in lines.items() if count > LONGEST and not path.startswith("tests/")]
    assert not over, "\n".join(over)
