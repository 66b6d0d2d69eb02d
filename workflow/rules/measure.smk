"""Measurements: whole searches, single tests, and the timeline of an out-of-core run. Nothing else runs beside them, so
they take all cores. They come first (`priority`): a check or a figure between two of them would leave a core idle."""

LIMITS = config["timing"], config["limits"], config["cluster"]

# A job measures settings side by side, on one data set or on all graphs of an experiment. Skeletons (.npz) lie beside the
# records of those that finished; only the records are outputs, since a failed method leaves no skeleton.
for name, measurement in PLAN.measurements().items():

    rule:
        name:
            f"measure_{name}"
        input:
            problems=expand("results/problems/{dataset}.npz", dataset=measurement.targets),
            facts=expand("results/problems/{dataset}.json", dataset=measurement.targets),
        output:
            records=records(measurement.targets, measurement.settings),
        log:
            measurement.log,
        wildcard_constraints:
            dataset=one_of(measurement.datasets),
        priority: 1
        conda:
            ENVIRONMENT
        threads: workflow.cores or 1
        resources:
            **job_limits.for_searches(
                measurement.settings,
                len(measurement.targets),
                measurement.repeats,
                *LIMITS,
            ),
            timing_slot=1,
            gpu=int(BACKEND == "cuda"),
            attempt=attempt_of,
        params:
            family=measurement.family,
            settings=measurement.settings,
            codes=PLAN.code_versions(measurement.settings),
            code=code_of("measure.py"),
            backend=BACKEND,
            timing=config["timing"] | {"repeats": measurement.repeats},
            limits=config["limits"],
            store="results/samples",
        message:
            f"Measuring {measurement.subject} on backend {{params.backend}}"
        script:
            "../scripts/measure.py"


for name, table in CI_TESTS["tables"].items():

    rule:
        name:
            f"time_{name}"
        output:
            f"results/tests/{name}.json",
        log:
            f"logs/time_tests/{name}.log",
        priority: 1
        conda:
            ENVIRONMENT
        threads: workflow.cores or 1
        resources:
            **job_limits.for_single_tests(
                len(CI_TESTS["implementations"]) * len(slices.cases(table)),
                len(CI_TESTS["implementations"]),
                CI_TESTS["time_limit_s"],
                *LIMITS[1:],
            ),
            timing_slot=1,
            gpu=int(BACKEND == "cuda"),
            attempt=attempt_of,
        params:
            table=table,
            tests={key: CI_TESTS[key] for key in ("spec", "tests", "time_limit_s")},
            implementations=CI_TESTS["implementations"],
            codes=PLAN.code_versions(CI_TESTS["implementations"]),
            code=code_of("time_tests.py", [CI_TESTS["spec"]], CI_TESTS["spec"]["family"]),
            parameters=PLAN.problem_parameters(CI_TESTS["spec"]["family"], {}),
            backend=BACKEND,
            limits=config["limits"],
            store="results/samples",
        message:
            f"Timing the single tests of {name} on backend {{params.backend}}"
        script:
            "../scripts/time_tests.py"


# A run of its own: writing its steps down is no part of a measurement.
for name, settings in PLAN.timelines().items():

    rule:
        name:
            f"record_timeline_{name}"
        input:
            problem=f"results/problems/{name}.npz",
            facts=f"results/problems/{name}.json",
        output:
            f"results/timelines/{name}.csv",
        log:
            f"logs/record_timeline/{name}.log",
        priority: 1
        conda:
            ENVIRONMENT
        threads: workflow.cores or 1
        resources:
            **job_limits.for_searches(settings, 1, 1, *LIMITS),
            timing_slot=1,
            gpu=int(BACKEND == "cuda"),
        params:
            setting=settings,
            codes=PLAN.code_versions(settings),
            code=code_of("record_timeline.py"),
            backend=BACKEND,
            limits=config["limits"],
        message:
            f"Recording when each block of {name} is at work"
        script:
            "../scripts/record_timeline.py"
