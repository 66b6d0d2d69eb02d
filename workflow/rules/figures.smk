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
        code=digest("workflow/scripts/figure.py"),
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
        code=digest("workflow/scripts/figure.py"),
    message:
        "Drawing cuPC's Fig. 5"
    script:
        "../scripts/figure.py"


rule cupc_fig6:
    input:
        records=records_of(FAMILIES.get("gaussian", [])),
        verification="results/verification.csv",
        reported=ROOT / "results/reported/cupc_fig6.csv",
    output:
        **figure("cupc_fig6", "Fig. 6: share of each level", "cuPC"),
        csv="results/tables/cupc_fig6.csv",
    log:
        "logs/cupc_fig6.log",
    conda:
        ENVIRONMENT
    params:
        code=digest("workflow/scripts/experiment.py"),
        sweeps={},
    message:
        "Drawing cuPC's Fig. 6"
    script:
        "../scripts/experiment.py"


LABELS = {
    "cupc_fig7": "Fig. 7: configurations of cuPC-E",
    "cupc_fig8": "Fig. 8: configurations of cuPC-S",
    "cupc_fig10": "Fig. 10: scalability",
}

for experiment in [name for name in LABELS if name in EXPERIMENTS]:

    rule:
        name:
            experiment
        input:
            records=records_of_experiment(experiment),
            verification=f"results/verification/{experiment}.csv",
            reported=ROOT / f"results/reported/{experiment}.csv",
        output:
            **figure(experiment, LABELS[experiment], "cuPC"),
            csv=f"results/tables/{experiment}.csv",
        log:
            f"logs/{experiment}.log",
        conda:
            ENVIRONMENT
        params:
            code=digest("workflow/scripts/experiment.py"),
            sweeps=EXPERIMENTS[experiment].sweeps,
        message:
            f"Drawing cuPC's Fig. {experiment.removeprefix('cupc_fig')}"
        script:
            "../scripts/experiment.py"
