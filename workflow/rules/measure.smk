"""A job measures settings side by side, on one data set or on all graphs of an experiment. Skeletons (.npz) lie beside
the records of those that finished; only the records are outputs, since a failed method leaves no skeleton."""

for name, measurement in measurements().items():

    rule:
        name:
            f"measure_{name}"
        input:
            problems=expand("results/problems/{dataset}.npz", dataset=measurement.targets),
            facts=expand("results/problems/{dataset}.json", dataset=measurement.targets),
        output:
            records=record_paths(measurement.targets, measurement.settings),
        log:
            measurement.log,
        wildcard_constraints:
            dataset=one_of(measurement.datasets),
        conda:
            ENVIRONMENT
        # All cores: nothing else may run beside a measurement.
        threads: workflow.cores or 1
        resources:
            timing_slot=1,
            gpu=int(BACKEND == "cuda"),
        params:
            family=measurement.family,
            settings=measurement.settings,
            codes=code_versions(measurement.settings),
            code=code_of("measure.py"),
            backend=BACKEND,
            timing=config["timing"] | {"repeats": measurement.repeats},
            limits=config["limits"],
            store="results/samples",
        message:
            f"Measuring {measurement.subject} on backend {{params.backend}}"
        script:
            "../scripts/measure.py"
