"""Soaking, for seconds: every family has a turn, a difference is reported with what makes it again, growth is seen."""

import dataclasses
import json

import numpy as np
import psutil
import pytest

from gpupc_impl import methods
from gpupc_impl.backends import DeviceMemoryError, KernelLaunchError
from gpupc_impl.backends.host import HostBackend
from tests.soak import growth
from tests.soak import run as soak

pytestmark = pytest.mark.skipif(HostBackend.unavailable() is not None, reason=str(HostBackend.unavailable()))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUPC_HOST_THREADS", "1")  # set back at the end
    return tmp_path


def call(folder, *arguments):
    files = ["--log", str(folder / "log.jsonl"), "--summary", str(folder / "summary.json")]
    status = soak.main(["--minutes", "10", *files, *arguments])
    return status, json.loads((folder / "summary.json").read_text())


def test_every_method_agrees_and_a_second_call_goes_on(folder):
    turn = len(soak.REFERENCES)
    status, found = call(folder, "--problems", str(turn))
    assert (status, found["problems"], found["differences"], found["flat"]) == (0, turn, [], True)
    assert {name for name in found["counts"] if name.startswith("problems")} == {
        f"problems of family {family}" for family in soak.REFERENCES
    }
    assert found["runs"] > 10
    with (folder / "log.jsonl").open("a") as file:
        file.write('{"pid": 1, "next": 99')  # a killed process's
    status, found = call(folder, "--problems", "1")
    assert (status, found["problems"]) == (0, turn + 1)
    # Lines between, where a problem takes long: with references that are not compiled yet.
    assert [line["next"] for line in soak.read_log(folder / "log.jsonl")][-2:] == [turn, turn + 1]


def test_a_difference_is_reported_with_how_to_make_it_again(folder, monkeypatch, capsys):
    solve = soak.solve

    def wrong(problem, method, backend, params=None):
        found = solve(problem, method, backend, params)
        return dataclasses.replace(found, adjacency=~found.adjacency) if method.name == "cupc-s" else found

    monkeypatch.setattr(soak, "solve", wrong)
    number = next(number for number in range(8, 8 + len(soak.REFERENCES)) if soak.family_of(number) == "gaussian")
    others = methods("gaussian").keys() - {"cupc-s"}
    status, found = call(folder, "--first", str(number), "--problems", "1", "--without", *others)
    assert status == 1
    (fault,) = found["differences"]
    assert (fault["number"], fault["method"], fault["backend"]) == (number, "cupc-s", "host")
    assert fault["fault"].endswith("edges differ")
    assert {"theta", "delta"} <= fault["params"].keys()
    assert f'"number": {number}' in capsys.readouterr().out


def test_a_lack_of_memory_that_others_have_is_a_fault(folder, monkeypatch):
    def lacking(requested):
        def solve(problem, method, backend, params=None):
            if backend is None:
                return reference(problem, method, backend, params)
            raise DeviceMemoryError(requested, 0, 1 << 20)

        return solve

    reference = soak.solve
    monkeypatch.setattr(soak, "BUDGETS", (None,))
    monkeypatch.setattr(soak, "solve", lacking(1 << 21))
    status, found = call(folder, "--first", "0", "--problems", "1", "--without", "out-of-core-um", "out-of-core-block")
    assert status == 1
    assert all(fault["fault"].startswith("DeviceMemoryError") for fault in found["differences"])
    monkeypatch.setattr(soak, "solve", lacking(1 << 60))  # more than a device has
    (folder / "log.jsonl").unlink()
    status, found = call(folder, "--first", "0", "--problems", "1", "--without", "out-of-core-um", "out-of-core-block")
    assert (status, found["differences"]) == (0, [])
    assert found["counts"]["runs that did not fit in the budget"] > 3


def test_a_lost_gpu_ends_the_process(folder, monkeypatch):
    def failing(*arguments):
        raise KernelLaunchError("cudaErrorIllegalAddress")

    gaussian = methods("gaussian")
    settings = {family: [] for family in soak.REFERENCES}
    settings["gaussian"] = [(gaussian["cupc-e"], "cuda"), (gaussian["cupc-s"], "cuda")]
    monkeypatch.setattr(soak, "settings_here", lambda without=(): settings)
    monkeypatch.setattr(soak, "run", failing)
    monkeypatch.setattr(soak, "device_bytes", failing)
    status, found = call(folder, "--first", "0")
    assert (status, found["problems"]) == (1, 1)
    assert [fault["method"] for fault in found["differences"]] == ["cupc-e"]


def test_growth_is_seen():
    line = {"memory_bytes": 1 << 30, "device_bytes": 1 << 32, "descriptors": 9, "threads": 4}
    flat = [line | {"stacks": 32, "stack_bytes": 1 << 20}] * 8
    assert soak.grown(flat)["flat"]
    over = soak.MOST_STACKS + 1
    more_of = {
        "memory_bytes": (1 << 30) + (17 << 20),
        "device_bytes": (1 << 32) + (1025 << 20),
        "descriptors": 10,
        "threads": 5,
        "stacks": over,
    }
    for name, more in more_of.items():
        assert not soak.grown([*flat[:6], *[line | {name: more} for line in flat[6:]]])["flat"]
    assert soak.grown([{name: line[name] for name in line if name != "device_bytes"} for line in flat])["flat"]
    deeper = [line | {"stacks": 64, "stack_bytes": 1 << 27} for line in flat]
    assert soak.grown([*flat[:4], *deeper[:4]])["flat"]


def test_memory_that_is_kept_is_seen_and_freed_memory_is_not():
    before = soak.memory()["memory_bytes"]
    kept = [np.ones(4000, np.uint8) for _ in range(8000)]  # small enough for the allocator's own heap
    assert soak.memory()["memory_bytes"] > before + (28 << 20)
    last = kept.pop()  # above all others, so that the heap cannot shrink
    del kept
    assert soak.memory()["memory_bytes"] < before + (4 << 20)
    assert last.all()


def test_stacks_of_waiting_threads_are_counted_apart(tmp_path, monkeypatch):
    source = tmp_path / "deep.cu"
    source.write_text(
        "__global__ void deep(int* out) {\n"
        "    volatile char frame[100 << 10];\n"
        "    for (int i = 0; i < (100 << 10); i += 1024) frame[i] = 1;\n"
        "    __syncthreads();\n"
        "    out[threadIdx.x] = frame[0];\n"
        "}\n"
    )
    monkeypatch.setenv("GPUPC_HOST_THREADS", "7")  # no other test's pool
    backend = HostBackend()
    out, before = backend.full(320, 0, np.int32), soak.memory()
    backend.kernel(source, "deep")((1,), (320,), [out])
    after = soak.memory()
    assert out.all()
    apart = 320 - 320 // 32  # of each 32, which are mapped at a time, the last may be one mapping with what follows
    assert after["stacks"] >= before["stacks"] + apart
    assert after["stack_bytes"] > before["stack_bytes"] + apart * (96 << 10)
    assert after["memory_bytes"] < before["memory_bytes"] + (4 << 20)


def test_a_step_that_keeps_memory_is_told_from_one_that_does_not():
    kept = []
    assert growth.kept(lambda: kept.append(bytearray(100_000)), 200)["memory_bytes"] > 90_000
    assert growth.kept(lambda: bytearray(100_000), 200)["memory_bytes"] < 10_000


def test_what_stays_on_a_gpu_is_told_as_well(monkeypatch):
    taken = iter([1 << 30, (1 << 30) + 5000])
    monkeypatch.setattr(growth, "device_bytes", lambda: next(taken))
    assert growth.kept(lambda: None, 50)["device_bytes"] == 100


def test_every_step_of_a_run_is_repeated(capsys, monkeypatch):
    """Memory is read as if in a moment, though after many tests a process has many stacks to tell apart."""
    monkeypatch.setattr(growth, "memory", lambda: {"memory_bytes": psutil.Process().memory_info().rss})
    growth.main(["--backend", "host", "--repeats", "2"])
    said = capsys.readouterr().out.splitlines()
    assert len(said) == len(growth.steps("host"))
    assert all("on the device a time: " in line for line in said)
