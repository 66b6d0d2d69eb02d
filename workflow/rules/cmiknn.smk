"""Tables 1 to 10 and Fig. 1 of the GPU-CMIknn paper, as far as the config has their tests and experiments."""

CMIKNN_TARGETS = []

TESTS_LABELS = {"k_cmi": "k_CMI", "permutations": "perm", "set_size": "|S|", "samples": "n"}

for name, choice in CI_TESTS["tables"].items():

    rule:
        name:
            f"time_{name}"
        output:
            f"results/tests/{name}.json",
        log:
            f"logs/time_tests/{name}.log",
        conda:
            ENVIRONMENT
        # All cores: nothing else may run beside a measurement.
        threads: workflow.cores or 1
        resources:
            timing_slot=1,
            gpu=int(BACKEND == "cuda"),
        params:
            table=choice,
            spec=CI_TESTS["spec"],
            tests=CI_TESTS["tests"],
            time_limit_s=CI_TESTS["time_limit_s"],
            implementations=CI_TESTS["implementations"],
            codes=code_versions(CI_TESTS["implementations"]),
            code=code_of("cmiknn_tests.py", [CI_TESTS["spec"]], "nonlinear"),
            parameters=problem_parameters("nonlinear", {}),
            backend=BACKEND,
            limits=config["limits"],
            store="results/samples",
        message:
            f"Timing the single tests of {name} on backend {{params.backend}}"
        script:
            "../scripts/cmiknn_tests.py"

    # The paper's Tables 6 to 9 are the percentiles of Tables 1 to 4.
    for table_name, kind in ((name, ""), (PERCENTILE_TABLES[name], ", percentiles")):
        CMIKNN_TARGETS.append(f"results/tables/{table_name}.html")

        rule:
            name:
                table_name
            input:
                timed=f"results/tests/{name}.json",
                reported=ROOT / f"results/reported/{table_name}.csv",
            output:
                **table(
                    table_name,
                    f"Table {table_name.removeprefix('cmiknn_table')}: single tests over {TESTS_LABELS[choice['varies']]}{kind}",
                    "GPU-CMIknn",
                    caption="cmiknn_tests",
                ),
            log:
                f"logs/{table_name}.log",
            conda:
                ENVIRONMENT
            params:
                code=digest("workflow/scripts/cmiknn_table.py"),
                varies=choice["varies"],
                percentiles=bool(kind),
            message:
                f"Writing GPU-CMIknn's Table {table_name.removeprefix('cmiknn_table')}"
            script:
                "../scripts/cmiknn_table.py"


if CI_TESTS["tables"]:

    rule verify_ci_tests:
        input:
            expand("results/tests/{name}.json", name=CI_TESTS["tables"]),
        output:
            report(
                CI_TESTS_VERIFICATION,
                caption="../report/ci_tests.rst",
                category="Verification",
                labels={"result": "p-values of single tests"},
            ),
        log:
            "logs/verify_ci_tests.log",
        conda:
            ENVIRONMENT
        params:
            code=digest("workflow/scripts/cmiknn_verify_tests.py"),
        message:
            "Comparing the p-values of single tests"
        script:
            "../scripts/cmiknn_verify_tests.py"


CMIKNN_TABLES = {
    "cmiknn_table5": "Table 5: speedups of the search",
    "cmiknn_table10": "Table 10: sparse graphs and gene expressions",
}

for experiment in [name for name in CMIKNN_TABLES if name in EXPERIMENTS]:

    CMIKNN_TARGETS.append(f"results/tables/{experiment}.html")

    rule:
        name:
            experiment
        input:
            records=records_of_experiment(experiment),
            verification=f"results/verification/{experiment}.csv",
            reported=ROOT / f"results/reported/{experiment}.csv",
        output:
            **table(experiment, CMIKNN_TABLES[experiment], "GPU-CMIknn"),
        log:
            f"logs/{experiment}.log",
        conda:
            ENVIRONMENT
        params:
            code=digest("workflow/scripts/cmiknn_search.py"),
        message:
            f"Writing GPU-CMIknn's Table {experiment.removeprefix('cmiknn_table')}"
        script:
            "../scripts/cmiknn_search.py"


if "cmiknn_fig1" in EXPERIMENTS:

    CMIKNN_TARGETS.append("figures/cmiknn_fig1.svg")

    # Skeletons lie beside the records.
    rule cmiknn_fig1:
        input:
            records=records_of_experiment("cmiknn_fig1"),
            problems=expand("results/problems/{dataset}.json", dataset=EXPERIMENTS["cmiknn_fig1"].datasets),
            verification="results/verification/cmiknn_fig1.csv",
            reported=ROOT / "results/reported/cmiknn_fig1.csv",
        output:
            **figure("cmiknn_fig1", "Fig. 1: change of SHD with k_CMI", "GPU-CMIknn"),
            csv="results/tables/cmiknn_fig1.csv",
        log:
            "logs/cmiknn_fig1.log",
        conda:
            ENVIRONMENT
        params:
            code=digest("workflow/scripts/cmiknn_fig1.py"),
        message:
            "Drawing GPU-CMIknn's Fig. 1"
        script:
            "../scripts/cmiknn_fig1.py"
