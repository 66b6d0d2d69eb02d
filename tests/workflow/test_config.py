"""Configs that no reader of YAML should follow to their end."""

import subprocess
import sys

import pytest

READ = "import sys, pathlib; from workflow.lib.config import read_config; read_config(pathlib.Path(sys.argv[1]))"


NESTED = {"open": "[" * 100_000, "closed": "a: " + "[" * 20_000 + "]" * 20_000, "block": "- " * 50_000 + "a"}


@pytest.mark.parametrize("text", NESTED.values(), ids=NESTED)
def test_a_config_that_is_nested_deeply_is_refused(tmp_path, text):
    """LibYAML ends the process, so the file is read in one of its own."""
    path = tmp_path / "config.yaml"
    path.write_text(text)
    ended = subprocess.run([sys.executable, "-c", READ, path], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1, ended.stderr
    last = ended.stderr.strip().splitlines()[-1]
    assert f"InvalidConfig: {path} is not readable as YAML: YAMLError: it is nested too deeply" in last
