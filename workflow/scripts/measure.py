"""Settings measured side by side, on one data set after another; every one of them leaves a record."""

import json
import sys
from pathlib import Path

from gpupc_impl.backends.machine import available_cores
from gpupc_impl.measurement.record import Limits
from gpupc_impl.measurement.sampler import Bench, Setting
from gpupc_impl.measurement.skeletons import Plan, measure_side_by_side

params, timing = snakemake.params, snakemake.params.timing
DATASET_FACTS = ("source", "licence", "citation", "sha256")


def megabytes(limit: float | None) -> int | None:
    return None if limit is None else int(limit * 1_000_000)


def setting(name: str, choice: dict) -> Setting:
    limits = Limits(
        timing["time_limit_s"],
        megabytes(params.limits["memory_mb"]),
        megabytes(choice.get("device_memory_mb", params.limits["device_memory_mb"])),
    )
    method, sets = choice.get("method", name), choice.get("separating_sets", "canonical")
    return Setting(name, method, choice.get("params", {}), sets, limits)


def measure(problem: str, facts: dict, bench: Bench) -> None:
    """Measure all settings of one data set."""
    dataset = facts["name"]

    def tell(event: object) -> None:
        """Progress, on the terminal and in the log."""
        for stream in (sys.stderr, log):
            print(f"{dataset}: {event}", file=stream, flush=True)

    skipped = {
        name: f"the config measures {name} on {', '.join(choice['only'])} only"
        for name, choice in params.settings.items()
        if dataset not in choice.get("only", [dataset])
    }
    if not facts["available"]:
        skipped = dict.fromkeys(params.settings, facts["why"])
    plan = Plan(
        problem_path=Path(problem) if facts["available"] else None,
        dataset={"name": dataset, **{key: facts[key] for key in DATASET_FACTS if key in facts}},
        settings=[setting(name, choice) for name, choice in params.settings.items()],
        skipped=skipped,
        out_dir=Path("results/records") / dataset,
        repeats=timing["repeats"],
        long_run_s=timing["long_run_s"],
        side_by_side=timing["side_by_side"],
        store=Path(params.store),
    )
    measure_side_by_side(plan, bench, progress=tell)


with open(snakemake.log[0], "w", buffering=1, encoding="utf-8") as log:
    bench = Bench(params.backend, min(snakemake.threads, available_cores()), log)
    for problem, path in zip(snakemake.input.problems, snakemake.input.facts, strict=True):
        measure(problem, json.loads(Path(path).read_text(encoding="utf-8")), bench)
