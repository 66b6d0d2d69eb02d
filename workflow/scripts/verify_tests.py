"""Compares the p-values of single tests."""

import sys

from gpupc_impl.core.files import write_csv
from gpupc_impl.verification.single_tests import verify_test_files

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

write_csv(snakemake.output[0], verify_test_files(snakemake.input))
