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
include: "workflow/rules/out_of_core.smk"
include: "workflow/rules/gpupc.smk"
include: "workflow/rules/cmiknn.smk"


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
        CUPC_TARGETS,
        OUT_OF_CORE_TARGETS,
        GPUPC_TARGETS,
        CMIKNN_TARGETS,
