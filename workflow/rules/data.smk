"""From a name in the config to a prepared problem."""


localrules:
    fetch_dataset,


rule fetch_dataset:
    input:
        lambda wildcards: PLAN.mirrored([PLAN.entries[wildcards.dataset]]),
    output:
        "results/data/{dataset}.npz",
    log:
        "logs/fetch_dataset/{dataset}.log",
    wildcard_constraints:
        dataset=one_of(PLAN.of_kind(file=True)),
    conda:
        ENVIRONMENT
    params:
        entry=lambda wildcards: PLAN.entries[wildcards.dataset],
        where=PLAN.where(),
        code=code_of("load_dataset.py"),
    message:
        "Fetching data set {wildcards.dataset}"
    script:
        "../scripts/load_dataset.py"


rule simulate_dataset:
    output:
        "results/data/{dataset}.npz",
    log:
        "logs/simulate_dataset/{dataset}.log",
    wildcard_constraints:
        dataset=one_of(PLAN.of_kind(file=False)),
    conda:
        ENVIRONMENT
    params:
        entry=lambda wildcards: PLAN.entries[wildcards.dataset],
        where={"offline": True},
        code=lambda wildcards: code_of("load_dataset.py", [PLAN.entries[wildcards.dataset]]),
    message:
        "Simulating data set {wildcards.dataset}"
    script:
        "../scripts/load_dataset.py"


# The correlation matrix is made once, so that all methods see the same bits.
rule prepare_problem:
    input:
        "results/data/{dataset}.npz",
    output:
        problems=["results/problems/{dataset}.npz"],
        facts=["results/problems/{dataset}.json"],
    log:
        "logs/prepare_problem/{dataset}.log",
    conda:
        ENVIRONMENT
    params:
        parameters=lambda wildcards: [PLAN.parameters_of(wildcards.dataset)],
        code=lambda wildcards: code_of("prepare_problems.py", family=PLAN.entries[wildcards.dataset]["family"]),
    message:
        "Preparing the problem of data set {wildcards.dataset}"
    script:
        "../scripts/prepare_problems.py"


# Many and small: one job makes all graphs of an experiment, and keeps their problems only.
for name, experiment in PLAN.experiments.items():
    if experiment.graphs:

        rule:
            name:
                f"generate_{name}"
            input:
                PLAN.mirrored(experiment.graphs.values()),
            output:
                problems=expand("results/problems/{dataset}.npz", dataset=experiment.graphs),
                facts=expand("results/problems/{dataset}.json", dataset=experiment.graphs),
            log:
                f"logs/generate_{name}.log",
            conda:
                ENVIRONMENT
            params:
                graphs=experiment.graphs,
                where=PLAN.where(),
                parameters=[PLAN.problem_parameters(experiment.family, own) for own in experiment.problems.values()],
                code=code_of("prepare_problems.py", experiment.graphs.values(), experiment.family),
            message:
                f"Generating the graphs of {name}"
            script:
                "../scripts/prepare_problems.py"
