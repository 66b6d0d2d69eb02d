"""Fetching, against a local server: cache, mirrors, retries, checksums, and what it says when it fails."""

import contextlib
import hashlib
import http.server
import json
import os
import pwd
import subprocess
import sys
import threading
import time

import pytest

from datasets import DataError, DatasetUnavailable, RegistryError, load, registry
from datasets import fetch as fetching
from datasets.fetch import fetch

CONTENT = b"a,b\n" + b"".join(b"%d,%d\n" % (i, i * i % 97) for i in range(30_000))
HALF = len(CONTENT) // 2


class Server(http.server.ThreadingHTTPServer):
    """Serves CONTENT; `script` holds one behaviour a request, the last one for all later ones."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.script = ["whole"]
        self.requests = 0

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/t.csv"


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_GET(self):
        behaviour = self.server.script[min(self.server.requests, len(self.server.script) - 1)]
        self.server.requests += 1
        if isinstance(behaviour, int):
            self.send_error(behaviour)
        elif behaviour == "break":
            self.reply(CONTENT, send=HALF)
        elif behaviour == "endless":
            self.send_response(200)
            self.end_headers()
            with contextlib.suppress(OSError):
                while True:
                    self.wfile.write(bytes(1 << 16))
        elif behaviour == "wrong":
            self.reply(b"something else")
        else:
            time.sleep(1.5 if behaviour == "slow" else 0)
            self.reply(CONTENT)

    def reply(self, body, send=None):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:send])


@pytest.fixture
def server():
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def surroundings(monkeypatch):
    monkeypatch.setattr(fetching, "BACKOFF_S", 0.01)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv(fetching.MIRRORS_VARIABLE, raising=False)


def spec(server=None, **changes):
    entry = {"kind": "file", "family": "gaussian", "file": "t.csv", "samples": 30_000, "variables": 2}
    entry |= {"sha256": hashlib.sha256(CONTENT).hexdigest(), "reader": {"format": "csv", "header": True}}
    entry |= {"licence": "none", "citation": "none"}
    return entry | ({"url": server.url} if server else {}) | changes


def mirror(tmp_path, content=CONTENT, folder="mirror"):
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "t.csv").write_bytes(content)
    return tmp_path / folder


def put(cache, file, content):
    (cache / "t").mkdir(parents=True)
    (cache / "t" / file).write_bytes(content)
    return cache / "t" / file


def kept(cache):
    """What the cache holds of data set t, beside the lock."""
    return sorted(path.name for path in (cache / "t").iterdir() if path.suffix != ".lock")


def test_download_then_cache(server, tmp_path):
    path = fetch("t", tmp_path / "new" / "cache", spec=spec(server))
    assert path == tmp_path / "new" / "cache" / "t" / "t.csv"
    assert path.read_bytes() == CONTENT
    assert fetch("t", tmp_path / "new" / "cache", spec=spec(server)) == path
    assert server.requests == 1
    assert kept(tmp_path / "new" / "cache") == ["t.csv"]


def test_git_blob_checksum(server, tmp_path):
    entry = spec(server, git_blob_sha1=hashlib.sha1(b"blob %d\0" % len(CONTENT) + CONTENT).hexdigest())
    del entry["sha256"]
    assert fetch("t", tmp_path, spec=entry).read_bytes() == CONTENT
    with pytest.raises(DatasetUnavailable, match=f"expected git_blob_sha1 {'0' * 40}, found {entry['git_blob_sha1']}"):
        fetch("t", tmp_path / "other", spec=entry | {"git_blob_sha1": "0" * 40})


def test_a_user_without_a_home_is_said(server, monkeypatch):
    for variable in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    with pytest.raises(DatasetUnavailable, match="no home folder for a cache; set XDG_CACHE_HOME, or HOME"):
        fetch("t", spec=spec(server))
    assert server.requests == 0


def test_errors_of_the_server_and_broken_downloads_are_retried(server, tmp_path):
    server.script = [503, "break", "whole"]
    assert fetch("t", tmp_path, spec=spec(server)).read_bytes() == CONTENT


def test_not_found_is_not_retried(server, tmp_path):
    server.script = [404]
    with pytest.raises(DatasetUnavailable, match="404") as caught:
        fetch("t", tmp_path, spec=spec(server))
    assert server.requests == 1
    for part in ("data set 't' is not available", server.url, "no mirror folder is set", "GPUPC_MIRRORS", "put t.csv"):
        assert part in str(caught.value)


def test_wrong_checksum_keeps_nothing(server, tmp_path):
    server.script = ["wrong"]
    found = hashlib.sha256(b"something else").hexdigest()
    expected = hashlib.sha256(CONTENT).hexdigest()
    with pytest.raises(DatasetUnavailable, match=f"expected sha256 {expected}, found {found}"):
        fetch("t", tmp_path, spec=spec(server))
    assert kept(tmp_path) == []
    assert server.requests == 1


@pytest.mark.parametrize("behaviour", ["whole", "endless"])
def test_a_download_that_is_too_long_is_given_up(server, tmp_path, monkeypatch, behaviour):
    monkeypatch.setattr(fetching, "MAX_BYTES", len(CONTENT) - 1)
    server.script = [behaviour]
    with pytest.raises(DatasetUnavailable, match=rf"{len(CONTENT) - 1:,}") as caught:
        fetch("t", tmp_path, spec=spec(server))
    assert "limit" in str(caught.value)
    assert kept(tmp_path) == []
    assert server.requests == 1


def test_every_registered_address_is_https_with_a_checksum():
    entries = [registry.resolve(name) for name in registry.names()]
    downloads = [entry for entry in entries if "url" in entry]
    assert len(downloads) >= 10
    for entry in downloads:
        assert entry["url"].startswith("https://")
        assert "sha256" in entry or "git_blob_sha1" in entry


def test_damaged_cache_is_replaced(server, tmp_path):
    put(tmp_path, "t.csv", CONTENT[:-1])
    assert fetch("t", tmp_path, spec=spec(server)).read_bytes() == CONTENT


def test_mirrors_come_before_the_network(server, tmp_path, monkeypatch):
    first, second = mirror(tmp_path, b"damaged", "first"), mirror(tmp_path, folder="second")
    monkeypatch.setenv(fetching.MIRRORS_VARIABLE, f"{tmp_path / 'absent'}{os.pathsep}{second}")
    path = fetch("t", tmp_path / "cache", mirrors=[first], spec=spec(server))
    assert path.read_bytes() == CONTENT
    assert path == tmp_path / "cache" / "t" / "t.csv"
    assert server.requests == 0
    assert kept(tmp_path / "cache") == ["t.csv"]


def test_wrong_mirrors_are_said(tmp_path):
    folder = mirror(tmp_path, b"damaged")
    with pytest.raises(DatasetUnavailable) as caught:
        fetch("t", tmp_path / "cache", [folder, tmp_path / "absent"], spec=spec())
    assert f"the copy in {folder} cannot be used (expected sha256" in str(caught.value)
    assert f"mirrors looked in: {folder}, {tmp_path / 'absent'} (no such folder)" in str(caught.value)
    assert "it has no address" in str(caught.value)
    assert kept(tmp_path / "cache") == []


def test_offline_never_asks(server, tmp_path):
    with pytest.raises(DatasetUnavailable, match=r"was not tried \(offline\)"):
        fetch("t", tmp_path, offline=True, spec=spec(server))
    assert server.requests == 0


def test_no_network_is_one_sentence(tmp_path, server):
    url = server.url
    server.shutdown()
    server.server_close()
    with pytest.raises(DatasetUnavailable, match=rf"{url} failed \(\[Errno \d+\].*refused, 3 attempts") as caught:
        fetch("t", tmp_path, spec=spec(url=url))
    assert "\n" not in str(caught.value)


def test_processes_at_once_download_once(server, tmp_path):
    server.script = ["slow"]
    code = "import sys, json, datasets.fetch as f; f.fetch('t', sys.argv[1], spec=json.loads(sys.argv[2]))"
    argv = [sys.executable, "-c", code, str(tmp_path), json.dumps(spec(server))]
    processes = [subprocess.Popen(argv) for _ in range(3)]
    assert [process.wait(timeout=20) for process in processes] == [0, 0, 0]
    assert server.requests == 1
    assert (tmp_path / "t" / "t.csv").read_bytes() == CONTENT


def test_entries_of_one_file_share_the_cache(server, tmp_path):
    first = fetch("t", tmp_path, spec=spec(server))
    assert fetch("other", tmp_path, offline=True, spec=spec(server, cache="t")) == first
    assert server.requests == 1


def test_a_file_to_be_built_comes_from_a_mirror_as_it_is(tmp_path):
    entry = spec(how="join the tables")
    del entry["sha256"]
    with pytest.raises(DatasetUnavailable) as caught:
        fetch("t", tmp_path, spec=entry)
    said = "data set 't' is not available: it has to be built: join the tables; no mirror folder is set"
    assert said in str(caught.value)
    assert "put t.csv in a folder" in str(caught.value)
    folder = mirror(tmp_path)
    assert fetch("t", tmp_path, [folder], spec=entry) == folder / "t.csv"
    assert load("t", cache_dir=tmp_path, mirrors=[folder], spec=entry).values.shape == (30_000, 2)
    (folder / "t.csv").write_bytes(b"a,b\n1,2\n")  # built again: no copy of the first stays behind
    with pytest.raises(DataError, match=r"\(1, 2\) samples x variables"):
        load("t", cache_dir=tmp_path, mirrors=[folder], spec=entry)


def test_only_files_are_fetched(tmp_path):
    with pytest.raises(RegistryError, match="kind network: there is no file"):
        fetch("ecoli70", tmp_path)


def test_load(server, tmp_path):
    data = load("t", cache_dir=tmp_path, spec=spec(server))
    assert data.values.shape == (30_000, 2)
    assert data.names == ("a", "b")
    assert data.true_dag is None
    assert data.facts["source"] == server.url
    assert data.facts["licence"] == "none"
