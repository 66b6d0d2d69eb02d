"""Reads configs, fills in their defaults and, before anything runs, reports every fault in a sentence."""

import copy
import difflib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator, ValidationError, validators

from datasets import RegistryError, registry
from gpupc_impl.core.family import families, get_family
from gpupc_impl.core.files import parse_yaml, read_text, shortened
from gpupc_impl.core.registry import InvalidParameter, UnknownMethod
from gpupc_impl.reporting.catalogue import entries
from workflow.lib.experiments import expand
from workflow.lib.searches import Config, is_requested, method_of

SCHEMA = Path(__file__).parents[1] / "schemas" / "config.schema.yaml"


class InvalidConfig(ValueError):
    """A config is not YAML or has faults; the message has one line for each fault."""


def read_config(path: Path) -> dict[str, Any]:
    """Return the unchecked mapping of a YAML file, a config or its schema; raises InvalidConfig."""
    try:
        config = parse_yaml(read_text(path))
    except OSError:
        raise
    except Exception as error:  # of YAML, or of a value such as a number of 5000 digits or a 13th month
        raise InvalidConfig(f"{path} is not readable as YAML: {type(error).__name__}: {error}") from error
    if not isinstance(config, dict):
        raise InvalidConfig(f"{path} holds {type(config).__name__}, not keys with values")
    return config


def complete(config: dict[str, Any]) -> None:
    """Check a config against schema, registries and catalogue, and fill in defaults; InvalidConfig has all faults."""
    check_config(config)
    schema = read_config(SCHEMA)
    list(_Completing(schema).iter_errors(config))  # There are no errors; the iteration fills in the defaults.


def _with_defaults(validator: Any, properties: Config, instance: Any, schema: Config) -> Iterator[ValidationError]:
    """Validate `properties`, and fill in the default of every missing key."""
    for name, described in properties.items():
        if "default" in described and validator.is_type(instance, "object"):
            instance.setdefault(name, copy.deepcopy(described["default"]))
    yield from Draft202012Validator.VALIDATORS["properties"](validator, properties, instance, schema)


_Completing = validators.extend(Draft202012Validator, {"properties": _with_defaults})


def check_config(config: Config) -> None:
    """Check a config as `complete` does, without changing it."""
    try:
        faults = [*_key_faults(config, "", set())]
        faults = faults or [_sentence(error) for error in Draft202012Validator(_schema()).iter_errors(config)]
    except RecursionError as error:
        raise InvalidConfig("the config is nested too deeply, or holds itself") from error
    if not faults:
        named = [(family, key) for key in ("problems", "settings") for family in config.get(key, {})]
        known = families(None)
        faults = [_unknown(family, known, "family", f"at {key}") for family, key in named if family not in known]
    if not faults:
        for family, parameters in config.get("problems", {}).items():
            faults += _parameter_faults(family, parameters, f"in problems.{family}")
        faults += [*_dataset_faults(config), *_setting_faults(config)]
    if not faults:
        faults = [*_experiment_faults(config), *_test_faults(config.get("ci_tests", {}))]
    if faults:
        raise InvalidConfig("\n".join(faults))


def _key_faults(part: Any, where: str, seen: set[int]) -> Iterator[str]:
    """Yield the faults of keys that YAML does not read as text; parts that aliases share are visited once."""
    if not isinstance(part, (dict, list)) or id(part) in seen:
        return
    seen.add(id(part))
    for key, value in part.items() if isinstance(part, dict) else enumerate(part):
        if isinstance(part, dict) and not isinstance(key, str):
            yield f"{where or 'the top level'}: the key {key!r} is no text; put it in quotes"
        yield from _key_faults(value, f"{where}.{key}".lstrip("."), seen)


def _schema() -> dict[str, Any]:
    """Return the schema, with the experiments and tables of single tests that the catalogue's outputs show."""
    schema = read_config(SCHEMA)
    experiments = [name for entry in entries().values() for name in entry.experiments]
    tables = [entry.tests for entry in entries().values() if entry.tests]
    properties = schema["properties"]
    its_tables = properties["ci_tests"]["properties"]["tables"]
    for part, names in ((properties["experiments"], experiments), (its_tables, tables)):
        part |= {"properties": dict.fromkeys(names, part["additionalProperties"]), "additionalProperties": False}
    return schema


def _sentence(error: ValidationError) -> str:
    where = ".".join(map(str, error.absolute_path)) or "the top level"
    if error.validator != "additionalProperties":
        return f"{where}: {shortened(error.message)}"
    known = error.schema.get("properties", {})
    return "; ".join(_unknown(key, known, "key", f"at {where}") for key in error.instance if key not in known)


def _unknown(name: str, known: Iterable[str], what: str, where: str) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
    return f"unknown {what} {name!r} {where}; {hint}"


def _parameter_faults(family: str, parameters: Iterable[str], where: str) -> Iterator[str]:
    known = ("alpha", "max_level", *get_family(family).problem.PARAMETERS)
    yield from (_unknown(name, known, "parameter", where) for name in parameters if name not in known)


def _dataset_faults(config: Config) -> Iterator[str]:
    for name, choice in config["datasets"].items():
        try:
            family = registry.declared(name, choice)["family"]
        except RegistryError as error:
            yield f"datasets: {error}"
            continue
        if family not in config["settings"]:
            yield f"datasets.{name}: its family is {family!r}, for which there are no settings"
        yield from _parameter_faults(family, choice.get("problem", {}), f"in datasets.{name}.problem")


def _setting_faults(config: Config) -> Iterator[str]:
    for family, settings in config["settings"].items():
        for name, choice in settings.items():
            where = f"settings.{family}.{name}"
            try:
                method = method_of(name, choice)
            except (UnknownMethod, InvalidParameter) as error:
                yield f"{where}: {error}"
                continue
            if method.family != family:
                yield f"{where}: method {method.name!r} is of family {method.family!r}"
            for pattern in choice.get("only", []):
                if not any(is_requested({"only": [pattern]}, dataset) for dataset in config["datasets"]):
                    yield _unknown(pattern, config["datasets"], "data set", f"in {where}.only")


def _experiment_faults(config: Config) -> Iterator[str]:
    try:
        experiments = expand(config)
    except ValueError as error:
        yield str(error)
        return
    for name, experiment in experiments.items():
        own_parameters = {parameter: None for problem in experiment.problems.values() for parameter in problem}
        yield from _parameter_faults(experiment.family, own_parameters, f"in experiments.{name}.graphs")
        for setting, choice in experiment.settings.items():
            try:
                method_of(setting, choice)
            except (UnknownMethod, InvalidParameter) as error:
                yield f"experiments.{name}: {setting}: {error}"
                break


def _test_faults(tests: Config) -> Iterator[str]:
    for name, choice in tests.get("implementations", {}).items():
        where = f"ci_tests.implementations.{name}"
        try:
            method = method_of(name, choice)
        except (UnknownMethod, InvalidParameter) as error:
            yield f"{where}: {error}"
            continue
        if method.open_test is None:
            yield f"{where}: method {method.name!r} has no single test that could be timed"
    for name, table in tests.get("tables", {}).items():
        if not isinstance(table.get(table["varies"]), list):
            yield f"ci_tests.tables.{name}: {table['varies']} varies, so it must be a list"
    if tests.get("tables") and not tests.get("implementations"):
        yield "ci_tests: there are tables, but no implementations"
