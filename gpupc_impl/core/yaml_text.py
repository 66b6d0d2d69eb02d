"""YAML in which a few aliases cannot stand for gigabytes."""

from typing import Any

MAX_EXPANDED = 1 << 22
"""Upper bound on the characters and nodes of a text in which each alias is replaced by what it stands for."""


def parse_yaml(text: str, loader: Any = None) -> Any:
    """The content of a text in YAML.

    Args:
        loader: a loader class of PyYAML, by default its safe one.

    Raises:
        yaml.YAMLError: it is no YAML, or it is longer than `MAX_EXPANDED` once its aliases are expanded.
        RecursionError: it is nested too deeply.
        ValueError: a value is none, such as a day 32.
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
    """The characters and nodes below a node; what holds itself counts once, since it is refused where it is read."""
    if id(node) not in sizes:
        sizes[id(node)] = 0
        if isinstance(node.value, str):
            sizes[id(node)] = 1 + len(node.value)
        else:
            parts = (part for entry in node.value for part in (entry if isinstance(entry, tuple) else (entry,)))
            sizes[id(node)] = 1 + sum(_expanded(part, sizes) for part in parts)
    return sizes[id(node)]
