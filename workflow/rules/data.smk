"""From a name in the config to a prepared problem."""


localrules:
    fetch_dataset,


rule fetch_dataset:
    input:
        mirrored,
    output:
        "results/data/{dataset}.npz",
    log:
        "logs/fetch_dataset/{dataset}.log",
    wildcard_constraints:
        dataset=one_of(FETCHED),
    conda:
        ENVIRONMENT
    params:
        entry=lambda wildcards: ENTRIES[wildcards.dataset],
        spec=lambda wildcards: config["datasets"][wildcards.dataset].get("spec"),
        cache_dir="resources/datasets",
        mirrors=config["mirrors"],
        offline=config["offline"],
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
        dataset=one_of(SIMULATED),
    conda:
        ENVIRONMENT
    params:
        entry=lambda wildcards: ENTRIES[wildcards.dataset],
        spec=lambda wildcards: config["datasets"][wildcards.dataset].get("spec"),
        cache_dir="resources/datasets",
        mirrors=[],
        offline=True,
    message:
        "Simulating data set {wildcards.dataset}"
    script:
        "../scripts/load_dataset.py"


# The correlation matrix is made once, so that all methods see the same bits.
rule prepare_problem:
    input:
        "results/data/{dataset}.npz",
    output:
        problem="results/problems/{dataset}.npz",
        facts="results/problems/{dataset}.json",
    log:
        "logs/prepare_problem/{dataset}.log",
    conda:
        ENVIRONMENT
    params:
        family=lambda wildcards: ENTRIES[wildcards.dataset]["family"],
        parameters=problem_parameters,
        code=sources_version("core/problem.py"),
    message:
        "Preparing the problem of data set {wildcards.dataset}"
    script:
        "../scripts/prepare_problem.py"
