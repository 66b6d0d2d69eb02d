"""Reads YAML after a check that a few aliases do not expand to gigabytes."""

from typing import Any

MAX_EXPANDED = 1 << 22
"""The upper bound on the characters and nodes of a text after its aliases are expanded."""


def parse_yaml(text: str, loader: Any = None) -> Any:
    """Parse YAML.

    Args:
        loader: a loader class of PyYAML; by default its safe loader.

    Raises:
        yaml.YAMLError: the text is not YAML, or is longer than `MAX_EXPANDED` once its aliases are expanded.
        RecursionError: the text is nested too deeply.
        ValueError: a value is invalid, such as a day 32.
        ImportError: PyYAML is not installed.
    """
    import yaml  # type: ignore[import-untyped]

    stream = (loader or yaml.SafeLoader)(text)
    try:
        node = stream.get_single_node()
        if node is None:
            return None
        if _expanded(node, {}) > MAX_EXPANDED:
            raise yaml.YAMLError(f"with its aliases expanded it is longer than {MAX_EXPANDED:,} characters")
        return stream.construct_document(node)
    finally:
        stream.dispose()


def _expanded(node: Any, sizes: dict[int, int]) -> int:
    """Count the characters and nodes below a node; a node that contains itself counts once, because the loader refuses
    it."""
    if id(node) not in sizes:
        sizes[id(node)] = 0
        if isinstance(node.value, str):
            sizes[id(node)] = 1 + len(node.value)
        else:
            parts = (part for entry in node.value for part in (entry if isinstance(entry, tuple) else (entry,)))
            sizes[id(node)] = 1 + sum(_expanded(part, sizes) for part in parts)
    return sizes[id(node)]
