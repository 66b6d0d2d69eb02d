"""Tables 1 to 3 of the gpuPC paper, as far as the config has discrete data sets and the experiment of Table 2."""

GPUPC_TARGETS = []

if FAMILIES.get("discrete"):

    GPUPC_TARGETS += ["results/tables/gpupc_table1.html", "results/tables/gpupc_table3.html"]

    rule gpupc_table1:
        input:
            problems=expand("results/problems/{dataset}.json", dataset=FAMILIES["discrete"]),
            reported=ROOT / "results/reported/gpupc_table1.csv",
        output:
            **table("gpupc_table1", "Table 1: data sets", "gpuPC"),
        log:
            "logs/gpupc_table1.log",
        conda:
            ENVIRONMENT
        params:
            code=digest("workflow/scripts/gpupc_table1.py"),
        message:
            "Writing gpuPC's Table 1"
        script:
            "../scripts/gpupc_table1.py"

    # Skeletons lie beside the records.
    rule gpupc_table3:
        input:
            records=records_of(FAMILIES["discrete"]),
            problems=expand("results/problems/{dataset}.json", dataset=FAMILIES["discrete"]),
            verification="results/verification.csv",
            reported=ROOT / "results/reported/gpupc_table3.csv",
        output:
            **table("gpupc_table3", "Table 3: execution times", "gpuPC"),
        log:
            "logs/gpupc_table3.log",
        conda:
            ENVIRONMENT
        params:
            code=digest("workflow/scripts/gpupc_table3.py"),
        message:
            "Writing gpuPC's Table 3"
        script:
            "../scripts/gpupc_table3.py"


if "gpupc_table2" in EXPERIMENTS:

    GPUPC_TARGETS.append("results/tables/gpupc_table2.html")

    rule gpupc_table2:
        input:
            records=records_of_experiment("gpupc_table2"),
            verification="results/verification/gpupc_table2.csv",
            reported=ROOT / "results/reported/gpupc_table2.csv",
        output:
            **table("gpupc_table2", "Table 2: gpuPC over disc-cuPC", "gpuPC"),
        log:
            "logs/gpupc_table2.log",
        conda:
            ENVIRONMENT
        params:
            code=digest("workflow/scripts/gpupc_table2.py"),
            sweeps=EXPERIMENTS["gpupc_table2"].sweeps,
        message:
            "Writing gpuPC's Table 2"
        script:
            "../scripts/gpupc_table2.py"
