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
        code=code_of("load_dataset.py"),
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
        code=lambda wildcards: code_of("load_dataset.py", [ENTRIES[wildcards.dataset]]),
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
        parameters=lambda wildcards: problem_parameters(
            ENTRIES[wildcards.dataset]["family"], config["datasets"][wildcards.dataset]
        ),
        code=lambda wildcards: code_of("prepare_problem.py", family=ENTRIES[wildcards.dataset]["family"]),
    message:
        "Preparing the problem of data set {wildcards.dataset}"
    script:
        "../scripts/prepare_problem.py"


# Many and small: one job makes all graphs of an experiment, and keeps their problems only.
for experiment in EXPERIMENTS:
    if EXPERIMENTS[experiment].graphs:

        rule:
            name:
                f"generate_{experiment}"
            input:
                [
                    path
                    for entry in EXPERIMENTS[experiment].graphs.values()
                    if entry["kind"] == "file"
                    for path in map(str, mirrored_paths(entry, config["mirrors"]))
                ],
            output:
                problems=expand("results/problems/{dataset}.npz", dataset=EXPERIMENTS[experiment].graphs),
                facts=expand("results/problems/{dataset}.json", dataset=EXPERIMENTS[experiment].graphs),
            log:
                f"logs/generate_{experiment}.log",
            conda:
                ENVIRONMENT
            params:
                entries=EXPERIMENTS[experiment].graphs,
                where={"cache_dir": "resources/datasets", "mirrors": config["mirrors"], "offline": config["offline"]},
                parameters=[
                    problem_parameters(EXPERIMENTS[experiment].family, {"problem": own})
                    for own in EXPERIMENTS[experiment].problems.values()
                ],
                code=code_of(
                    "generate_graphs.py", EXPERIMENTS[experiment].graphs.values(), EXPERIMENTS[experiment].family
                ),
            message:
                f"Generating the graphs of {experiment}"
            script:
                "../scripts/generate_graphs.py"
