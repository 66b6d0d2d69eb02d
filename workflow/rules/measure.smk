"""Rules that measure: whole searches, single tests, and the timeline of an out-of-core run. By default a measurement
takes all cores, so nothing runs beside it. Measurements have the highest `priority`, since a check or a figure between
two of them would leave cores idle."""


# Kernels are compiled on all cores, beside the jobs that prepare problems: nothing is measured before that has ended. What
# is compiled are caches, so nothing is measured again after it. Later runs compile what they need when they need it.
rule compile_ahead:
    output:
        "results/compiled/{part}.ok",
    log:
        "logs/compile_ahead/{part}.log",
    wildcard_constraints:
        part=one_of(PARTS),
    priority: FIRST + 1
    conda:
        ENVIRONMENT
    resources:
        gpu=lambda wildcards: int(BACKEND == "cuda" and wildcards.part == KERNELS),
    params:
        searches=str(SEARCHES),
        backend=BACKEND,
    message:
        "Compiling the {wildcards.part} of this run"
    script:
        "../scripts/compile_ahead.py"


# A job measures settings side by side, on one data set or on all graphs of an experiment. The list of its records
# differs from family to family, which no wildcard can express, so every family and experiment has a rule. The skeletons
# (.npz) of finished settings lie beside the records. A failed method leaves no skeleton, so only records are declared
# as outputs.
for name, measurement in PLAN.measurements().items():

    rule:
        name:
            f"measure_{name}"
        input:
            problems=expand("results/problems/{dataset}.npz", dataset=measurement.targets),
            matrices=matrices_of(name, measurement.targets),
            facts=expand("results/problems/{dataset}.json", dataset=measurement.targets),
            compiled=ancient(COMPILED),
        output:
            records=records(measurement.targets, measurement.settings),
        log:
            measurement.log,
        wildcard_constraints:
            dataset=one_of(measurement.datasets),
        priority: priority_of(name) + 1
        conda:
            ENVIRONMENT
        threads: MEASURING_CORES
        resources:
            **job_limits.for_searches(
                measurement.settings,
                len(measurement.targets),
                measurement.repeats,
                *LIMITS,
            ),
            **MEASURING,
            slots=SLOTS,
            attempt=attempt_of,
        params:
            target=name,
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


rule time_tests:
    input:
        compiled=ancient(COMPILED),
    output:
        "results/tests/{table}.json",
    log:
        "logs/time_tests/{table}.log",
    wildcard_constraints:
        table=one_of(CI_TESTS["tables"]),
    priority: lambda wildcards: priority_of(wildcards.table) + 1
    conda:
        ENVIRONMENT
    threads: MEASURING_CORES
    resources:
        **MEASURING,
        runtime=lambda wildcards: limits_of_tests(wildcards.table)["runtime"],
        mem_mb=lambda wildcards: limits_of_tests(wildcards.table)["mem_mb"],
        slots=SLOTS,
        attempt=attempt_of,
    params:
        table=lambda wildcards: CI_TESTS["tables"][wildcards.table],
        tests={key: CI_TESTS[key] for key in ("spec", "tests", "time_limit_s")},
        implementations=CI_TESTS["implementations"],
        codes=PLAN.code_versions(CI_TESTS["implementations"]),
        code=code_of("time_tests.py", [CI_TESTS["spec"]], CI_TESTS["spec"]["family"]),
        parameters=PLAN.problem_parameters(CI_TESTS["spec"]["family"], {}),
        backend=BACKEND,
        limits=config["limits"],
        store="results/samples",
    message:
        "Timing the single tests of {wildcards.table} on backend {params.backend}"
    script:
        "../scripts/time_tests.py"


# The timeline comes from a separate run, since writing down the steps is no part of a measurement.
rule record_timeline:
    input:
        problem="results/problems/{dataset}.npz",
        matrices=lambda wildcards: matrices_of(LARGE.get(wildcards.dataset), [wildcards.dataset]),
        facts="results/problems/{dataset}.json",
        compiled=ancient(COMPILED),
    output:
        "results/timelines/{dataset}.csv",
    log:
        "logs/record_timeline/{dataset}.log",
    wildcard_constraints:
        dataset=one_of(TIMELINES),
    priority: 1
    conda:
        ENVIRONMENT
    threads: MEASURING_CORES
    resources:
        **MEASURING,
        runtime=lambda wildcards: limits_of_timeline(wildcards.dataset)["runtime"],
        mem_mb=lambda wildcards: limits_of_timeline(wildcards.dataset)["mem_mb"],
        slots=SLOTS,
    params:
        setting=lambda wildcards: TIMELINES[wildcards.dataset],
        codes=lambda wildcards: PLAN.code_versions(TIMELINES[wildcards.dataset]),
        code=code_of("record_timeline.py"),
        backend=BACKEND,
        limits=config["limits"],
    message:
        "Recording when each block of {wildcards.dataset} is at work"
    script:
        "../scripts/record_timeline.py"
