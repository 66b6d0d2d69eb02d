"""Figures, from records only."""


rule overview:
    input:
        records=records_of(MEASURED),
        verification="results/verification.csv",
    output:
        **figure("overview", "Runtimes of all methods", "Runtimes"),
    log:
        "logs/overview.log",
    conda:
        ENVIRONMENT
    params:
        code=ANALYSIS,
    message:
        "Drawing the runtimes of all methods"
    script:
        "../scripts/figure.py"


rule cupc_fig5:
    input:
        records=records_of(FAMILIES.get("gaussian", [])),
        verification="results/verification.csv",
        reported=ROOT / "results/reported/cupc_fig5.csv",
    output:
        **figure("cupc_fig5", "Fig. 5: cuPC over the baselines", "cuPC"),
    log:
        "logs/cupc_fig5.log",
    conda:
        ENVIRONMENT
    params:
        code=ANALYSIS,
    message:
        "Drawing cuPC's Fig. 5"
    script:
        "../scripts/figure.py"
