"""Jobs that end with the workflow that started them."""

from __future__ import annotations

import os
import threading
import time

LOOK_S = 0.5
"""Seconds between two looks at the parent."""


def end_with_parent() -> None:
    """End this process as soon as its parent is gone, as Snakemake is after ``kill -9``, and what it measures with it.

    Otherwise it would go on beside the jobs of the next call, on the same cores and the same files.
    """
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_S)
    os._exit(1)  # the guards of its workers see their pipes end
