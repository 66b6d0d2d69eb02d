"""Plans the measurements of a config, their files, and the files that each output reads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from datasets import registry
from datasets.fetch import mirrored_paths
from gpupc_impl.core.files import save_json, write_text
from gpupc_impl.core.registry import get_method
from gpupc_impl.measurement.digest import code_version
from gpupc_impl.measurement.folders import EXPERIMENTS
from gpupc_impl.measurement.published import open_published
from gpupc_impl.reporting.catalogue import EVERY, Entry, entries
from gpupc_impl.reporting.sources import Source
from workflow.lib.config import read_config
from workflow.lib.experiments import Experiment, expand, own_parameters
from workflow.lib.searches import is_requested

ROOT = Path(__file__).parents[2]

MAIN_FILES = ("records", "tests", "timeline", "sharing", "problems")
"""A published folder has nothing to show in an output without files of the first kind that this reads."""

RECORDED, CONFIG = "results/recorded", "config.yaml"
"""The project's folder of recorded runs, and the file in each recorded folder that holds the config of its runs."""


class Measurement(NamedTuple):
    """Settings that are measured on each of some data sets.

    Attributes:
        name: the name of the family or experiment.
        targets: the data sets in the paths of a job: a wildcard if each data set has its own job, or all names if one
            job measures all of them (the graphs of an experiment, which are many and small).
        log: the path of the job's log.
        subject: the name of the data in the job's message.
        repeats: the number of warm runs of a setting.
    """

    name: str
    family: str
    datasets: list[str]
    settings: dict[str, dict[str, Any]]
    targets: list[str]
    log: str
    subject: str
    repeats: int


class Plan:
    """A complete config with the measurements and outputs that it requests.

    Args:
        folder: the folder of its results; any folder but results/ is a folder of published runs.

    Attributes:
        entries: the registry entries of the config's data sets, by name.
        families: the data sets of each family that has settings.
        experiments: the expanded experiments by name.
    """

    def __init__(self, config: Mapping[str, Any], folder: str = "results"):
        self.config = config
        self.folder = folder
        self.entries = {name: registry.resolve(name, own.get("spec")) for name, own in config["datasets"].items()}
        self.families = {
            family: [name for name, entry in self.entries.items() if entry["family"] == family]
            for family in config["settings"]
        }
        self.experiments: dict[str, Experiment] = expand(config)

    @property
    def measured(self) -> list[str]:
        """All data sets, by family."""
        return [name for names in self.families.values() for name in names]

    @property
    def order(self) -> list[str]:
        """The names of families, tables of single tests and experiments, in the config's order."""
        return [*self.families, *self.config["ci_tests"]["tables"], *self.experiments]

    def of_kind(self, file: bool) -> list[str]:
        """Return the data sets that are read or generated from files, or those that need none."""
        return [name for name, entry in self.entries.items() if bool(registry.files(entry)) == file]

    def describe(self) -> None:
        """Write the config, without the folders of this machine, and the runs of each experiment into the results.

        `gpupc records publish` reads both.
        """
        config = {**self.config, "mirrors": [], "recorded": None}
        write_text(Path(self.folder, CONFIG), yaml.safe_dump(config, sort_keys=False))
        parts = self.measurements().items()
        runs = {name: {"datasets": part.datasets, "settings": list(part.settings)} for name, part in parts}
        save_json(runs, Path(self.folder, EXPERIMENTS))

    # --- data --------------------------------------------------------------------------------------------------------

    def where(self) -> dict[str, Any]:
        """Return where data sets are searched, as arguments of `datasets.load`."""
        return {
            "cache_dir": "resources/datasets",
            "mirrors": self.config["mirrors"],
            "offline": self.config["offline"],
        }

    def mirrored(self, datasets: Iterable[Mapping[str, Any]]) -> list[str]:
        """Return copies of data sets in mirror folders; a new copy lets a missing data set be made again."""
        files = (file for entry in datasets for file in registry.files(entry))
        return [str(path) for file in files for path in mirrored_paths(file, self.config["mirrors"])]

    def problem_parameters(self, family: str, own: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters of a family's problems (arguments of `from_data` of its problem class).

        Args:
            own: parameters that override those of the config and of the family.
        """
        everywhere = {key: self.config[key] for key in ("alpha", "max_level")}
        return everywhere | self.config["problems"].get(family, {}) | own

    def parameters_of(self, dataset: str) -> dict[str, Any]:
        """Return the parameters of the problem of one of the config's data sets."""
        own = own_parameters(self.config["datasets"][dataset])
        return self.problem_parameters(self.entries[dataset]["family"], own)

    def source_of(self, name: str, dataset: str) -> tuple[Mapping[str, Any], dict[str, Any]]:
        """Return the registry's entry of a data set of a family or experiment, and its problem's parameters."""
        experiment = self.experiments.get(name)
        if experiment is None or not experiment.graphs:
            return self.entries[dataset], self.parameters_of(dataset)
        return experiment.graphs[dataset], self.problem_parameters(experiment.family, experiment.problems[dataset])

    # --- records -----------------------------------------------------------------------------------------------------

    def records_of(self, datasets: Iterable[str]) -> list[str]:
        """Return the records of data sets with every setting of their families."""
        return [
            path
            for name in datasets
            for path in self._records([name], self.config["settings"][self.entries[name]["family"]])
        ]

    def records_of_experiment(self, name: str) -> list[str]:
        """Return the records of an experiment."""
        return self._records(self.experiments[name].datasets, self.experiments[name].settings)

    def references_of_experiment(self, name: str) -> list[str]:
        """Return the records of the first reference on an experiment's data sets, with which its skeletons are
        compared; none if the experiment has its own graphs."""
        experiment = self.experiments[name]
        if experiment.graphs:
            return []
        settings = self.config["settings"][experiment.family]
        references = [each for each, choice in settings.items() if get_method(choice.get("method", each)).reference]
        return self._records(experiment.datasets, references[:1])

    def _records(self, datasets: Iterable[str], settings: Iterable[str]) -> list[str]:
        return records(datasets, settings, self.folder)

    def output_of(self, name: str, dataset: str, setting: str) -> str:
        """Return the file that contains a run's times: its record or, for a table of single tests, the table."""
        if name in self.config["ci_tests"]["tables"]:
            return f"{self.folder}/tests/{name}.json"
        return self._records([dataset], [setting])[0]

    def measurements(self) -> dict[str, Measurement]:
        """Return the measurements by name: the data sets with all settings of their family, then each experiment."""
        defaults = self.config["timing"]["repeats"]
        measured = {}
        for family, datasets in self.families.items():
            measured[family] = _a_job_each(family, family, datasets, self.config["settings"][family], defaults)
        for name, experiment in self.experiments.items():
            repeats = self.config["experiments"][name].get("repeats", defaults)
            parts = (name, experiment.family, experiment.datasets, experiment.settings)
            measured[name] = (
                Measurement(*parts, experiment.datasets, f"logs/measure_{name}.log", f"the graphs of {name}", repeats)
                if experiment.together
                else _a_job_each(*parts, repeats)
            )
        return measured

    def code_versions(self, settings: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
        """Return for each setting the version of its method's code."""
        methods = {setting: get_method(choice.get("method", setting)) for setting, choice in settings.items()}
        backend = self.config["backend"]
        versions = {
            method.name: code_version(method, "cpu" if method.backends == ("cpu",) else backend)
            for method in {method.name: method for method in methods.values()}.values()
        }
        return {setting: versions[method.name] for setting, method in methods.items()}

    def timelines(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Return the block-based settings whose timeline is recorded, by data set, one for each experiment."""
        settings_of = {}
        for entry in self.outputs().values():
            if "timeline" in entry.reads:
                experiment = self.experiments[entry.experiments[0]]
                settings_of[experiment.datasets[0]] = {
                    name: choice
                    for name, choice in experiment.settings.items()
                    if choice.get("method", name) == "out-of-core-block"
                }
        return settings_of

    # --- outputs -----------------------------------------------------------------------------------------------------

    def outputs(self) -> dict[str, Entry]:
        """Return the tables and figures for which the config has data."""
        return {name: entry for name, entry in entries().items() if self._has(entry)}

    def shown_by(self, name: str) -> list[str]:
        """Return the tables and figures that show a family, an experiment or a table of single tests."""
        return [
            output
            for output, entry in self.outputs().items()
            if name in (entry.tests, entry.family, *entry.experiments)
            or (entry.family == EVERY and name in self.families)
        ]

    def _has(self, entry: Entry) -> bool:
        if entry.tests:
            return entry.tests in self.config["ci_tests"]["tables"]
        if entry.family:
            return bool(self._datasets(entry.family))
        return entry.experiments[0] in self.experiments

    def _datasets(self, family: str) -> list[str]:
        return self.measured if family == EVERY else self.families.get(family, [])

    def inputs(self, entry: Entry) -> dict[str, list[str]]:
        """Return the files from which a table or figure is made, by kind (`gpupc_impl.reporting.catalogue.READERS`)."""
        own = [name for name in entry.experiments if name in self.experiments]
        datasets = self._datasets(entry.family) if entry.family else []
        datasets = datasets + [dataset for name in own for dataset in self.experiments[name].datasets]
        verification = [f"{self.folder}/verification.csv"] if entry.family else []
        timelines = [f"{self.folder}/timelines/{self.experiments[name].datasets[0]}.csv" for name in own]
        files = {
            "runs": {
                "records": self._records_for(entry),
                "verification": verification + [f"{self.folder}/verification/{name}.csv" for name in own],
            },
            "problems": {"problems": [f"{self.folder}/problems/{name}.json" for name in datasets]},
            "sharing": {"sharing": [f"{self.folder}/sharing.csv"]},
            "tests": {"tests": [f"{self.folder}/tests/{entry.tests}.json"]},
            "every_test": {
                "every_test": [f"{self.folder}/tests/{name}.json" for name in self.config["ci_tests"]["tables"]]
            },
            "timeline": {"timeline": timelines[:1]},
            "factors": {"factors": [str(ROOT / "results/recorded/cpu_factors.csv")]},
            "reported": {"reported": [str(ROOT / "results/reported" / entry.reported)]},
        }
        return {kind: paths for name in entry.reads for kind, paths in files.get(name, {}).items()}

    def _records_for(self, entry: Entry) -> list[str]:
        """Return the records of the data sets that an output shows."""
        records_of_family = self.records_of(self._datasets(entry.family)) if entry.family else []
        own = [name for name in entry.experiments if name in self.experiments]
        return records_of_family + [path for name in own for path in self.records_of_experiment(name)]

    def config_arguments(self, entry: Entry) -> dict[str, Any]:
        """Return the arguments of a table or figure that come from the config
        (`gpupc_impl.reporting.catalogue.GIVEN`)."""
        arguments: dict[str, Any] = {}
        if "sweeps" in entry.reads:
            arguments["sweeps"] = self.experiments[entry.experiments[0]].sweeps
        if "varies" in entry.reads:
            arguments["varies"] = self.config["ci_tests"]["tables"][entry.tests]["varies"]
        if "rates" in entry.reads:
            arguments["rates"] = self.config.get("managed_memory")
        if "ran" in entry.reads:
            arguments["ran"] = f"{self.experiments[entry.experiments[0]].datasets[0]}, backend {self.config['backend']}"
        return arguments

    # --- sources -----------------------------------------------------------------------------------------------------

    def source(self, entry: Entry) -> Source | None:
        """Return this machine's results as the source of a table or figure; None if the config has no data for it."""
        if not self._has(entry):
            return None
        return Source(None, self.config["backend"], self.inputs(entry), self.config_arguments(entry))

    def recorded_source(self, entry: Entry) -> Source | None:
        """Return a folder of published runs as the source of a table or figure; None if the folder has nothing to show.

        If an output reads no runs, its heading describes the runs on the data sets that it shows.
        """
        if not self._has(entry):
            return None
        inputs, published = self.inputs(entry), open_published(self.folder)
        timelines = {} if "records" in inputs else {Path(path).stem for path in inputs.get("timeline", [])}
        keys = [(Path(path).parent.name, Path(path).stem) for path in self._records_for(entry)]
        keys = list(dict.fromkeys(key for key in keys if not timelines or key[0] in timelines))
        runs = [key for key in keys if key in published]
        datasets = [Path(path).stem for path in inputs.get("problems", []) if Path(path).stem in published.datasets]
        files = {
            kind: [path for path in paths if Path(path).is_file()]
            for kind, paths in inputs.items()
            if kind not in ("records", "verification", "problems")
        }
        main = next(kind for kind in MAIN_FILES if kind in inputs)
        if not {"records": runs, "problems": datasets, **files}[main]:
            return None
        if entry.methods and not {setting for _, setting in runs} & self._settings_of(entry.methods):
            return None
        files["published"] = published.files_of(runs)
        absent = [key for key in keys if key not in published and self._requests(*key)] if "records" in inputs else []
        return Source(self.folder, self.config["backend"], files, self.config_arguments(entry), runs, datasets, absent)

    def _requests(self, dataset: str, setting: str) -> bool:
        """Return whether the config has a setting measured on a data set."""
        return any(
            dataset in measurement.datasets and is_requested(measurement.settings[setting], dataset)
            for measurement in self.measurements().values()
            if setting in measurement.settings
        )

    def _settings_of(self, methods: Iterable[str]) -> set[str]:
        """Return the names of all settings of some methods."""
        groups = [*self.config["settings"].values(), *(each.settings for each in self.experiments.values())]
        return {name for group in groups for name, choice in group.items() if choice.get("method", name) in methods}


def _a_job_each(
    name: str, family: str, datasets: list[str], settings: dict[str, dict[str, Any]], repeats: int
) -> Measurement:
    """Return a measurement in which every data set has its own job."""
    log = f"logs/measure_{name}/{{dataset}}.log"
    return Measurement(name, family, datasets, settings, ["{dataset}"], log, "{wildcards.dataset}", repeats)


def recorded_plans(config: Mapping[str, Any]) -> list[Plan]:
    """Return the plans of the published runs that a config shows, each made from the config of its measurement.

    Raises:
        ValueError: a folder cannot be shown; the message gives the reason.
    """
    return [_recorded_plan(folder) for folder in recorded_folders(config)]


def _recorded_plan(folder: str) -> Plan:
    path = Path(folder) / CONFIG
    try:
        return Plan(read_config(path), folder)
    except FileNotFoundError:
        raise ValueError(f"recorded: {folder} holds no recorded runs: it has no file {CONFIG}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"recorded: {path} cannot be read any more: {error}") from error


def recorded_folders(config: Mapping[str, Any]) -> list[str]:
    """Return the folders of published runs that a config names or, if it names none, all folders of the project, those
    of GPUs first."""
    if config["recorded"] is not None:
        return list(config["recorded"])
    of_gpu = re.compile(rb"^backend: cuda$", re.MULTILINE)
    configs = sorted(
        (ROOT / RECORDED).glob(f"*/{CONFIG}"), key=lambda path: (not of_gpu.search(path.read_bytes()), path)
    )
    folders = [path.parent for path in configs]
    return [str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path) for path in folders]


def records(datasets: Iterable[str], settings: Iterable[str], folder: str = "results") -> list[str]:
    settings = list(settings)
    return [f"{folder}/records/{name}/{setting}.json" for name in datasets for setting in settings]
