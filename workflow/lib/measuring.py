"""What jobs share that measure; others do not depend on the code of measurements."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from gpupc_impl.backends.machine import available_cores
from gpupc_impl.measurement.bench import Bench
from workflow.lib.jobs import end_with_parent, own_cores


@contextlib.contextmanager
def measuring(job: Any) -> Iterator[tuple[Bench, Callable[[object], None]]]:
    """Give a measuring job of Snakemake its cores, a bench, and a function that shows a line, also in the log."""
    end_with_parent()
    resources = job.resources
    with (
        open(job.log[0], "w", buffering=1, encoding="utf-8") as log,
        own_cores(resources.slots, bool(resources.get("references"))),
    ):
        bench = Bench(job.params.backend, min(job.threads, available_cores()), log, resources.attempt)

        def show(line: object) -> None:
            for stream in (sys.stderr, log):
                print(line, file=stream, flush=True)

        with bench.open():
            yield bench, show
