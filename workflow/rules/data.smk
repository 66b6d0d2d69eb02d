"""Rules from a data set's name in the config to a prepared problem."""


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
    priority: FIRST
    conda:
        ENVIRONMENT
    params:
        entry=lambda wildcards: PLAN.entries[wildcards.dataset],
        where=PLAN.where(),
        code=lambda wildcards: code_of("load_dataset.py", [PLAN.entries[wildcards.dataset]]),
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
    priority: FIRST
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


# The correlation matrix is computed once, so that all methods see the same bits.
rule prepare_problem:
    input:
        "results/data/{dataset}.npz",
    output:
        problems=["results/problems/{dataset}.npz"],
        facts=["results/problems/{dataset}.json"],
    log:
        "logs/prepare_problem/{dataset}.log",
    priority: lambda wildcards: priority_of(PLAN.entries[wildcards.dataset]["family"])
    conda:
        ENVIRONMENT
    threads: PREPARING_CORES
    params:
        parameters=lambda wildcards: [PLAN.parameters_of(wildcards.dataset)],
        code=lambda wildcards: code_of("prepare_problems.py", family=PLAN.entries[wildcards.dataset]["family"]),
    message:
        "Preparing the problem of data set {wildcards.dataset}"
    script:
        "../scripts/prepare_problems.py"


# One job makes all graphs of an experiment, which are many and small, and keeps only their problems. A large graph has
# its own job, and its problem is removed as soon as it has been measured and verified.
for name, experiment in PLAN.experiments.items():
    if experiment.graphs:
        targets = ["{dataset}"] if experiment.large else experiment.datasets
        kept = temp if experiment.large else list

        rule:
            name:
                f"generate_{name}"
            input:
                partial(mirrored_graphs, experiment),
            output:
                problems=kept(expand("results/problems/{dataset}.npz", dataset=targets)),
                matrices=kept(matrices_of(name, targets)),
                facts=expand("results/problems/{dataset}.json", dataset=targets),
            log:
                f"logs/generate_{name}/{{dataset}}.log" if experiment.large else f"logs/generate_{name}.log",
            wildcard_constraints:
                dataset=one_of(experiment.datasets),
            priority: priority_of(name)
            conda:
                ENVIRONMENT
            threads: max(MEASURING_CORES, CORES // 4) if experiment.large else PREPARING_CORES
            params:
                graphs=partial(graphs_of, experiment),
                where=PLAN.where(),
                parameters=partial(parameters_of_graphs, name),
                code=code_of("prepare_problems.py", experiment.graphs.values(), experiment.family),
            message:
                f"Generating {'{wildcards.dataset}' if experiment.large else 'the graphs of ' + name}"
            script:
                "../scripts/prepare_problems.py"
