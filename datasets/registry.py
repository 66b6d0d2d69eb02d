"""Reads the registry of data sets, registry.yaml, and checks it against registry.schema.json."""

import copy
import difflib
import functools
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator

from datasets.dataset import RegistryError
from gpupc_impl.core.family import families
from gpupc_impl.core.files import parse_yaml, read_json, read_text, shortened

Entry = dict[str, Any]


def names(family: str | None = None) -> tuple[str, ...]:
    """Return the registered data sets in the registry's order; only those of one family if it is passed."""
    return tuple(name for name, entry in _registry().items() if family in (None, entry["family"]))


def resolve(name: str, spec: Mapping[str, Any] | None = None) -> Entry:
    """Return the registry's entry, or `spec`, an entry of that name declared elsewhere, or raise RegistryError."""
    registry = _registry()
    if spec is not None:
        if name in registry:
            raise RegistryError(f"data set {name!r} is already in the registry: give the spec another name")
        return validate({name: dict(spec)}, "spec")[name]
    if name not in registry:
        close = difflib.get_close_matches(str(name), registry, n=3)  # YAML's keys may be numbers.
        hint = f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(registry)}"
        raise RegistryError(f"no data set is called {name!r}; {hint}")
    return copy.deepcopy(registry[name])


def declared(name: str, choice: Mapping[str, Any]) -> Entry:
    """Return the entry of a config's data set: its ``spec``, the table at its ``path``, or the registry's."""
    if "path" not in choice:
        return resolve(name, choice.get("spec"))
    return resolve(name, {"kind": "table", "path": choice["path"], "family": choice.get("family", "gaussian")})


def files(entry: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the descriptions of the files that a data set is read or generated from: its own and its network's."""
    own = [entry] if entry["kind"] in ("file", "table") else []
    return [*own, *([entry["true_network"]] if "true_network" in entry else [])]


def validate(entries: Any, source: str) -> dict[str, Entry]:
    """Check a mapping of names to entries, and return it; RegistryError has a line for each fault."""
    faults = sorted(_validator().iter_errors(entries), key=lambda fault: [str(key) for key in fault.absolute_path])
    sentences = []
    for fault in faults:
        entry, *keys = [*fault.absolute_path] or [None]
        where = "" if entry is None else f", data set {entry!r}"
        where += f", key {'.'.join(map(str, keys))!r}" if keys else ""
        sentences.append(f"{source}{where}: {shortened(fault.message)}")
    if sentences:
        raise RegistryError("\n".join(sentences))
    return entries


@functools.cache
def _validator() -> Draft202012Validator:
    schema = read_json(Path(__file__).with_name("registry.schema.json"))
    schema["$defs"]["family"]["enum"] = list(families(None))
    return Draft202012Validator(schema)


@functools.cache
def _registry() -> dict[str, Entry]:
    return validate(parse(read_text(Path(__file__).with_name("registry.yaml"))), "registry.yaml")


def parse(text: str) -> Any:
    """Parse YAML in which a repeated key is an error."""
    return parse_yaml(text, _Loader)


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        own = [key for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]  # Keys may override those of `<<`.
        keys = [self.construct_object(key, deep=True) for key in own]
        if repeated := sorted({str(key) for key in keys if keys.count(key) > 1}):
            raise RegistryError(f"line {node.start_mark.line + 1}: repeated key {', '.join(repeated)}")
        return super().construct_mapping(node, deep)
