"""Configs that no reader of YAML should follow to their end."""

import subprocess
import sys

READ = """
import sys, pathlib
from workflow.lib.config import InvalidConfig, read_config
for path in sys.argv[1:]:
    try:
        read_config(pathlib.Path(path))
    except InvalidConfig as error:
        print(error)
"""
NESTED = {"open": "[" * 100_000, "closed": "a: " + "[" * 20_000 + "]" * 20_000, "block": "- " * 50_000 + "a"}


def test_configs_that_are_nested_deeply_are_refused(tmp_path):
    """LibYAML ends the process, so the files are read in one of their own."""
    paths = [tmp_path / f"{name}.yaml" for name in NESTED]
    for path, text in zip(paths, NESTED.values(), strict=True):
        path.write_text(text)
    ended = subprocess.run([sys.executable, "-c", READ, *paths], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    for path, said in zip(paths, ended.stdout.splitlines(), strict=True):
        assert f"{path} is not readable as YAML: YAMLError: it is nested too deeply" in said
