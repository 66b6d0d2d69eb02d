"""Loads data sets. A data set that is not available is replaced by the reason, which tables and figures show, and the
other data sets are measured all the same."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import datasets
from datasets import Dataset, DatasetUnavailable


def get(name: str, entry: Mapping[str, Any], **where: Any) -> Dataset | DatasetUnavailable:
    """Download or generate a data set.

    Args:
        entry: the data set's entry in the registry, or one declared in the config.
        where: see `datasets.load`.
    """
    try:
        return datasets.load(name, spec=None if name in datasets.names() else entry, **where)
    except (DatasetUnavailable, datasets.DataError) as error:
        print(error)
        return DatasetUnavailable(str(error), entry)


def read(path: str | Path) -> Dataset | DatasetUnavailable:
    """Read a data set, or the reason why it is not available, from the file in which it was saved."""
    try:
        return Dataset.load(path)
    except DatasetUnavailable as error:
        return error
