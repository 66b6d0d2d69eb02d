"""Records on several GPUs of one machine side by side (`gpu_records`, ``--gpus``).

Each GPU has a recorder, a process with cores of its own, which takes the next data set when it is free. One more
process, on the cores that are left, makes problems ahead: a GPU that waits for a matrix of correlations is lost time.
All write to one folder and one store.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import multiprocessing
import os
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

    from workflow.lib.gpu_records import Folder, Left

CONTEXT = multiprocessing.get_context("spawn")
"""Processes that start anew: a GPU is chosen before CUDA is there."""

AHEAD = 4
"""Data sets for each GPU whose problems may be waiting: those of Out-of-Core take gigabytes."""

POLL_S = 0.2


@dataclasses.dataclass(frozen=True)
class Share:
    """What a process of this run knows.

    Attributes:
        config, into, store: as of the command.
        groups: what is to be measured, by data set, in order.
        end: when no data set is begun any more, by `time.monotonic`; None for no end.
        digests: verify by digests.
        taken: how many groups recorders have taken.
        making: the group whose problem is being made ahead; -1 for none.
        lock: held while tables of the folder are changed.
        said: where sentences about what went wrong go.
    """

    config: Mapping[str, Any]
    into: Path
    store: Path
    groups: Sequence[Sequence[Left]]
    end: float | None
    digests: bool
    taken: Any
    making: Any
    lock: Any
    said: Any

    def folder(self) -> Folder:
        from workflow.lib.gpu_records import Folder
        from workflow.lib.plan import Plan

        return Folder(Plan(self.config), self.into, self.store, self.lock)


def record(gpus: Sequence[int], chosen: Sequence[Left], **command: Any) -> list[str]:
    """Measure and verify units on some GPUs; what went wrong, as sentences.

    Args:
        gpus: their numbers, among those that ``CUDA_VISIBLE_DEVICES`` leaves visible.
        command: the fields of `Share` that are of the command.
    """
    groups = [list(group) for _, group in itertools.groupby(chosen, lambda each: (each.unit.target, each.unit.dataset))]
    share = Share(
        **command,
        groups=groups,
        taken=CONTEXT.Value("i", 0),
        making=CONTEXT.Value("i", -1),
        lock=CONTEXT.RLock(),
        said=CONTEXT.SimpleQueue(),
    )
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    each = max(1, len(cores) // (len(gpus) + 1))
    processes: list[tuple[str, SpawnProcess]] = []
    for place, gpu in enumerate(gpus):
        own = [cores[(place * each + core) % len(cores)] for core in range(each)] if cores else []
        with _environment(CUDA_VISIBLE_DEVICES=_visible(gpu)):
            process = CONTEXT.Process(target=_measure, args=(gpu, own, share))
            process.start()
        processes.append((f"the recorder of GPU {gpu}", process))
    maker = None
    if left := cores[len(gpus) * each :]:
        maker = CONTEXT.Process(target=_make_ahead, args=(left, AHEAD * len(gpus), share))
        maker.start()
    found: list[str] = []
    while any(process.is_alive() for _, process in processes):
        time.sleep(POLL_S)
        found += _heard(share)
        if maker is not None and not maker.is_alive():  # nobody waits for what it has left
            share.making.value = -1
    if maker is not None:
        maker.terminate()
        maker.join()
    for name, process in processes:
        process.join()
        if process.exitcode:
            found.append(f"{name} ended with exit status {process.exitcode}")
    return found + _heard(share)


def _heard(share: Share) -> list[str]:
    sentences = []
    while not share.said.empty():
        sentences.append(share.said.get())
    return sentences


def _measure(gpu: int, cores: Sequence[int], share: Share) -> None:
    """A recorder: measure and verify one group after another."""
    from workflow.lib.gpu_records import run

    if cores:
        os.sched_setaffinity(0, cores)
    try:
        folder = share.folder()
    except Exception as error:
        share.said.put(f"GPU {gpu} cannot be used: {error}")
        return
    while True:
        with share.taken.get_lock():
            number = share.taken.value
            share.taken.value += 1
        if number >= len(share.groups):
            return
        while share.making.value == number:
            time.sleep(POLL_S)
        minutes = None if share.end is None else (share.end - time.monotonic()) / 60
        log = share.store / f"log-{gpu}.txt"
        for sentence in run(folder, share.groups[number], minutes, share.digests, log, f"[{gpu}] "):
            share.said.put(sentence)


def _make_ahead(cores: Sequence[int], most: int, share: Share) -> None:
    """Make the problems of groups that no recorder has taken yet, at most so many ahead of them."""
    os.sched_setaffinity(0, cores)
    folder = share.folder()
    for number, group in enumerate(share.groups):
        while number >= share.taken.value + most:
            time.sleep(POLL_S)
        with share.taken.get_lock():
            if number < share.taken.value:
                continue
            share.making.value = number
        try:
            for each in group:
                if each.unit.kind != "tests":
                    folder.prepare(each.unit)
        except Exception:  # the recorder meets it again, and says so
            traceback.print_exc()
        finally:
            share.making.value = -1


def _visible(gpu: int) -> str:
    """What ``CUDA_VISIBLE_DEVICES`` calls a GPU; nothing where it names fewer."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return str(gpu) if named is None else "".join(named.split(",")[gpu : gpu + 1]).strip()


@contextlib.contextmanager
def _environment(**variables: str) -> Iterator[None]:
    """Variables for the processes that are started meanwhile."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
