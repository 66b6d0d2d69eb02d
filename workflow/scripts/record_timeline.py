"""When each block of one block-based run is at work, as CSV; a header alone when there is no such run."""

import json
import sys
from pathlib import Path

from gpupc_impl.backends import DeviceMemoryError
from gpupc_impl.core.family import load_problem
from gpupc_impl.core.registry import get_method
from gpupc_impl.core.solve import open_method_backend, solve

sys.stderr = sys.stdout = open(snakemake.log[0], "w", buffering=1)  # noqa: SIM115

params, out = snakemake.params, snakemake.output[0]
name, choice = next(iter(params.setting.items()))
megabytes = choice.get("device_memory_mb", params.limits["device_memory_mb"])
facts = json.loads(Path(snakemake.input.facts).read_text(encoding="utf-8"))
why = facts["why"]
if facts["available"]:
    problem, method = load_problem(snakemake.input.problem), get_method(choice.get("method", name))
    backend = open_method_backend(method, params.backend, None if megabytes is None else int(megabytes * 1_000_000))
    try:
        solve(problem, method, backend, choice.get("params", {}))  # compiles and warms up
        solve(problem, method, backend, {**choice.get("params", {}), "timeline": out})
    except DeviceMemoryError as error:
        why = str(error)
if why is not None:
    print(why)
    Path(out).write_text("level,block,step,stream,start_s,end_s\n", encoding="utf-8")
