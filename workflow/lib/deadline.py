"""The deadline of a workflow: jobs measure what there is time for, and leave the rest to the next call.

``GPUPC_DEADLINE`` is the Unix time at which a workflow ends; without the variable there is no deadline. From then on
Snakemake starts no job. A job that measures reads the estimates of `workflow.lib.durations` before each data set, and
starts nothing that would end later; verification tests removed edges again only if there is time. A job that leaves
something out fails with a sentence; its outputs are kept if Snakemake is called with ``--keep-incomplete``.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gpupc_impl.core.files import read_json
from gpupc_impl.core.registry import get_method

VARIABLE = "GPUPC_DEADLINE"
ESTIMATES = Path("results/durations.json")

NAMED_AT_MOST = 10
"""The upper bound on the omitted parts that a job's sentence names."""

CERTIFICATES_A_SECOND = 8e5
"""The number of removed edges that verification tests again per second on one core."""


def deadline() -> float | None:
    """Return the deadline of this workflow as Unix time; None without one.

    Raises:
        ValueError: the environment variable holds no number.
    """
    text = os.environ.get(VARIABLE, "")
    try:
        return float(text) if text else None
    except ValueError:
        raise ValueError(f"{VARIABLE} is {text!r}; give it seconds of Unix time, as `date +%s` prints them") from None


def stop_at(end: float) -> None:
    """Make the calling process, which is Snakemake's main process, start no job after a time; running jobs continue."""
    timer = threading.Timer(max(0, end - time.time()), os.kill, (os.getpid(), signal.SIGTERM))
    timer.daemon = True
    timer.start()


class TimeLeft:
    """Decides what a job has time for.

    Args:
        end: the `deadline`; None means that there is time for everything.
        estimates: the estimates that `workflow.lib.durations.write_estimates` writes.

    Attributes:
        left_out: descriptions of the parts that there was no time for.
    """

    def __init__(self, end: float | None, estimates: Mapping[str, Any]):
        self.end, self.estimates = end, estimates
        self.left_out: list[str] = []

    @classmethod
    def of_workflow(cls) -> TimeLeft:
        """Return the time that is left to this process as a job of a workflow."""
        end = deadline()
        return cls(end, {} if end is None else read_json(ESTIMATES))

    def groups(
        self, name: str, dataset: str, settings: Mapping[str, Mapping[str, Any]]
    ) -> Iterator[dict[str, Mapping[str, Any]]]:
        """Yield the settings of a data set in groups; the settings of a group are measured side by side.

        If there is time for all settings, they are one group. Otherwise references, which are slow, come last, and the
        next group is chosen by the time that is left after each group. A group takes less than estimated if an earlier
        call stored its samples.

        Args:
            name: the family, experiment or table of single tests.
        """
        if self.end is None:
            yield dict(settings)
            return
        seconds = self.estimates[name][dataset]
        waiting = sorted(settings, key=lambda each: get_method(settings[each].get("method", each)).reference)
        while waiting:
            left, fitting = self.end - time.time(), []
            for setting in waiting:
                if seconds[setting] <= left:
                    fitting.append(setting)
                    left -= seconds[setting]
            if not fitting:
                self.left_out += [f"{setting} on {dataset}" for setting in waiting]
                return
            yield {setting: settings[setting] for setting in settings if setting in fitting}
            waiting = [setting for setting in waiting if setting not in fitting]

    def certifies(self, dataset: str, removed_edges: int) -> bool:
        """Return whether there is time to test the removed edges of a data set again."""
        fits = self.end is None or time.time() + removed_edges / CERTIFICATES_A_SECOND <= self.end
        if not fits:
            self.left_out.append(f"testing the removed edges of {dataset} again")
        return fits

    def end_job(self, log: str | Path) -> None:
        """If something was left out, end this process with a sentence, which is added to its log."""
        if self.left_out:
            more = len(self.left_out) - NAMED_AT_MOST
            named = ", ".join([*self.left_out[:NAMED_AT_MOST], *([f"and {more} more"] if more > 0 else [])])
            sentence = f"no time is left for {named}; the next call goes on with it"
            with open(log, "a", encoding="utf-8") as file:
                file.write(f"{sentence}\n")
            sys.exit(sentence)
