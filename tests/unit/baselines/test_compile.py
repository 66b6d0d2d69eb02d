"""Numba's cache: processes that compile at the same time share it, and strangers cannot fill it."""

import os
import pickle
import threading
import time

import numba
import pytest
from numba.core import caching

from baselines._compile import njit


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


class Planted:
    """What runs code when it is unpickled."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("way", ["folder", "above", "file", "link", "data", "owner"])
def test_code_of_strangers_is_never_unpickled(tmp_path, way):
    if way == "owner" and os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    folder, marker = tmp_path / "shared/folder", tmp_path / "ran"
    folder.mkdir(parents=True)
    cache = caching.IndexDataCacheFile(str(folder), "function", "stamp")
    cache.save("types", "code")
    assert cache.load("types") == "code"
    index, data = folder / "function.nbi", folder / "function.1.nbc"
    planted = data if way == "data" else index
    planted.write_bytes(pickle.dumps(Planted(marker)))
    if way == "folder":
        folder.chmod(0o777)
    elif way == "above":
        folder.parent.chmod(0o777)
    elif way in ("file", "data"):
        planted.chmod(0o666)
    elif way == "link":
        index.rename(tmp_path / "theirs")
        index.symlink_to(tmp_path / "theirs")
    else:
        os.chown(index, 65534, 65534)
    assert cache.load("types") is None
    cache.save("types", "code")  # leaves it as it is
    assert not marker.exists()


@pytest.mark.parametrize("damaged", ["function.nbi", "function.1.nbc"])
@pytest.mark.parametrize("content", [b"", b"\x80\x04damaged", pickle.dumps(("0.0", b"other"))[:-3]])
def test_a_damaged_cache_is_filled_again(tmp_path, caplog, damaged, content):
    cache = caching.IndexDataCacheFile(str(tmp_path), "function", "stamp")
    cache.save("types", "code")
    (tmp_path / damaged).write_bytes(content)
    assert cache.load("types") is None
    assert f"{tmp_path}/function.nbi is damaged" in caplog.text
    cache.save("types", "new code")
    assert cache.load("types") == "new code"


def test_functions_are_compiled_where_nothing_can_be_kept(monkeypatch, caplog):
    """As with a home folder and an installation that are read-only."""
    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])
    monkeypatch.setattr(numba.config, "CACHE_LOCATOR_CLASSES", "", raising=False)

    @njit(cache=True)
    def double(x):
        return 2 * x

    assert double(2) == 4
    assert "set NUMBA_CACHE_DIR" in caplog.text
