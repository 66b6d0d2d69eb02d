"""The workflow when the machine lets it down: the right status in the right record, nothing half-done taken for whole,
everything else finished, and the next call measures what is missing and nothing else.

Killed workflows, folders with odd names and users without a home: `tests/workflow/test_workflow.py`.
"""

import contextlib
import json
import os
import shlex
import signal
import subprocess
import textwrap
import time

import numpy as np
import psutil
import pytest

from gpupc_impl.backends.simt import build
from gpupc_impl.measurement.record import Record
from tests.workflow import test_workflow
from tests.workflow.test_workflow import command, environment, record, rows, snakemake, variant, wait_for

pytestmark = pytest.mark.slow

MEASURED = "results/outcomes/gaussian.json"


@pytest.fixture
def small(tmp_path):
    """A function that writes a config with these settings on one data set."""

    def write(*settings, repeats=2, time_limit_s=120):
        limits = {"time_limit_s": time_limit_s, "compile_limit_s": 2 * time_limit_s}
        return test_workflow.small(tmp_path / "config.yaml", *settings, repeats=repeats, **limits)

    return write


def start(folder, config, *arguments, **more):
    """Snakemake in a session of its own, and the file of what it prints."""
    said = folder.parent / f"said-{time.monotonic_ns()}.txt"
    with said.open("w") as out:
        how = {"env": environment() | more, "stderr": subprocess.STDOUT, "start_new_session": True}
        process = subprocess.Popen(list(map(str, command(folder, config, *arguments))), stdout=out, **how)
    return process, said


def statuses(folder):
    records = (folder / "results/records/tiny").glob("*.json")
    return {path.stem: json.loads(path.read_text())["status"] for path in records}


def assert_nothing_is_half_there(folder):
    """Whatever has a name that somebody looks for can be read."""
    for path in folder.glob("results/**/[!.]*.json"):
        json.loads(path.read_text())
    for path in folder.glob("results/**/[!.]*.npz"):
        with np.load(path) as stored:
            for name in stored:
                assert stored[name] is not None


@contextlib.contextmanager
def small_disk(path, size):
    """A file system of that size."""
    path.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "gpupc-test", path], capture_output=True)
    if done.returncode != 0:
        pytest.skip(f"no small disk can be mounted here: {done.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)


def test_a_full_disk(small, tmp_path):
    folder, config = tmp_path / "disk", small("stable-serial", "fills", repeats=3)
    with small_disk(folder, "8m"):
        run, said = start(folder, config, FILL_DISK=str(folder / "ballast"))
        assert run.wait(300) != 0
        assert "No space left on device" in said.read_text()
        (folder / "ballast").unlink()
        assert_nothing_is_half_there(folder)
        assert not list(folder.glob("results/**/.*.npz"))
        snakemake(folder, config)
        assert_nothing_is_half_there(folder)
        assert statuses(folder) == {"stable-serial": "ok", "fills": "ok"}
        assert record(folder, "tiny", "stable-serial")["reused_samples"] >= 1, "what was taken before the disk was full"


def compiler(path, behaviour):
    """A compiler that behaves so with kernels, and compiles everything else."""
    real = shlex.join(build.find_compiler().command)
    path.write_text(f'#!/bin/sh\ncase "$*" in *kernel-*.cpp*) {behaviour} ;; esac\nexec {real} "$@"\n')
    path.chmod(0o755)
    return path


def test_ctrl_c_in_the_middle_of_a_compile(small, tmp_path):
    config, cache = small("stable-serial", "cupc-e"), tmp_path / "cache"
    compiling = tmp_path / "compiling"
    hanging = compiler(tmp_path / "c++", f"touch {compiling}; exec sleep 1000")
    run, _ = start(tmp_path, config, CXX=str(hanging), GPUPC_CACHE_DIR=str(cache))
    wait_for(compiling.exists, run)
    everybody = psutil.Process(run.pid).children(recursive=True)
    assert any("1000" in (process.as_dict(["cmdline"])["cmdline"] or []) for process in everybody)
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does
    assert run.wait(60) != 0
    assert not psutil.wait_procs(everybody, timeout=30)[1], "no compiler, worker or guard is left"
    assert_nothing_is_half_there(tmp_path)
    assert all(build.is_whole(entry) for entry in (cache / "host").iterdir() if entry.is_file())
    assert not statuses(tmp_path)
    printed = snakemake(tmp_path, config, MEASURED)
    assert "tiny: stable-serial: done: ok" in printed
    assert statuses(tmp_path) == {"stable-serial": "ok", "cupc-e": "ok"}


@pytest.mark.parametrize(
    ("behaviour", "status", "why"),
    [
        ("echo no room for kernels >&2; exit 3", "error", "no room for kernels"),
        ("exec sleep 1000", "timeout", "no answer within the time limit of 5 s"),
        (None, "skipped", "does not run; unset CXX or correct it"),
    ],
    ids=["fails", "hangs", "is missing"],
)
def test_a_compiler_that(small, tmp_path, behaviour, status, why):
    config = small("stable-serial", "cupc-e", time_limit_s=5)
    cxx = tmp_path / "c++" if behaviour is None else compiler(tmp_path / "c++", behaviour)
    given = {"CXX": str(cxx), "GPUPC_CACHE_DIR": str(tmp_path / "cache")}
    run, said = start(tmp_path, config, **given)
    assert (run.wait(300) == 0) == (status == "timeout"), said.read_text()
    assert f"cupc-e on tiny: {status}: " in said.read_text() or status == "timeout"
    assert statuses(tmp_path) == {"stable-serial": "ok", "cupc-e": status}
    assert why in record(tmp_path, "tiny", "cupc-e")["why"]
    assert ("1 failed (tiny cupc-e)" in (tmp_path / "results/report.html").read_text()) == (status != "timeout")
    assert ("compiling cupc-e ahead took longer than 10 s" in said.read_text()) == (status == "timeout")
    assert not [process for process in psutil.process_iter(["cmdline"]) if str(cxx) in (process.info["cmdline"] or [])]
    assert (tmp_path / "results/tables/cupc_table2.md").exists(), "tables are made of what there is"


ONE_SIDED = """
from scipy.stats import norm
from gpupc_impl.gaussian.problem import GaussianProblem
two_sided = GaussianProblem.threshold
GaussianProblem.threshold = lambda self, level: two_sided(self, level) * norm.isf(self.alpha) / norm.isf(self.alpha / 2)
"""


def test_a_wrong_threshold_that_all_methods_share(small, tmp_path):
    (tmp_path / "wrong").mkdir()
    (tmp_path / "wrong/sitecustomize.py").write_text(ONE_SIDED)
    paths = f"{tmp_path / 'wrong'}:{environment()['PYTHONPATH']}"
    run, said = start(tmp_path, small("stable-serial", "cupc-e"), PYTHONPATH=paths)
    assert run.wait(300) != 0
    assert {row["status"] for row in rows(tmp_path / "results/verification.csv")} == {"unexplained"}
    assert "cupc-e on tiny (compared with stable-serial): certificates failed: by a test from" in said.read_text()


def test_no_data_set_is_there(tmp_path):
    def change(config):
        config |= {"experiments": {}, "datasets": {"nci-60": config["datasets"]["nci-60"]}}
        config["settings"]["gaussian"] = {"stable-serial": {}}

    run, said = start(tmp_path, variant(tmp_path / "config.yaml", change))
    assert run.wait(300) != 0
    assert "1 of 1 data sets could not be had or used: nci-60\nno setting has an answer" in said.read_text()


def test_a_read_only_cache(small, tmp_path):
    config = small("stable-serial", "cupc-e")
    with small_disk(tmp_path / "cache", "1m"):
        subprocess.run(["mount", "-o", "remount,ro", tmp_path / "cache"], check=True)
        run, said = start(tmp_path, config, GPUPC_CACHE_DIR=str(tmp_path / "cache"))
        run.wait(300)
    assert statuses(tmp_path)["stable-serial"] == "ok", said.read_text()
    found = record(tmp_path, "tiny", "cupc-e")
    assert found["status"] in ("error", "skipped")
    assert run.returncode != 0
    assert "compiled kernels cannot be kept in" in found["why"]


def test_damaged_files_are_named_and_made_again(small, tmp_path):
    config = small("stable-serial", "cupc-e")
    snakemake(tmp_path, config)
    before = {name: record(tmp_path, "tiny", name)["time_s"] for name in ("stable-serial", "cupc-e")}
    damaged = tmp_path / "results/records/tiny/cupc-e.json"
    damaged.write_bytes(damaged.read_bytes()[:200])
    printed = snakemake(tmp_path, config, "--forcerun", "verify", fails=True)
    assert "cupc-e.json is not JSON" in printed
    snakemake(tmp_path, config, "--forcerun", "measure")
    assert record(tmp_path, "tiny", "cupc-e")["time_s"] == before["cupc-e"], "its samples were in the store"
    for sample in tmp_path.glob("results/samples/*/sample-1.json"):
        sample.write_bytes(sample.read_bytes().replace(b'"seconds": ', b'"seconds": 9'))
    snakemake(tmp_path, config, "--forcerun", "measure", "--", MEASURED)
    found = record(tmp_path, "tiny", "stable-serial")
    assert (found["reused_samples"], found["time_s"]["cold"]) == (1, before["stable-serial"]["cold"])
    assert max(found["time_s"]["warm"]) < 9
    problem = tmp_path / "results/problems/tiny.npz"
    content = problem.read_bytes()
    problem.write_bytes(content[: len(content) // 2])
    printed = snakemake(tmp_path, config, fails=True)
    assert "tiny.npz is no problem's file, or is damaged" in printed
    problem.unlink()
    snakemake(tmp_path, config, "results/problems/tiny.npz")
    snakemake(tmp_path, config)
    assert problem.read_bytes() == content
    assert statuses(tmp_path) == {"stable-serial": "ok", "cupc-e": "ok"}
    assert (tmp_path / "results/verification.ok").exists()


def test_a_clock_that_jumps(small, tmp_path):
    """Every process's clock goes a day forward or back whenever it is read."""
    config = small("stable-serial", "slow", repeats=3)
    (tmp_path / "clock").mkdir()
    (tmp_path / "clock/sitecustomize.py").write_text(
        textwrap.dedent("""
            import random, sys, time
            if "snakemake" not in " ".join(sys.orig_argv):  # whose own log and locks are not our concern
                true = time.time
                time.time = lambda: true() + random.choice((-86400, 0, 86400))
                time.time_ns = lambda: int(time.time() * 1e9)
        """)
    )
    paths = os.pathsep.join([str(tmp_path / "clock"), environment()["PYTHONPATH"]])
    run, said = start(tmp_path, config, MEASURED, PYTHONPATH=paths)
    assert run.wait(300) == 0, said.read_text()
    for name in ("stable-serial", "slow"):
        found = Record.load(tmp_path / f"results/records/tiny/{name}.json")
        assert found.status == "ok"
        assert 0 < min(found.time_s.warm) <= max(found.time_s.warm) < 60
    before = record(tmp_path, "tiny", "slow")["time_s"]
    (tmp_path / "results/problems/tiny.npz").touch()
    snakemake(tmp_path, config)
    assert statuses(tmp_path) == {"stable-serial": "ok", "slow": "ok"}
    assert record(tmp_path, "tiny", "slow")["time_s"] == before, "a date alone measures nothing again"
