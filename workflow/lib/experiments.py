"""Expands the `experiments` of a config: grids of parameters, and series of generated graphs."""

import itertools
import math
import string
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from datasets import registry
from gpupc_impl.core.registry import get_method
from workflow.lib.searches import Config

MOST_SETTINGS = 10_000  # the upper bound on the settings of a grid and on the graphs of an experiment


class Experiment(NamedTuple):
    """The measurements for one figure: on data sets of the config, or on graphs, of problems of a family, with settings
    as in the config's `settings`.

    Attributes:
        graphs: registry entries, by name, of generated graphs and of data sets that belong to the experiment; empty if
            the config's data sets are measured.
        problems: for each graph, the parameters of its test that differ from the family's.
        sweeps: for each varied parameter, its value in each graph.
        large: whether each graph has measuring jobs of its own, and its problem is removed as soon as nothing needs it.
    """

    family: str
    datasets: list[str]
    settings: dict[str, dict[str, Any]]
    graphs: dict[str, dict[str, Any]]
    problems: dict[str, dict[str, Any]]
    sweeps: dict[str, dict[str, float]]
    large: bool = False


def expand(config: Config) -> dict[str, Experiment]:
    """Return the experiments of a config that fits the schema, by name. ValueError has a sentence about a fault."""
    experiments: dict[str, Experiment] = {}
    for name, choice in config.get("experiments", {}).items():
        try:
            experiment = (_grid if "grid" in choice else _sweeps)(choice, config)
            for other, own in experiments.items():
                if both := own.graphs.keys() & experiment.graphs.keys():
                    raise ValueError(f"{min(both)!r} stands in experiments.{other} as well; give it another name")
            experiments[name] = experiment
        except KeyError as error:
            raise ValueError(f"experiments.{name}: the graphs have no parameter {error}") from None
        except ValueError as error:
            raise ValueError(f"experiments.{name}: {error}") from None
    return experiments


def _grid(choice: Config, config: Config) -> Experiment:
    grid = choice["grid"]
    shared = {key: grid[key] for key in ("method", "separating_sets") if grid.get(key, "canonical") != "canonical"}
    least, most = grid.get("product", (0, math.inf))
    settings = {}  # named like cupc-e-2-32
    for params in combinations(grid["values"]):
        if least <= math.prod(params.values()) <= most:
            settings["-".join([grid["method"], *map(str, params.values())])] = shared | {"params": params}
    family = get_method(grid["method"]).family
    members = [name for name, own in config["datasets"].items() if registry.declared(name, own)["family"] == family]
    without = choice.get("without", [])
    if unknown := [name for name in without if name not in members]:
        raise ValueError(f"data set {unknown[0]!r} is none of the config's {family} data sets: {', '.join(members)}")
    if twice := [name for name in settings if name in config["settings"].get(family, {})]:
        raise ValueError(f"setting {twice[0]!r} stands in settings.{family} as well; give that one another name")
    return Experiment(family, [name for name in members if name not in without], settings, {}, {}, {})


def _sweeps(choice: Config, config: Config) -> Experiment:
    own_entries = {name: registry.declared(name, own) for name, own in choice.get("datasets", {}).items()}
    families = [choice["graphs"]["spec"]["family"]] if "graphs" in choice else []
    family, *others = dict.fromkeys([*families, *(entry["family"] for entry in own_entries.values())])
    if others:
        raise ValueError(f"its graphs and data sets are of several families: {', '.join([family, *others])}")
    shared = choice.get("graphs", {}).get("problem", {})
    graphs, problems, sweeps = {}, {}, {}
    for varied, sweep in choice.get("graphs", {}).get("sweeps", {}).items():
        sweeps[varied] = {}
        problems_of_sweep = combinations(sweep.get("problem", {}))
        for parameters, own in itertools.product(combinations(sweep["parameters"]), problems_of_sweep):
            problem = shared | own
            graph = _named(choice["graphs"]["name"], problem | parameters)
            if len(graphs) >= MOST_SETTINGS:
                raise ValueError(f"it has more than {MOST_SETTINGS:,} graphs; vary fewer parameters")
            entry = registry.resolve(graph, {"kind": "generated", **choice["graphs"]["spec"], "parameters": parameters})
            if (graphs.setdefault(graph, entry), problems.setdefault(graph, problem)) != (entry, problem):
                raise ValueError(f"two graphs would be called {graph!r}: graphs.name must name all that varies")
            if graph in config["datasets"]:
                raise ValueError(f"graph {graph!r} stands in datasets as well; give that one another name")
            sweeps[varied][graph] = (problem | parameters)[sweep["varies"]]
    for name, own in choice.get("datasets", {}).items():
        if name in config["datasets"] or name in graphs:
            raise ValueError(f"data set {name!r} stands in datasets or graphs as well; give that one another name")
        graphs[name] = own_entries[name]
        problems[name] = shared | own_parameters(own)
    settings = _settings(choice["settings"], family, config)
    return Experiment(family, list(graphs), settings, graphs, problems, sweeps, choice.get("large", False))


def _named(template: str, values: Config) -> str:
    """Return the name of a graph: the template with the value of each parameter in place of its braces."""
    for _, field, form, conversion in string.Formatter().parse(template):
        if field is not None and (form or conversion or not field.isidentifier()):
            raise ValueError(f"graphs.name {template!r}: between braces stands the name of a parameter alone")
    return template.format_map(values)


def _settings(chosen: Config | Sequence[str], family: str, config: Config) -> dict[str, dict[str, Any]]:
    """Return the experiment's own settings, or the settings of the family that it names."""
    if isinstance(chosen, Mapping):
        return dict(chosen)
    known = config["settings"].get(family, {})
    if unknown := [name for name in chosen if name not in known]:
        raise ValueError(f"setting {unknown[0]!r} is none of settings.{family}: {', '.join(known)}")
    return {name: known[name] for name in chosen}


def own_parameters(choice: Config) -> dict[str, Any]:
    """Return the parameters of the test that a config gives to one data set."""
    return {key: choice[key] for key in ("alpha", "max_level") if key in choice} | choice.get("problem", {})


def combinations(values: Config) -> Iterator[dict[str, Any]]:
    """Yield every combination of the listed values; a value that is no list is part of all combinations."""
    lists = [value if isinstance(value, list) else [value] for value in values.values()]
    if (count := math.prod(map(len, lists))) > MOST_SETTINGS:
        raise ValueError(
            f"{', '.join(values)} have {count:,} combinations, over the limit of {MOST_SETTINGS:,}; list fewer values"
        )
    return (dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*lists))
