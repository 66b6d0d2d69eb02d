"""The claims of cuPC's section 5 beside our records."""

GAUSSIAN_EXPERIMENTS = [name for name in EXPERIMENTS if EXPERIMENTS[name].family == "gaussian"]


rule cupc_claims:
    input:
        records=records_of(FAMILIES.get("gaussian", []))
        + [path for name in GAUSSIAN_EXPERIMENTS for path in records_of_experiment(name)],
        verification=["results/verification.csv"]
        + expand("results/verification/{experiment}.csv", experiment=GAUSSIAN_EXPERIMENTS),
        sharing="results/sharing.csv",
        reported=ROOT / "results/reported/cupc_claims.csv",
    output:
        **table("cupc_claims", "Section 5: claims", "cuPC"),
    log:
        "logs/cupc_claims.log",
    conda:
        ENVIRONMENT
    params:
        code=ANALYSIS,
    message:
        "Comparing cuPC's claims with the records"
    script:
        "../scripts/claims.py"
