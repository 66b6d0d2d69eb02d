"""Plans the measurements of a config, their files, and the files that each output reads.

A *batch* is what one job measures and another one verifies: a family of problems, whose settings are measured on all of
the config's data sets of this family, or an experiment. It has the name of the family or experiment. An experiment with
large graphs has a batch for each graph instead, with the graph's name. Where several jobs measure at a time, they share
a batch (`Plan.jobs`).
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from datasets import registry
from datasets.fetch import mirrored_paths
from gpupc_impl.core.files import save_json, write_text
from gpupc_impl.measurement.digest import code_version
from gpupc_impl.measurement.publish import EXPERIMENTS
from gpupc_impl.measurement.published import open_published
from gpupc_impl.reporting.catalogue import EVERY, Entry, entries
from gpupc_impl.reporting.runs import Source
from workflow.lib.config import read_config
from workflow.lib.experiments import Experiment, expand, own_parameters
from workflow.lib.searches import Config, Search, is_requested, method_of

ROOT = Path(__file__).parents[2]
# A published folder has nothing to show in an output without files of the first kind that this reads.
MAIN_FILES = ("records", "tests", "timeline", "sharing", "problems")
REFERENCES = ".references"  # the end of the name of a job that needs no GPU
CONFIG = "config.yaml"  # the file in each recorded folder that holds the config of its runs
Key = tuple[str, str]  # a run: the names of its data set and of its setting


class Batch(NamedTuple):
    """Settings that one job measures on each of some data sets.

    Attributes:
        part: the name of the family or experiment.
        repeats: the number of warm runs of a setting.
    """

    part: str
    family: str
    datasets: list[str]
    settings: dict[str, dict[str, Any]]
    repeats: int

    @property
    def keys(self) -> list[Key]:
        """The batch's runs, those that a setting's ``only`` leaves out included."""
        return [(dataset, setting) for dataset in self.datasets for setting in self.settings]


def shares_of(settings: Mapping[str, Config], apart: bool) -> dict[str, dict[str, Any]]:
    """Return what each job measures, by the end of its name: all settings, or if `apart`, those whose methods have no
    kernels, and need no GPU, separately."""
    shares: dict[str, dict[str, Any]] = {}
    for name, choice in settings.items():
        is_reference = apart and method_of(name, choice).backends == ("cpu",)
        shares.setdefault(REFERENCES if is_reference else "", {})[name] = choice
    return shares


class Plan:
    """A complete config with the measurements and outputs that it requests, and the folder of its results; any folder
    but results/ is a folder of published runs.

    Attributes:
        entries: the registry entries of all data sets, those of experiments included, by name.
        families: the data sets of each family that has settings.
    """

    def __init__(self, config: Config, folder: str = "results"):
        self.config, self.folder = config, folder
        self.entries = {name: registry.declared(name, own) for name, own in config["datasets"].items()}
        self._problems = {name: own_parameters(own) for name, own in config["datasets"].items()}
        self.families = {
            family: [name for name, entry in self.entries.items() if entry["family"] == family]
            for family in config["settings"]
        }
        self.experiments: dict[str, Experiment] = expand(config)
        repeats = config["timing"]["repeats"]
        self.batches = {
            family: Batch(family, family, datasets, config["settings"][family], repeats)
            for family, datasets in self.families.items()
            if datasets
        }
        for name, experiment in self.experiments.items():
            self.entries |= experiment.graphs
            self._problems |= experiment.problems
            own = config["experiments"][name].get("repeats", repeats)
            groups = {each: [each] for each in experiment.graphs} if experiment.large else {name: experiment.datasets}
            for batch, members in groups.items():
                self.batches[batch] = Batch(name, experiment.family, members, experiment.settings, own)

    def jobs(self, apart: bool) -> dict[str, dict[str, Batch]]:
        """Return what each job measures, by its name, for each batch. If `apart`, settings without kernels, which need
        no GPU, and the data sets of a family have jobs of their own, so that several jobs can measure at a time."""
        jobs: dict[str, dict[str, Batch]] = {}
        for name, batch in self.batches.items():
            parts = {name: batch}
            if apart and name in self.families:
                parts = {f"{name}.{dataset}": batch._replace(datasets=[dataset]) for dataset in batch.datasets}
            jobs[name] = {
                label + suffix: part._replace(settings=settings)
                for label, part in parts.items()
                for suffix, settings in shares_of(batch.settings, apart).items()
            }
        return jobs

    def measured(self) -> list[str]:
        return list(dict.fromkeys(dataset for batch in self.batches.values() for dataset in batch.datasets))

    def priority(self, part: str) -> int:
        """Return a number from 1 on, larger for what comes earlier: families, single tests, experiments."""
        order = [*self.families, *self.config["ci_tests"]["tables"], *self.experiments]
        return len(order) - order.index(part)

    def describe(self) -> None:
        """Write the config, without the folders of this machine, and the runs of each part into the results, where
        `gpupc records publish` reads them."""
        config = {**self.config, "mirrors": [], "recorded": None}
        write_text(Path(self.folder, CONFIG), yaml.safe_dump(config, sort_keys=False))
        runs: dict[str, dict[str, list[str]]] = {}
        for batch in self.batches.values():
            run = runs.setdefault(batch.part, {"datasets": [], "settings": list(batch.settings)})
            run["datasets"] += batch.datasets
        save_json({part: each for part, each in runs.items() if each["datasets"]}, Path(self.folder, EXPERIMENTS))

    # --- data --------------------------------------------------------------------------------------------------------
    def of_files(self) -> list[str]:
        """Return the data sets that are read or generated from files, which may have to be downloaded."""
        return [name for name, entry in self.entries.items() if registry.files(entry)]

    def mirrored(self, dataset: str) -> list[str]:
        """Return the copies of a data set in mirror folders; a new copy lets a missing data set be made again."""
        files, mirrors = registry.files(self.entries[dataset]), self.config["mirrors"]
        return [str(path) for file in files for path in mirrored_paths(file, mirrors)]

    def problem_parameters(self, family: str, own: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters of a family's problems (arguments of `from_data` of its problem class), of which `own`
        ones override those of the config and of the family."""
        everywhere = {key: self.config[key] for key in ("alpha", "max_level")}
        return everywhere | self.config["problems"].get(family, {}) | own

    def parameters_of(self, dataset: str) -> dict[str, Any]:
        return self.problem_parameters(self.entries[dataset]["family"], self._problems[dataset])

    # --- records -----------------------------------------------------------------------------------------------------
    def record(self, key: Key) -> str:
        return f"{self.folder}/records/{key[0]}/{key[1]}.json"

    def references(self, batch: str) -> list[Key]:
        """Return the runs of the family's first reference with which a batch is compared, if it is measured on the
        config's data sets; none if the batch has its own references or graphs."""
        own = self.batches[batch]
        if own.part in self.families or self.experiments[own.part].graphs:
            return []
        settings = self.config["settings"][own.family]
        references = [each for each, choice in settings.items() if method_of(each, choice).reference]
        return [(dataset, reference) for dataset in own.datasets for reference in references[:1]]

    def code_versions(self, settings: Mapping[str, Config]) -> dict[str, str]:
        """Return for each setting the version of its method's code."""
        methods = {setting: method_of(setting, choice) for setting, choice in settings.items()}
        versions = {
            name: code_version(method, "cpu" if method.backends == ("cpu",) else self.config["backend"])
            for name, method in {method.name: method for method in methods.values()}.items()
        }
        return {setting: versions[method.name] for setting, method in methods.items()}

    def searches(self, family: str) -> list[Search]:
        """Return each search of a family that the config asks for once, single tests included."""
        groups = [batch.settings for batch in self.batches.values() if batch.family == family]
        tests = self.config["ci_tests"]
        if tests["tables"] and tests["spec"]["family"] == family:
            groups.append(tests["implementations"])
        parameters = self.problem_parameters(family, {})
        found = [
            Search(family, choice.get("method", name), choice.get("params", {}), parameters)
            for settings in groups
            for name, choice in settings.items()
        ]
        return [search for number, search in enumerate(found) if search not in found[:number]]

    def timelines(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Return the block-based settings whose timeline is recorded, by data set, one for each experiment."""
        settings_of = {}
        for entry in self.outputs().values():
            if "timeline" in entry.reads:
                experiment = self.experiments[entry.experiments[0]]
                methods = {name: choice.get("method", name) for name, choice in experiment.settings.items()}
                blocks = [name for name, method in methods.items() if method == "out-of-core-block"]
                settings_of[experiment.datasets[0]] = {name: experiment.settings[name] for name in blocks}
        return settings_of

    # --- outputs -----------------------------------------------------------------------------------------------------
    def outputs(self) -> dict[str, Entry]:
        """Return the tables and figures for which the config has data."""
        return {name: entry for name, entry in entries().items() if self._has(entry)}

    def _has(self, entry: Entry) -> bool:
        if entry.tests:
            return entry.tests in self.config["ci_tests"]["tables"]
        if entry.family:
            return any(self.families.get(part) for part in self._parts(entry))
        return entry.experiments[0] in self.experiments

    def _parts(self, entry: Entry) -> list[str]:
        """Return the families and experiments whose runs a table or figure shows."""
        families = self.families if entry.family == EVERY else [entry.family] * (entry.family in self.families)
        return [*families, *(each for each in entry.experiments if each in self.experiments)]

    def _shown(self, entry: Entry) -> list[str]:
        """Return the names of the batches whose runs a table or figure shows."""
        return [name for part in self._parts(entry) for name, batch in self.batches.items() if batch.part == part]

    def _keys(self, entry: Entry) -> list[Key]:
        return [key for name in self._shown(entry) for key in self.batches[name].keys]

    def inputs(self, entry: Entry) -> dict[str, list[str]]:
        """Return the files from which a table or figure is made, by kind (`gpupc_impl.reporting.catalogue.READERS`)."""
        shown = self._shown(entry)
        datasets = dict.fromkeys(dataset for name in shown for dataset in self.batches[name].datasets)
        timelines = [self.experiments[name].datasets[0] for name in entry.experiments if name in self.experiments]
        files = {
            "records": list(map(self.record, self._keys(entry))),
            "verification": [f"{self.folder}/verification/{name}.csv" for name in shown],
            "problems": [f"{self.folder}/problems/{name}.json" for name in datasets],
            "sharing": [f"{self.folder}/sharing.csv"],
            "tests": [f"{self.folder}/tests/{entry.tests}.json"],
            "every_test": [f"{self.folder}/tests/{name}.json" for name in self.config["ci_tests"]["tables"]],
            "timeline": [f"{self.folder}/timelines/{name}.csv" for name in timelines[:1]],
            "factors": [str(ROOT / "results/recorded/cpu_factors.csv")],
            "reported": [str(ROOT / "results/reported" / entry.reported)],
        }
        kinds = [kind for name in entry.reads for kind in (("records", "verification") if name == "runs" else (name,))]
        return {kind: files[kind] for kind in kinds if kind in files}

    def config_arguments(self, entry: Entry) -> dict[str, Any]:
        """Return the arguments of a table or figure that come from the config (`catalogue.GIVEN`)."""
        experiment = self.experiments.get(next(iter(entry.experiments), ""))
        arguments: dict[str, Any] = {"notes": entry.notes}
        if experiment:
            ran = f"{next(iter(experiment.datasets), '')}, backend {self.config['backend']}"
            arguments |= {"sweeps": experiment.sweeps, "ran": ran}
        if entry.tests:
            arguments["varies"] = self.config["ci_tests"]["tables"][entry.tests]["varies"]
        return {name: arguments[name] for name in entry.reads if name in arguments}

    # --- sources -----------------------------------------------------------------------------------------------------
    def source(self, entry: Entry) -> Source | None:
        """Return this machine's results as the source of a table or figure; None if the config has no data for it."""
        if not self._has(entry):
            return None
        return Source(None, self.config["backend"], self.inputs(entry), self.config_arguments(entry))

    def recorded_source(self, entry: Entry) -> Source | None:
        """Return a folder of published runs as the source of a table or figure; None if the folder has nothing to show.
        If an output reads no runs, its heading describes the runs on the data sets that it shows."""
        if not self._has(entry):
            return None
        inputs, published = self.inputs(entry), open_published(self.folder)
        timelines = {} if "records" in inputs else {Path(path).stem for path in inputs.get("timeline", [])}
        keys = list(dict.fromkeys(key for key in self._keys(entry) if not timelines or key[0] in timelines))
        runs = [key for key in keys if key in published]
        datasets = [Path(path).stem for path in inputs.get("problems", []) if Path(path).stem in published.datasets]
        others = inputs.keys() - {"records", "verification", "problems"}
        files = {kind: [path for path in inputs[kind] if Path(path).is_file()] for kind in inputs if kind in others}
        main = next(kind for kind in MAIN_FILES if kind in inputs)
        if not {"records": runs, "problems": datasets, **files}[main]:
            return None
        groups = [*self.config["settings"].values(), *(each.settings for each in self.experiments.values())]
        methods = {(name, choice.get("method", name)) for group in groups for name, choice in group.items()}
        compared = {name for name, method in methods if method in entry.methods}
        if entry.methods and not any(setting in compared for _, setting in runs):
            return None
        files["published"] = published.files_of(runs)
        every = ((key, batch.settings[key[1]]) for batch in self.batches.values() for key in batch.keys)
        requested = {key for key, choice in every if is_requested(choice, key[0])}
        absent = [key for key in keys if key in requested and key not in published] if "records" in inputs else []
        return Source(self.folder, self.config["backend"], files, self.config_arguments(entry), runs, datasets, absent)


def recorded_plans(config: Config) -> list[Plan]:
    """Return the plans of the published runs that a config shows; ValueError says why a folder cannot be shown."""
    plans = []
    for folder in recorded_folders(config):
        path = Path(folder) / CONFIG
        try:
            plans.append(Plan(read_config(path), folder))
        except FileNotFoundError:
            raise ValueError(f"recorded: {folder} holds no recorded runs: it has no file {CONFIG}") from None
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"recorded: {path} cannot be read any more: {error}") from error
    return plans


def recorded_folders(config: Config) -> list[str]:
    """Return the folders that a config names or, if it names none, all of the project, those of GPUs first."""
    if config["recorded"] is not None:
        return list(config["recorded"])
    of_gpu = re.compile(rb"^backend: cuda$", re.MULTILINE)
    configs = ROOT.glob(f"results/recorded/*/{CONFIG}")
    configs = sorted(configs, key=lambda path: (not of_gpu.search(path.read_bytes()), path))
    folders = [path.parent for path in configs]
    return [str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path) for path in folders]
