"""Processes that compile at the same time share Numba's cache."""

import threading
import time

from numba.core import caching

import baselines._compile  # noqa: F401, which is what is tested


def test_code_for_different_types_that_is_saved_at_once_is_told_apart(tmp_path, monkeypatch):
    """In threads, for which locks of files are as for processes."""
    read = caching.IndexDataCacheFile._load_index

    def read_slowly(cache):
        found = read(cache)
        time.sleep(0.1)
        return found

    monkeypatch.setattr(caching.IndexDataCacheFile, "_load_index", read_slowly)
    kinds = [f"types {number}" for number in range(4)]

    def cache():
        return caching.IndexDataCacheFile(str(tmp_path), "function", "stamp")

    threads = [threading.Thread(target=cache().save, args=(kind, f"code for {kind}")) for kind in kinds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [cache().load(kind) for kind in kinds] == [f"code for {kind}" for kind in kinds]
