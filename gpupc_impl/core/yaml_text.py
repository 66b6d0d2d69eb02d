"""Reads YAML with upper bounds on its nesting and on what its aliases expand to."""

from typing import Any

MAX_EXPANDED = 1 << 22
"""The upper bound on the characters and nodes of a text after its aliases are expanded."""

MAX_NESTED = 100
"""The upper bound on lists and mappings inside each other; PyYAML takes time that grows with the square of this depth,
and LibYAML, which has no bound, ends the process."""

MAX_DIGITS = 1000
"""The upper bound on the characters of an integer. Python refuses to write one of more than 4,300 decimal digits, so
that no message could show it."""


def parse_yaml(text: str, loader: Any = None) -> Any:
    """Parse YAML.

    Args:
        loader: a loader class of PyYAML that is written in Python; by default its safe loader.

    Raises:
        yaml.YAMLError: the text is not YAML, has more than `MAX_NESTED` lists and mappings inside each other, has an
            integer of more than `MAX_DIGITS` characters, or is longer than `MAX_EXPANDED` once its aliases are
            expanded.
        ValueError: a value is invalid, such as a day 32 or ``!!int ''``.
        ImportError: PyYAML is not installed.
    """
    import yaml  # type: ignore[import-untyped]

    class Loader(loader or yaml.SafeLoader):  # type: ignore[misc]
        def fetch_flow_collection_start(self, token: type) -> None:
            if self.flow_level >= MAX_NESTED:
                line = self.get_mark().line + 1
                raise yaml.YAMLError(f"line {line}: more than {MAX_NESTED} brackets and braces are inside each other")
            super().fetch_flow_collection_start(token)

        depth = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.depth > MAX_NESTED:
                line = self.get_mark().line + 1
                raise yaml.YAMLError(f"line {line}: more than {MAX_NESTED} lists and mappings are inside each other")
            self.depth += 1
            node = super().compose_node(parent, index)
            self.depth -= 1
            return node

        def construct_object(self, node: Any, deep: bool = False) -> Any:
            if node.tag == "tag:yaml.org,2002:int" and len(node.value) > MAX_DIGITS:
                raise yaml.YAMLError(
                    f"line {node.start_mark.line + 1}: an integer has {len(node.value):,} characters, over the limit "
                    f"of {MAX_DIGITS:,}; put it in quotes if it is a name"
                )
            return super().construct_object(node, deep)

    stream = Loader(text)
    try:
        node = stream.get_single_node()
        if node is None:
            return None
        if _expanded(node, {}) > MAX_EXPANDED:
            raise yaml.YAMLError(f"with its aliases expanded it is longer than {MAX_EXPANDED:,} characters")
        try:  # PyYAML raises these for values such as `!!int ''` and 1:1:...:1.0 with 200 parts.
            return stream.construct_document(node)
        except (LookupError, AttributeError, TypeError, OverflowError) as error:
            raise ValueError(f"a value does not have the type that its tag states ({error})") from error
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
