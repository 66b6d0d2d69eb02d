"""Ends jobs whose workflow has ended."""

from __future__ import annotations

import os
import threading
import time

LOOK_S = 0.5
"""The interval in seconds between two checks of the parent."""


def end_with_parent() -> None:
    """End this process and its workers as soon as its parent has ended, for example if Snakemake is killed.

    Otherwise the process would continue beside the jobs of the next call, on the same cores and the same files.
    """
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_S)
    os._exit(1)  # The guards of the workers notice that their pipes are closed.
