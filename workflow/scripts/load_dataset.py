"""A data set into one file: its values, or the reason why it cannot be had."""

import json
import sys

import numpy as np

import datasets

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

name, params = snakemake.wildcards.dataset, snakemake.params
where = {"cache_dir": params.cache_dir, "mirrors": params.mirrors, "offline": params.offline, "spec": params.spec}
try:
    data = datasets.load(name, **where)
    content = {"values": data.values, "names": np.array(data.names), "facts": json.dumps(data.facts)}
    if data.true_dag is not None:
        content["true_dag"] = data.true_dag
    if data.labels is not None:
        content["labels"] = json.dumps(data.labels)
except (datasets.DatasetUnavailable, datasets.DataError) as error:
    # One data set that is missing must not cost the others their results: tables show the reason.
    print(error)
    content = {"why": str(error), "facts": json.dumps(params.entry)}
np.savez(snakemake.output[0], **content)
