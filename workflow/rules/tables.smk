"""Tables, from records only."""


rule collect_records:
    input:
        records_of(MEASURED),
        [records_of_experiment(experiment) for experiment in EXPERIMENTS],
    output:
        "results/records.csv",
    log:
        "logs/collect_records.log",
    conda:
        ENVIRONMENT
    params:
        code=digest("workflow/scripts/collect_records.py"),
    message:
        "Collecting all records"
    script:
        "../scripts/collect_records.py"


rule methods_by_dataset:
    input:
        records=records_of(MEASURED),
        verification="results/verification.csv",
    output:
        **table("methods_by_dataset", "Every setting on every data set", "Runtimes"),
    log:
        "logs/methods_by_dataset.log",
    conda:
        ENVIRONMENT
    params:
        code=digest("workflow/scripts/table.py"),
    message:
        "Writing the table of every setting on every data set"
    script:
        "../scripts/table.py"


rule provenance:
    input:
        records=records_of(MEASURED),
    output:
        **table("provenance", "Machine, software and code", "Provenance"),
    log:
        "logs/provenance.log",
    conda:
        ENVIRONMENT
    params:
        code=digest("workflow/scripts/provenance.py"),
    message:
        "Writing down machine, software and code"
    script:
        "../scripts/provenance.py"


rule cupc_table1:
    input:
        problems=expand("results/problems/{dataset}.json", dataset=FAMILIES.get("gaussian", [])),
        reported=ROOT / "results/reported/cupc_table1.csv",
    output:
        **table("cupc_table1", "Table 1: data sets", "cuPC"),
    log:
        "logs/cupc_table1.log",
    conda:
        ENVIRONMENT
    params:
        code=digest("workflow/scripts/cupc_table1.py"),
    message:
        "Writing cuPC's Table 1"
    script:
        "../scripts/cupc_table1.py"


rule cupc_table2:
    input:
        records=records_of(FAMILIES.get("gaussian", [])),
        verification="results/verification.csv",
        reported=ROOT / "results/reported/cupc_table2.csv",
    output:
        **table("cupc_table2", "Table 2: runtimes and speedups", "cuPC"),
    log:
        "logs/cupc_table2.log",
    conda:
        ENVIRONMENT
    params:
        code=digest("workflow/scripts/table.py"),
    message:
        "Writing cuPC's Table 2"
    script:
        "../scripts/table.py"
