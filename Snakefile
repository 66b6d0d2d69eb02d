from snakemake.utils import min_version

min_version("9.0")

# A config file named on the command line stands alone: its data sets are not added to the default ones.
if not workflow.overwrite_configfiles:

    configfile: f"{workflow.basedir}/config/config.yaml"


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/measure.smk"
include: "workflow/rules/verify.smk"
include: "workflow/rules/outputs.smk"


onstart:
    # Snakemake's limiter of jobs a second wakes up every second once for each job that has ended so far. After a hundred jobs
    # that takes a third of a core, beside the measurements.
    workflow.scheduler.job_rate_limiter = None
    PLAN.describe()
    write_searches(PLAN, list(workflow.dag.needrun_jobs()), SEARCHES)
    if REFERENCES_BESIDE:
        use_core_sets(CORES)
    if DEADLINE is not None:
        write_estimates(PLAN, ESTIMATES)
        stop_at(DEADLINE)


localrules:
    all,
    record,


rule all:
    default_target: True
    input:
        rules.check_verification.output,
        rules.collect_records.output,
        every_output,
        rules.report_page.output,
        ancient(expand("results/compiled/{part}.ok", part=PARTS)) if REFERENCES_BESIDE else [],


# What `gpupc records publish` takes; no table or figure is made.
rule record:
    input:
        rules.check_verification.output,
        expand("results/timelines/{dataset}.csv", dataset=TIMELINES),
        rules.collect_sharing.output if PLAN.families.get("gaussian") else [],
