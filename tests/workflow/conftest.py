"""Tests that share what took minutes to make run in one process of pytest-xdist (``--dist loadgroup``)."""

import pytest

SHARED = {"finished", "changed", "project", "beside", "cluster"}
"""Fixtures of a module."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if SHARED & set(item.fixturenames):
            item.add_marker(pytest.mark.xdist_group(item.module.__name__))
