"""Tests that share what took minutes to make run in one process of pytest-xdist (``--dist loadgroup``)."""

import operator
from pathlib import Path

import pytest

SHARED = {"finished", "changed", "project", "beside", "cluster", "recording"}
"""Fixtures of a module."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    for item in items:
        if SHARED & set(item.fixturenames):
            item.add_marker(pytest.mark.xdist_group(item.module.__name__))
    if getattr(config.option, "loadgroup", False):
        # At the end, a group would keep one core while the others have nothing to do; these also wait for processes.
        grouped = operator.methodcaller("get_closest_marker", "xdist_group")
        items.sort(key=lambda item: (Path(__file__).parent not in item.path.parents, grouped(item) is None))
