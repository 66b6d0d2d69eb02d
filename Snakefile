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
include: "workflow/rules/tables.smk"
include: "workflow/rules/figures.smk"
include: "workflow/rules/sharing.smk"
include: "workflow/rules/claims.smk"


localrules:
    all,


rule all:
    default_target: True
    input:
        rules.check_verification.output,
        rules.collect_records.output,
        rules.methods_by_dataset.output,
        rules.provenance.output,
        rules.overview.output,
        rules.cupc_table1.output,
        rules.cupc_table2.output,
        rules.cupc_claims.output,
        rules.cupc_fig5.output,
        rules.cupc_fig6.output,
        rules.cupc_fig9.output,
        expand("figures/{experiment}.svg", experiment=EXPERIMENTS),
