"""Loads data sets for tests, which skip those that would need a download or a package that is not installed."""

from typing import Any

import pytest

import datasets


def load(name: str, **where: Any) -> datasets.Dataset:
    try:
        return datasets.load(name, offline=True, **where)
    except datasets.DatasetUnavailable as error:
        pytest.skip(str(error))
