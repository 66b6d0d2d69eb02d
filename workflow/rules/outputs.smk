"""Rules for tables and figures, each an entry of the catalogue, and for the files that collect what they read."""


# These rules take seconds, so they run where the workflow was called even if measurements are sent to a cluster.
localrules:
    collect_records,
    count_sharing,
    collect_sharing,
    report_page,


rule collect_records:
    input:
        PLAN.records_of(PLAN.measured),
        [PLAN.records_of_experiment(experiment) for experiment in PLAN.experiments],
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


rule count_sharing:
    input:
        records=lambda wildcards: PLAN.records_of([wildcards.dataset]),
        verification="results/verification/{dataset}.csv",
    output:
        "results/sharing/{dataset}.csv",
    log:
        "logs/count_sharing/{dataset}.log",
    wildcard_constraints:
        dataset=one_of(PLAN.families.get("gaussian", [])),
    conda:
        ENVIRONMENT
    params:
        kind=lambda wildcards: PLAN.entries[wildcards.dataset]["kind"],
        code=digest("workflow/scripts/count_sharing.py"),
    message:
        "Counting the rows that share conditioning sets on {wildcards.dataset}"
    script:
        "../scripts/count_sharing.py"


rule collect_sharing:
    input:
        expand("results/sharing/{dataset}.csv", dataset=PLAN.families.get("gaussian", [])),
    output:
        "results/sharing.csv",
    log:
        "logs/collect_sharing.log",
    conda:
        ENVIRONMENT
    params:
        code=digest("workflow/scripts/collect_csv.py"),
    message:
        "Collecting the shared conditioning sets of all data sets"
    script:
        "../scripts/collect_csv.py"


rule report_page:
    input:
        every_output,
        reported=f"{ROOT}/results/reported/headlines.csv",
    output:
        "results/report.html",
    log:
        "logs/report_page.log",
    conda:
        ENVIRONMENT
    params:
        code=digest("workflow/scripts/make_report.py"),
        captions=lambda wildcards: {name: caption_of(entry) for name, entry in entries().items() if sources_of(entry)},
        introduction=introduction,
    message:
        "Writing results/report.html"
    script:
        "../scripts/make_report.py"


# Every entry of the catalogue has a target, whether this machine or only a recorded device has runs for it. Input
# functions read the plans of recorded runs, so that only jobs that need the plans read them.
for name, entry in entries().items():
    shown, *others = entry.outputs().items()

    rule:
        name:
            name
        input:
            unpack(partial(files_of, entry)),
        output:
            **{shown[0]: in_report(shown[1], entry.paper, entry.title)},
            **dict(others),
        log:
            f"logs/{name}.log",
        localrule: True
        conda:
            ENVIRONMENT
        params:
            code=digest("workflow/scripts/make_output.py", entry.make.__module__, named=False),
            sources=partial(described_sources, entry),
            caption=caption_of(entry),
        message:
            f"Making {name} ({entry.paper})"
        script:
            "../scripts/make_output.py"
