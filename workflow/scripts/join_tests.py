"""Writes the single tests of a table that several jobs have timed into one file."""

from pathlib import Path

from gpupc_impl.measurement.record import load_tests, save_tests

parts = [load_tests(path) for path in snakemake.input]
cells = [cell for part in parts for cell in part["cells"]]
environments = {backend: facts for part in parts for backend, facts in part["environments"].items()}
save_tests(parts[0] | {"environments": environments, "cells": cells}, Path(snakemake.output[0]))
