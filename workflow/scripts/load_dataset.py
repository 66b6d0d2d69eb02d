"""A data set into one file: its values, or the reason why it cannot be had."""

import sys

import datasets

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

name, params = snakemake.wildcards.dataset, snakemake.params
where = {"cache_dir": params.cache_dir, "mirrors": params.mirrors, "offline": params.offline, "spec": params.spec}
try:
    data = datasets.load(name, **where)
except (datasets.DatasetUnavailable, datasets.DataError) as error:
    # One data set that is missing must not cost the others their results: tables show the reason.
    print(error)
    data = datasets.DatasetUnavailable(str(error), params.entry)
data.save(snakemake.output[0])
