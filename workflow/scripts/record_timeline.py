"""Runs a block-based search twice, and writes as CSV when each step of each block of the second run begins and ends.

If it cannot run, the file only has a header, and the log the reason."""

import sys

from gpupc_impl.backends import DeviceMemoryError
from gpupc_impl.core.family import load_problem
from gpupc_impl.core.files import read_json, write_csv
from gpupc_impl.core.registry import get_method
from gpupc_impl.core.solve import open_method_backend, solve
from workflow.lib.jobs import end_with_parent, own_cores
from workflow.lib.searches import in_bytes

COLUMNS = ("level", "block", "step", "stream", "start_s", "end_s")

end_with_parent()
sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

config, files, out = snakemake.params, snakemake.input, snakemake.output[0]
facts = read_json(files.facts)
obstacle = facts["why"]
if facts["available"]:
    name, choice = next(iter(config.setting.items()))
    method, params = get_method(choice.get("method", name)), choice.get("params", {})
    limit = in_bytes(choice.get("device_memory_mb", config.limits["device_memory_mb"]))
    with own_cores(snakemake.resources.slots):
        problem, backend = load_problem(files.problem), open_method_backend(method, config.backend, limit)
        try:
            solve(problem, method, backend, params)  # This run compiles kernels and warms up the device.
            solve(problem, method, backend, {**params, "timeline": out})
        except DeviceMemoryError as error:
            obstacle = str(error)
if obstacle is not None:
    print(obstacle)
    write_csv(out, [], COLUMNS)
