"""Skeletons compared edge by edge, removed edges tested again; an unexplained difference fails the run."""

CI_TESTS_VERIFICATION = ["results/verification/ci_tests.csv"] if CI_TESTS["tables"] else []


localrules:
    collect_verification,
    check_verification,


rule verify_skeletons:
    input:
        problems=["results/problems/{dataset}.npz"],
        records=lambda wildcards: PLAN.records_of([wildcards.dataset]),
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


for name, experiment in PLAN.experiments.items():

    rule:
        name:
            f"verify_{name}"
        input:
            problems=expand("results/problems/{dataset}.npz", dataset=experiment.datasets),
            records=PLAN.references_of_experiment(name) + PLAN.records_of_experiment(name),
        output:
            in_report(f"results/verification/{name}.csv", "Verification", f"Skeletons of {name}", "verification"),
        log:
            f"logs/verify_skeletons/{name}.log",
        conda:
            ENVIRONMENT
        params:
            code=digest("workflow/scripts/verify_skeletons.py"),
        message:
            f"Verifying the skeletons of {name}"
        script:
            "../scripts/verify_skeletons.py"


for path in CI_TESTS_VERIFICATION:

    rule verify_ci_tests:
        input:
            expand("results/tests/{name}.json", name=CI_TESTS["tables"]),
        output:
            in_report(path, "Verification", "p-values of single tests", "ci_tests"),
        log:
            "logs/verify_ci_tests.log",
        conda:
            ENVIRONMENT
        params:
            code=digest("workflow/scripts/verify_tests.py"),
        message:
            "Comparing the p-values of single tests"
        script:
            "../scripts/verify_tests.py"


rule collect_verification:
    input:
        expand("results/verification/{dataset}.csv", dataset=PLAN.measured),
    output:
        in_report("results/verification.csv", "Verification", "All skeletons", "verification"),
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
        expand("results/verification/{experiment}.csv", experiment=PLAN.experiments),
        CI_TESTS_VERIFICATION,
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
