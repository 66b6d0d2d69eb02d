"""Skeletons compared edge by edge, removed edges tested again; an unexplained difference fails the run."""


rule verify_skeletons:
    input:
        problems=["results/problems/{dataset}.npz"],
        records=lambda wildcards: records_of([wildcards.dataset]),
    output:
        "results/verification/{dataset}.csv",
    log:
        "logs/verify_skeletons/{dataset}.log",
    conda:
        ENVIRONMENT
    params:
        code=digest("workflow/scripts/verify_skeletons.py"),
    message:
        "Verifying the skeletons of {wildcards.dataset}"
    script:
        "../scripts/verify_skeletons.py"


for experiment in EXPERIMENTS:

    rule:
        name:
            f"verify_{experiment}"
        input:
            problems=expand("results/problems/{dataset}.npz", dataset=EXPERIMENTS[experiment].datasets),
            records=references_of_experiment(experiment) + records_of_experiment(experiment),
        output:
            report(
                f"results/verification/{experiment}.csv",
                caption="../report/verification.rst",
                category="Verification",
                labels={"result": f"Skeletons of {experiment}"},
            ),
        log:
            f"logs/verify_skeletons/{experiment}.log",
        conda:
            ENVIRONMENT
        params:
            code=digest("workflow/scripts/verify_skeletons.py"),
        message:
            f"Verifying the skeletons of {experiment}"
        script:
            "../scripts/verify_skeletons.py"


rule collect_verification:
    input:
        expand("results/verification/{dataset}.csv", dataset=MEASURED),
    output:
        report(
            "results/verification.csv",
            caption="../report/verification.rst",
            category="Verification",
            labels={"result": "All skeletons"},
        ),
    log:
        "logs/collect_verification.log",
    conda:
        ENVIRONMENT
    params:
        code=digest("workflow/scripts/collect_csv.py"),
    message:
        "Collecting the verification of all data sets"
    script:
        "../scripts/collect_csv.py"


rule check_verification:
    input:
        "results/verification.csv",
        expand("results/verification/{experiment}.csv", experiment=EXPERIMENTS),
        [CI_TESTS_VERIFICATION] if CI_TESTS["tables"] else [],
    output:
        touch("results/verification.ok"),
    log:
        "logs/check_verification.log",
    conda:
        ENVIRONMENT
    params:
        code=digest("workflow/scripts/check_verification.py"),
    message:
        "Checking that no difference between skeletons is unexplained"
    script:
        "../scripts/check_verification.py"
