"""Rules that compare skeletons and test removed edges again; an unexplained difference fails the workflow."""

CI_TESTS_VERIFICATION = ["results/verification/ci_tests.csv"] if CI_TESTS["tables"] else []


localrules:
    collect_experiment,
    collect_verification,
    check_verification,


rule verify_skeletons:
    input:
        problems=["results/problems/{dataset}.npz"],
        matrices=lambda wildcards: matrices_of(LARGE.get(wildcards.dataset), [wildcards.dataset]),
        records=lambda wildcards: records_of_dataset(wildcards.dataset),
    output:
        "results/verification/{dataset}.csv",
    log:
        "logs/verify_skeletons/{dataset}.log",
    wildcard_constraints:
        dataset=one_of([*PLAN.measured, *LARGE]),
    priority: FIRST
    conda:
        ENVIRONMENT
    params:
        code=digest("workflow/scripts/verify_skeletons.py"),
    message:
        "Verifying the skeletons of {wildcards.dataset}"
    script:
        "../scripts/verify_skeletons.py"


rule verify_experiment:
    input:
        problems=lambda wildcards: expand(
            "results/problems/{dataset}.npz", dataset=PLAN.experiments[wildcards.experiment].datasets
        ),
        records=lambda wildcards: PLAN.references_of_experiment(wildcards.experiment)
        + PLAN.records_of_experiment(wildcards.experiment),
    output:
        in_report("results/verification/{experiment}.csv", "Verification", "Skeletons of {experiment}", "verification"),
    log:
        "logs/verify_skeletons/{experiment}.log",
    wildcard_constraints:
        experiment=one_of(name for name, each in PLAN.experiments.items() if not each.large),
    priority: FIRST
    conda:
        ENVIRONMENT
    params:
        code=digest("workflow/scripts/verify_skeletons.py"),
    message:
        "Verifying the skeletons of {wildcards.experiment}"
    script:
        "../scripts/verify_skeletons.py"


rule collect_experiment:
    input:
        lambda wildcards: expand(
            "results/verification/{dataset}.csv", dataset=PLAN.experiments[wildcards.experiment].datasets
        ),
    output:
        in_report("results/verification/{experiment}.csv", "Verification", "Skeletons of {experiment}", "verification"),
    log:
        "logs/collect_experiment/{experiment}.log",
    wildcard_constraints:
        experiment=one_of(set(LARGE.values())),
    conda:
        ENVIRONMENT
    params:
        code=digest("workflow/scripts/collect_csv.py"),
    message:
        "Collecting the verification of {wildcards.experiment}"
    script:
        "../scripts/collect_csv.py"


rule verify_ci_tests:
    input:
        expand("results/tests/{name}.json", name=CI_TESTS["tables"]),
    output:
        in_report("results/verification/ci_tests.csv", "Verification", "p-values of single tests", "ci_tests"),
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
