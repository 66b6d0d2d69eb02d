"""Measures settings side by side, on one data set after another; each setting leaves a record."""

from pathlib import Path

from gpupc_impl.core.files import read_json, save_json
from workflow.lib.measuring import measuring
from workflow.lib.searches import measure_dataset, outcome_of

params, outcomes = snakemake.params, {}

with measuring(snakemake) as (bench, show):
    for problem, path in zip(snakemake.input.problems, snakemake.input.facts, strict=True):
        facts = read_json(path)
        records = measure_dataset(
            problem,
            facts,
            params.settings,
            params.timing,
            params.limits,
            bench,
            out_dir=Path("results/records") / facts["name"],
            store=Path(params.store),
            progress=lambda event, dataset=facts["name"]: show(f"{dataset}: {event}"),
        )
        outcomes[facts["name"]] = {name: outcome_of(record) for name, record in records.items()}

save_json(outcomes, Path(snakemake.output[0]))
