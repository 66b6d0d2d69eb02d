"""Hypothesis profiles: `ci` (the default) draws the same examples every time; `explore` draws new ones, and more.

A test that needs other than the profile's number of examples takes a multiple of ``settings.default.max_examples``.
"""

import gc
import itertools
import os

import hypothesis
import pytest

# Products here are small, and threads of BLAS that wait for one another use as much of the cores as the processes that
# test side by side. It is read when NumPy is imported; measurements set their own number.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

hypothesis.settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True, max_examples=40)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=500)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
gc.disable()  # until all tests are collected: hardly any of what is made on the way is garbage


def pytest_collection_finish():
    """Leave the thousands of tests, and the libraries they import, out of every collection of garbage from here on."""
    gc.collect()
    gc.freeze()
    gc.enable()


TESTS_A_FREEZE = 50
_tests = itertools.count(1)


@pytest.fixture(scope="module")
def backend():
    """A host backend; of other backends, modules have fixtures of their own."""
    from gpupc_impl.backends import open_backend  # which imports NumPy

    return open_backend("host")


@pytest.fixture
def own_methods(monkeypatch):
    """Methods that a test registers are gone after it."""
    from gpupc_impl.core import registry

    registry.methods()
    monkeypatch.setattr(registry, "_METHODS", dict(registry._METHODS))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """Leave out also what tests have imported and compiled since: some of what is tested collects all garbage often."""
    if next(_tests) % TESTS_A_FREEZE == 0:
        gc.collect()
        gc.freeze()
