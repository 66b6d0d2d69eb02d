"""Figs. 1 and 2 and Table 1 of the Out-of-Core paper, as far as the config has their experiments."""

OUT_OF_CORE = {name: EXPERIMENTS[name] for name in ("ooc_fig2", "ooc_table1") if name in EXPERIMENTS}
OUT_OF_CORE_TARGETS = []

if "ooc_fig2" in OUT_OF_CORE:

    OUT_OF_CORE_TARGETS.append("figures/ooc_fig2.svg")

    rule ooc_fig2:
        input:
            records=records_of_experiment("ooc_fig2"),
            verification="results/verification/ooc_fig2.csv",
            reported=ROOT / "results/reported/ooc_fig2.csv",
        output:
            **figure("ooc_fig2", "Fig. 2: unified memory and blocks", "Out-of-Core"),
            csv="results/tables/ooc_fig2.csv",
        log:
            "logs/ooc_fig2.log",
        conda:
            ENVIRONMENT
        params:
            code=digest("workflow/scripts/out_of_core.py"),
            sweeps=OUT_OF_CORE["ooc_fig2"].sweeps,
        message:
            "Drawing Out-of-Core's Fig. 2"
        script:
            "../scripts/out_of_core.py"


if "ooc_table1" in OUT_OF_CORE:

    OUT_OF_CORE_TARGETS += ["results/tables/ooc_table1.html", "figures/ooc_fig1.svg"]

    rule ooc_table1:
        input:
            records=records_of_experiment("ooc_table1"),
            verification="results/verification/ooc_table1.csv",
            reported=ROOT / "results/reported/ooc_table1.csv",
        output:
            **table("ooc_table1", "Table 1: wide data", "Out-of-Core"),
        log:
            "logs/ooc_table1.log",
        conda:
            ENVIRONMENT
        params:
            code=digest("workflow/scripts/out_of_core.py"),
        message:
            "Writing Out-of-Core's Table 1"
        script:
            "../scripts/out_of_core.py"

    # The run that Fig. 1 shows: the first data set with the first block-based setting.
    TIMELINE_DATASET = OUT_OF_CORE["ooc_table1"].datasets[0]
    TIMELINE_SETTING = {
        name: choice
        for name, choice in OUT_OF_CORE["ooc_table1"].settings.items()
        if choice.get("method", name) == "out-of-core-block"
    }

    # A run of its own: writing its steps down is no part of a measurement.
    rule record_timeline:
        input:
            problem=f"results/problems/{TIMELINE_DATASET}.npz",
            facts=f"results/problems/{TIMELINE_DATASET}.json",
        output:
            f"results/timelines/{TIMELINE_DATASET}.csv",
        log:
            f"logs/record_timeline/{TIMELINE_DATASET}.log",
        conda:
            ENVIRONMENT
        threads: workflow.cores or 1
        resources:
            timing_slot=1,
            gpu=int(BACKEND == "cuda"),
        params:
            setting=TIMELINE_SETTING,
            codes=code_versions(TIMELINE_SETTING),
            code=code_of("record_timeline.py"),
            backend=BACKEND,
            limits=config["limits"],
        message:
            f"Recording when each block of {TIMELINE_DATASET} is at work"
        script:
            "../scripts/record_timeline.py"

    rule ooc_fig1:
        input:
            rules.record_timeline.output,
        output:
            **figure("ooc_fig1", "Fig. 1: overlap of transfers and kernels", "Out-of-Core"),
            csv="results/tables/ooc_fig1.csv",
        log:
            "logs/ooc_fig1.log",
        conda:
            ENVIRONMENT
        params:
            code=digest("workflow/scripts/ooc_fig1.py"),
            title=f"Block-based, {TIMELINE_DATASET}, backend {BACKEND}",
        message:
            "Drawing Out-of-Core's Fig. 1 from a run"
        script:
            "../scripts/ooc_fig1.py"
