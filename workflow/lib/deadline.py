"""The time by which a workflow is to end: jobs do what there is time for, and leave the rest to the next call.

``GPUPC_DEADLINE``, seconds of Unix time, is when a workflow ends; without it there is no such time. From then on
Snakemake starts no job. A job that measures reads the estimates of `workflow.lib.durations` before each data set, and
starts nothing that would end later; verification tests removed edges again only where there is time. A job that leaves
something out fails with a sentence; what it has written stays where Snakemake is called with ``--keep-incomplete``.
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
"""The number of things left out that a job's sentence names."""

CERTIFICATES_A_SECOND = 8e5
"""Removed edges that verification tests again in a second, on one core."""


def deadline() -> float | None:
    """The time by which this workflow is to end, as Unix time.

    Raises:
        ValueError: the environment variable holds no number.
    """
    text = os.environ.get(VARIABLE, "")
    try:
        return float(text) if text else None
    except ValueError:
        raise ValueError(f"{VARIABLE} is {text!r}; give it seconds of Unix time, as `date +%s` prints them") from None


def stop_at(end: float) -> None:
    """Have the calling process, Snakemake's main one, start no job from that time on; running jobs go on."""
    timer = threading.Timer(max(0, end - time.time()), os.kill, (os.getpid(), signal.SIGTERM))
    timer.daemon = True
    timer.start()


class TimeLeft:
    """What a job has time for.

    Args:
        end: see `deadline`; None: there is time for everything.
        estimates: as `workflow.lib.durations.write_estimates` writes them.

    Attributes:
        left_out: what there was no time for.
    """

    def __init__(self, end: float | None, estimates: Mapping[str, Any]):
        self.end, self.estimates = end, estimates
        self.left_out: list[str] = []

    @classmethod
    def of_workflow(cls) -> TimeLeft:
        """The time left to this process, as a job of a workflow."""
        end = deadline()
        return cls(end, {} if end is None else read_json(ESTIMATES))

    def groups(
        self, name: str, dataset: str, settings: Mapping[str, Mapping[str, Any]]
    ) -> Iterator[dict[str, Mapping[str, Any]]]:
        """The settings of a data set in groups that are measured one after another, each side by side.

        There is one group where there is time for all settings. Otherwise references, which are slow, come last, and
        after each group the time that is left decides on the next one: it took less than estimated where its samples
        had been stored by an earlier call.

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
        """Whether there is time to test the removed edges of a data set again."""
        fits = self.end is None or time.time() + removed_edges / CERTIFICATES_A_SECOND <= self.end
        if not fits:
            self.left_out.append(f"testing the removed edges of {dataset} again")
        return fits

    def end_job(self, log: str | Path) -> None:
        """End this process with a sentence, which is added to its log, where something was left out."""
        if self.left_out:
            more = len(self.left_out) - NAMED_AT_MOST
            named = ", ".join([*self.left_out[:NAMED_AT_MOST], *([f"and {more} more"] if more > 0 else [])])
            sentence = f"no time is left for {named}; the next call goes on with it"
            with open(log, "a", encoding="utf-8") as file:
                file.write(f"{sentence}\n")
            sys.exit(sentence)
