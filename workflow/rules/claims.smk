"""The claims of cuPC's section 5 beside our records."""

CUPC_EXPERIMENTS = [name for name in EXPERIMENTS if name.startswith("cupc_")]


rule cupc_claims:
    input:
        records=records_of(FAMILIES.get("gaussian", []))
        + [path for name in CUPC_EXPERIMENTS for path in records_of_experiment(name)],
        verification=["results/verification.csv"]
        + expand("results/verification/{experiment}.csv", experiment=CUPC_EXPERIMENTS),
        sharing="results/sharing.csv",
        reported=ROOT / "results/reported/cupc_claims.csv",
    output:
        **table("cupc_claims", "Section 5: claims", "cuPC"),
    log:
        "logs/cupc_claims.log",
    conda:
        ENVIRONMENT
    params:
        code=digest("workflow/scripts/claims.py"),
    message:
        "Comparing cuPC's claims with the records"
    script:
        "../scripts/claims.py"


# What the default target makes of cuPC: nothing where the config has no Gaussian data sets.
CUPC_TARGETS = expand("figures/{experiment}.svg", experiment=CUPC_EXPERIMENTS)

if FAMILIES.get("gaussian"):
    CUPC_TARGETS += [
        *rules.cupc_table1.output,
        *rules.cupc_table2.output,
        *rules.cupc_claims.output,
        *rules.cupc_fig5.output,
        *rules.cupc_fig6.output,
        *rules.cupc_fig9.output,
    ]
