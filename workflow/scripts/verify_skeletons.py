"""The skeletons of data sets, compared and certified."""

import sys
from pathlib import Path

from gpupc_impl.core.files import write_csv
from gpupc_impl.verification.verify import verify_files
from workflow.lib.orphans import end_with_parent

end_with_parent()

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

rows = []
for problem in snakemake.input.problems:
    rows += verify_files(
        problem, [path for path in snakemake.input.records if Path(path).parent.name == Path(problem).stem]
    )
write_csv(snakemake.output[0], rows)
