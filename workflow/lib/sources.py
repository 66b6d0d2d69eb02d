"""Data sets, or the reason why one is not available: a missing data set must not cost the others their results, so
tables and figures show the reason."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import datasets
from datasets import Dataset, DatasetUnavailable


def get(name: str, entry: Mapping[str, Any], **where: Any) -> Dataset | DatasetUnavailable:
    """Fetch or generate a data set.

    Args:
        entry: its entry in the registry, or one declared in the config.
        where: see `datasets.load`.
    """
    try:
        return datasets.load(name, spec=None if name in datasets.names() else entry, **where)
    except (DatasetUnavailable, datasets.DataError) as error:
        print(error)
        return DatasetUnavailable(str(error), entry)


def read(path: str | Path) -> Dataset | DatasetUnavailable:
    """Read what either of the two saved."""
    try:
        return Dataset.load(path)
    except DatasetUnavailable as error:
        return error
