"""One job a data set measures all settings of its family side by side. Skeletons (.npz) lie beside the records of those
that finished; only the records are outputs, since a failed method leaves no skeleton."""

for family, members in FAMILIES.items():

    rule:
        name:
            f"measure_{family}"
        input:
            problem="results/problems/{dataset}.npz",
            facts="results/problems/{dataset}.json",
        output:
            records=expand("results/records/{{dataset}}/{setting}.json", setting=SETTINGS[family]),
        log:
            f"logs/measure_{family}/{{dataset}}.log",
        wildcard_constraints:
            dataset=one_of(members),
        conda:
            ENVIRONMENT
        # All cores: nothing else may run beside a measurement.
        threads: workflow.cores or 1
        resources:
            timing_slot=1,
            gpu=int(BACKEND == "cuda"),
        params:
            family=family,
            settings=SETTINGS[family],
            codes=code_versions(family),
            backend=BACKEND,
            timing=config["timing"],
            limits=config["limits"],
            store="results/samples",
        message:
            "Measuring {wildcards.dataset} on backend {params.backend}"
        script:
            "../scripts/measure.py"
