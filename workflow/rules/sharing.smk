"""cuPC's Fig. 9: conditional sets shared by rows, counted from verified skeletons."""


rule count_sharing:
    input:
        records=lambda wildcards: records_of([wildcards.dataset]),
        verification="results/verification/{dataset}.csv",
    output:
        "results/sharing/{dataset}.csv",
    log:
        "logs/count_sharing/{dataset}.log",
    wildcard_constraints:
        dataset=one_of(FAMILIES.get("gaussian", [])),
    conda:
        ENVIRONMENT
    params:
        kind=lambda wildcards: ENTRIES[wildcards.dataset]["kind"],
        code=digest("workflow/scripts/sharing_count.py"),
    message:
        "Counting the rows that share conditional sets on {wildcards.dataset}"
    script:
        "../scripts/sharing_count.py"


rule collect_sharing:
    input:
        expand("results/sharing/{dataset}.csv", dataset=FAMILIES.get("gaussian", [])),
    output:
        "results/sharing.csv",
    log:
        "logs/collect_sharing.log",
    conda:
        ENVIRONMENT
    params:
        code=digest("workflow/scripts/collect_csv.py"),
    message:
        "Collecting the shared conditional sets of all data sets"
    script:
        "../scripts/collect_csv.py"


rule cupc_fig9:
    input:
        sharing="results/sharing.csv",
        reported=ROOT / "results/reported/cupc_fig9.csv",
    output:
        **figure("cupc_fig9", "Fig. 9: shared conditional sets", "cuPC"),
    log:
        "logs/cupc_fig9.log",
    conda:
        ENVIRONMENT
    params:
        code=digest("workflow/scripts/sharing.py"),
    message:
        "Drawing cuPC's Fig. 9"
    script:
        "../scripts/sharing.py"
