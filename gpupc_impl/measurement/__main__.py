"""``python -m gpupc_impl.measurement PROBLEM.npz --method NAME`` measures methods on a problem and prints a table."""

import argparse
import functools
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from gpupc_impl.backends import BACKENDS, BackendUnavailable, DeviceMemoryError
from gpupc_impl.core.family import load_problem
from gpupc_impl.measurement import kernel_times
from gpupc_impl.measurement.bench import Bench, Setting
from gpupc_impl.measurement.record import Limits, Record, band
from gpupc_impl.measurement.skeletons import MeasurementRequest, measure_side_by_side


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m gpupc_impl.measurement", description="Measure methods.")
    parser.add_argument("problem", type=Path, help="an .npz written by a problem's save()")
    parser.add_argument(
        "--method",
        dest="settings",
        action="append",
        required=True,
        metavar="NAME[:PARAM=VALUE,...]",
        help="a method to measure, with its parameters and separating_sets; may be given several times, the first is "
        "what speedups are taken over",
    )
    parser.add_argument("--backend", default="auto", choices=["auto", *BACKENDS])
    parser.add_argument("--repeats", type=int, default=5, help="warm samples of each (default: 5)")
    parser.add_argument("--time-limit", type=float, default=600, help="seconds one run may take (default: 600)")
    parser.add_argument("--memory-limit", type=int, help="bytes of memory a worker may use (default: no limit)")
    parser.add_argument("--device-memory-limit", type=int, help="bytes of device memory to use at most")
    parser.add_argument("--long-run", type=float, default=60, help="one repeat only above this (default: 60 s)")
    parser.add_argument("--threads", type=int, help="CPU threads (default: every available core)")
    parser.add_argument("--out", type=Path, help="keep records, skeletons and samples in this folder")
    parser.add_argument(
        "--kernels", action="store_true", help="time each kernel instead, in this process, and wait for each launch"
    )
    options = parser.parse_args(argv)
    limits = Limits(options.time_limit, options.memory_limit, options.device_memory_limit)
    try:
        settings = [parse_setting(text, limits) for text in options.settings]
        if options.kernels:
            problem = load_problem(options.problem)
            for setting in settings:
                found = kernel_times.search_time(problem, setting, options.backend, options.repeats)
                print(f"{setting.name}\n{kernel_times.table(found)}")
            return 0
        with tempfile.TemporaryDirectory() as folder:
            out = options.out or Path(folder)
            request = MeasurementRequest(
                problem_path=options.problem,
                dataset={"name": options.problem.stem},
                settings=settings,
                out_dir=out,
                repeats=options.repeats,
                long_run_s=options.long_run,
                store=out / "samples",
            )
            bench = Bench(options.backend, options.threads)
            show = functools.partial(print, file=sys.stderr, flush=True)
            records = measure_side_by_side(request, bench, progress=show)
    # These are errors of the input, or of a search whose kernels are timed; failures of measured runs are in records.
    except (ValueError, FileNotFoundError, BackendUnavailable, DeviceMemoryError) as error:
        parser.error(str(error))
    print(table(list(records.values())))
    return 0


def parse_setting(text: str, limits: Limits) -> Setting:
    """Parse a setting such as ``cupc-s``, ``cupc-s:theta=128,delta=4`` or ``cupc-s:separating_sets=first-come``."""
    method, _, given = text.partition(":")
    params = dict(pair.partition("=")[::2] for pair in given.split(",") if pair)
    sets = params.pop("separating_sets", "canonical")
    words = [method, *(f"{name}{value}" for name, value in params.items()), *[sets] * (sets != "canonical")]
    return Setting("_".join(words).replace("/", "_"), method, params, sets, limits)


def table(records: Sequence[Record]) -> str:
    """Format a table with the median and the 20-80 % band of the repeats, and the speedup over the first setting."""
    rows = [["setting", "status", "cold", "compile", "median", "20 %", "80 %", "speedup", "edges"]]
    base = records[0].median
    for record in records:
        low, middle, high = band(record.time_s.warm)
        numbers = (record.time_s.cold, record.time_s.compile, middle, low, high)
        speedup = f"{base / record.median:.3g}x" if base and record.median else "-"
        cells = ["-" if number is None else f"{number:.4g} s" for number in numbers]
        edges = "-" if record.edges is None else str(record.edges)
        rows.append([record.setting, record.status, *cells, speedup, edges])
    return "\n".join(
        kernel_times.aligned(rows) + [f"{each.setting}: {each.status}: {each.why}" for each in records if each.why]
    )


if __name__ == "__main__":
    sys.exit(main())
