"""Measures settings side by side, on one data set after another; each setting leaves a record, also one that is not
measured on a data set, with the reason."""

from pathlib import Path

from gpupc_impl.core.files import read_json, save_json
from gpupc_impl.measurement.record import DATASET_FACTS
from gpupc_impl.measurement.skeletons import MeasurementRequest, measure_side_by_side
from workflow.lib.measuring import measuring
from workflow.lib.searches import is_requested, setting_of

params, timing, outcomes = snakemake.params, snakemake.params.timing, {}

with measuring(snakemake) as (bench, show):
    for problem, path in zip(snakemake.input.problems, snakemake.input.facts, strict=True):
        facts = read_json(path)
        dataset, skipped = facts["name"], {}
        for name, choice in params.settings.items():
            if not facts["available"]:
                skipped[name] = facts["why"]
            elif not is_requested(choice, dataset):
                skipped[name] = f"the config measures {name} on {', '.join(choice['only']) or 'no data set'} only"
        request = MeasurementRequest(
            problem_path=Path(problem) if facts["available"] else None,
            dataset={"name": dataset, **{key: facts[key] for key in DATASET_FACTS if key in facts}},
            settings=[setting_of(name, choice, timing, params.limits) for name, choice in params.settings.items()],
            skipped=skipped,
            out_dir=Path("results/records") / dataset,
            store=Path(params.store),
            **{name: timing[name] for name in ("repeats", "long_run_s", "side_by_side")},
        )
        records = measure_side_by_side(request, bench, progress=lambda event, name=dataset: show(f"{name}: {event}"))
        outcomes[dataset] = {name: {"status": each.status, "why": each.why} for name, each in records.items()}

save_json(outcomes, Path(snakemake.output[0]))
