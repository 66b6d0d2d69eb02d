"""Hypothesis profiles: `ci` (the default) draws the same examples every time; `explore` draws new ones, and more.

A test that needs other than the profile's number of examples takes a multiple of ``settings.default.max_examples``.
"""

import fcntl
import functools
import gc
import importlib.util
import os
import threading

import hypothesis

hypothesis.settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=500)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_collection_finish():
    """Leave the thousands of tests, and the libraries they import, out of every collection of garbage from here on."""
    gc.collect()
    gc.freeze()
    if "PYTEST_XDIST_WORKER" in os.environ and importlib.util.find_spec("numba"):
        compile_in_turn()


def compile_in_turn():
    """Where several processes test, one compiles a function for Numba's cache on disk, and the others wait for it."""
    from numba.core import caching, dispatcher

    compile_here, ours = dispatcher.Dispatcher.compile, threading.RLock()

    @functools.wraps(compile_here)
    def compiled(function, signature):
        if not isinstance(function._cache, caching.FunctionCache):
            return compile_here(function, signature)
        index = function._cache._cache_file._index_path
        os.makedirs(os.path.dirname(index), exist_ok=True)
        with ours, open(f"{index}.turn", "ab") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            return compile_here(function, signature)

    dispatcher.Dispatcher.compile = compiled
