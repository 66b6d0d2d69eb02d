# The workflow is workflow/Snakefile, which Snakemake finds as well if it is called with this file.
include: "workflow/Snakefile"


rule default:
    default_target: True
    input:
        rules.all.input,
    localrule: True
