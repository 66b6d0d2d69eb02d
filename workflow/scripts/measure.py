"""Settings measured side by side, on one data set after another; every one of them leaves a record."""

import json
import sys
from pathlib import Path

from gpupc_impl.backends.machine import available_cores
from gpupc_impl.measurement.sampler import Setting, measure_side_by_side, write_skipped

params, timing = snakemake.params, snakemake.params.timing
DATASET_FACTS = ("source", "licence", "citation", "sha256")


def megabytes(limit: float | None) -> int | None:
    return None if limit is None else int(limit * 1_000_000)


def measure(problem: str, facts: dict, out: Path) -> None:
    """Measure all settings of one data set."""

    def tell(event: object) -> None:
        """Progress, on the terminal and in the log."""
        for stream in (sys.stderr, log):
            print(f"{facts['name']}: {event}", file=stream, flush=True)

    common = {
        "backend": params.backend,
        "dataset": {"name": facts["name"], **{key: facts[key] for key in DATASET_FACTS if key in facts}},
        "out_dir": out,
        "threads": min(snakemake.threads, available_cores()),
    }
    chosen = []
    for name, choice in params.settings.items():
        setting = Setting(
            name,
            choice.get("method", name),
            choice.get("params", {}),
            choice.get("separating_sets", "canonical"),
            time_limit_s=timing["time_limit_s"],
            memory_limit_bytes=megabytes(params.limits["memory_mb"]),
            device_memory_limit=megabytes(choice.get("device_memory_mb", params.limits["device_memory_mb"])),
        )
        if not facts["available"]:
            write_skipped(setting, facts["why"], problem=None, **common)
        elif facts["name"] not in choice.get("only", [facts["name"]]):
            why = f"the config measures {name} on {', '.join(choice['only'])} only"
            write_skipped(setting, why, problem=facts["problem"], **common)
        else:
            chosen.append(setting)
    for start in range(0, len(chosen), timing["side_by_side"]):
        measure_side_by_side(
            problem,
            chosen[start : start + timing["side_by_side"]],
            repeats=timing["repeats"],
            time_limit_s=None,
            memory_limit_bytes=None,
            long_run_s=timing["long_run_s"],
            store=params.store,
            log=log,
            progress=tell,
            **common,
        )


with open(snakemake.log[0], "w", buffering=1, encoding="utf-8") as log:
    for problem, path in zip(snakemake.input.problems, snakemake.input.facts, strict=True):
        facts = json.loads(Path(path).read_text(encoding="utf-8"))
        measure(problem, facts, Path("results/records") / facts["name"])
