"""The workflow on a cluster: a real Slurm, of a controller and two nodes on this machine, started and ended here."""

import contextlib
import getpass
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys

import pytest

from tests.workflow.test_workflow import RECORDS, ROOT, TINY, environment, record, small, wait_for
from workflow.lib.searches import resources_of_searches

CLIENTS = ("sbatch", "srun", "squeue", "scancel", "scontrol", "sinfo")
DAEMONS = ("munged", "slurmctld", "slurmd")
NODES = ("n1", "n2")
CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=1
ReturnToService=2
MpiDefault=none
KillWait=2
MinJobAge=3600
GresTypes=gpu
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2 RealMemory=100000 Gres=gpu:1
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2 RealMemory=100000 Gres=gpu:1
PartitionName=gpu Nodes=n1,n2 MaxTime=10000
PartitionName=cpu Nodes=n1,n2 MaxTime=10000
"""


class Slurm:
    """A running cluster."""

    def __init__(self, folder):
        """Its commands come first in PATH, and know it: in the jobs of Snakemake's plug-in there is no SLURM_CONF."""
        (folder / "bin").mkdir()
        for name in CLIENTS:
            command = folder / "bin" / name
            command.write_text(f'#!/bin/sh\nSLURM_CONF={folder}/slurm.conf exec {shutil.which(name)} "$@"\n')
            command.chmod(0o755)
        path = os.pathsep.join([f"{folder}/bin", os.environ["PATH"]])
        self.variables = {"PATH": path, "SLURM_CONF": f"{folder}/slurm.conf"}
        self.environment = os.environ | self.variables

    def ask(self, *command):
        """What one of Slurm's commands prints."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    def job(self, number):
        """Facts of a job, as scontrol has them."""
        return dict(re.findall(r"(\S+?)=(\S*)", self.ask("scontrol", "--oneliner", "show", "job", str(number))))

    def running(self):
        """The jobs that are running: numbers and nodes."""
        return [line.split() for line in self.ask("squeue", "-h", "-t", "running", "-o", "%i %N").splitlines()]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A Slurm cluster of two nodes with a GPU each, which is a number only; ended at the end."""
    pytest.importorskip("snakemake_executor_plugin_slurm", reason="needs the extra slurm: make test-slurm")
    places = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])
    if missing := [name for name in CLIENTS + DAEMONS if shutil.which(name, path=places) is None]:
        pytest.skip(f"needs Slurm, to start a cluster; not installed: {', '.join(missing)} (Debian: slurm-wlm, munge)")
    folder = tmp_path_factory.mktemp("slurm")
    for name in ("state", *NODES):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.touch(mode=0o400)
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(3)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        ports = [each.getsockname()[1] for each in sockets]
    os.chmod(key, 0o600)
    key.write_bytes(secrets.token_bytes(1024))
    names = {"host": socket.gethostname().partition(".")[0], "user": getpass.getuser()}
    (folder / "slurm.conf").write_text(CONF.format(folder=folder, ports=ports, **names))
    (folder / "gres.conf").write_text("Name=gpu File=/dev/null\n")
    slurm = Slurm(folder)
    munge = {"key-file": "munge.key", "socket": "munge.socket", "pid-file": "munged.pid", "log-file": "munged.log"}
    munge["seed-file"] = "munge.seed"
    daemons = [["munged", "--foreground", "--force", *(f"--{name}={folder / file}" for name, file in munge.items())]]
    daemons += [["slurmctld", "-D"], *(["slurmd", "-D", "-N", node] for node in NODES)]
    running = []
    try:
        for number, (name, *arguments) in enumerate(daemons):
            log = (folder / f"daemon-{number}.log").open("w")
            command = [shutil.which(name, path=places), *arguments]
            running.append(subprocess.Popen(command, env=slurm.environment, stdout=log, stderr=log))
            log.close()
            if name == "munged":
                wait_for(lambda: (folder / "munge.socket").exists(), seconds=30)
        try:
            wait_for(lambda: up(slurm) == {*NODES}, seconds=60)
        except AssertionError:
            pytest.fail("\n".join(path.read_text()[-2000:] for path in sorted(folder.glob("daemon-*.log"))))
        yield slurm
        slurm.ask("scancel", "--user", names["user"])
        wait_for(lambda: not slurm.running(), seconds=60)
    finally:
        for daemon in reversed(running):
            daemon.terminate()
        for daemon in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(20)
            daemon.kill()


def up(slurm):
    """The nodes that take jobs."""
    with contextlib.suppress(AssertionError):
        return {line.split()[0] for line in slurm.ask("sinfo", "-hN", "-o", "%N %t").splitlines() if "idle" in line}
    return set()


def command(folder, config, *arguments, profile="slurm"):
    """A call of Snakemake with a profile as it is, but for what a test's patience and this machine ask for."""
    here = [*("--config", "backend=host"), *("--cores", "2"), *("--latency-wait", "5")]
    if profile == "slurm":
        here += ["--slurm-init-seconds-before-status-checks", "1", "--slurm-status-command", "squeue"]
    return [
        *(sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--directory", str(folder)),
        *("--workflow-profile", str(ROOT / "profiles" / profile), "--configfile", str(config), *here, *arguments),
    ]


def snakemake(slurm, folder, config, *arguments, profile="slurm", **variables):
    """Run it to its end, without an error; returns what it printed."""
    called = command(folder, config, *arguments, profile=profile)
    there = environment(**slurm.variables, **variables)
    done = subprocess.run(called, env=there, stdout=-1, stderr=subprocess.STDOUT, text=True, timeout=1500)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.slurm
def test_the_tiny_workflow_runs_through_slurm(cluster, tmp_path):
    printed = snakemake(cluster, tmp_path, TINY)
    assert (tmp_path / "results/verification.ok").is_file()
    assert len((tmp_path / "results/records.csv").read_text().splitlines()) == 1 + RECORDS
    assert record(tmp_path, "tiny", "cupc-s")["status"] == "ok"
    assert record(tmp_path, "tiny", "cupc-s")["environment"]["node"] in NODES
    jobs = [cluster.job(number) for number in set(re.findall(r"SLURM jobid '?(\d+)", printed))]
    assert len(jobs) > 10
    measuring = [job for job in jobs if job["Comment"].startswith(("rule_measure_", "rule_record_timeline_"))]
    assert measuring
    assert all(job["Partition"] == "gpu" and job["OverSubscribe"] == "NO" for job in measuring)  # exclusive
    assert {job["Partition"] for job in jobs if job not in measuring} == {"cpu"}


@pytest.mark.slurm
def test_what_ends_its_job_again_and_again_is_killed_and_the_others_are_measured(cluster, tmp_path):
    config = small(tmp_path / "config.yaml", "stable-serial", "ends_jobs", memory_mb=500)
    target = "results/outcomes/gaussian.json"
    snakemake(cluster, tmp_path, config, target, ENDS_JOBS=f"{tmp_path}/ended:9")
    assert record(tmp_path, "tiny", "stable-serial")["status"] == "ok"
    ended = record(tmp_path, "tiny", "ends_jobs")
    assert ended["status"] == "killed"
    last = (tmp_path / "ended").read_text().split()[-1]
    assert re.fullmatch(
        rf"the job that measured it was ended in 2 attempts while it ran, the last time job {last} on node n[12]; .*",
        ended["why"],
    )
    job = cluster.job(last)
    assert job["JobState"] == "CANCELLED"
    assert job["MinMemoryNode"] == "3000M"  # two processes, and what stands beside them
    timing = {"time_limit_s": 120, "long_run_s": 60, "side_by_side": 32}
    asked = resources_of_searches({"a": {}, "b": {}}, 1, 1, timing, {"memory_mb": 500}, {"job_minutes": 1440})
    assert job["TimeLimit"] == f"00:{asked['runtime']}:00"


@pytest.mark.slurm
def test_a_drained_node_leads_to_a_rerun_on_another(cluster, tmp_path):
    config = small(tmp_path / "config.yaml", "slow", repeats=20, memory_mb=500)
    called = command(tmp_path, config, "results/outcomes/gaussian.json")
    there, quiet = environment(**cluster.variables), {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    run = subprocess.Popen(called, env=there, **quiet)
    wait_for(lambda: len(list(tmp_path.glob("results/samples/*/sample-*.json"))) >= 3 or run.poll() is not None)
    [(job, node)] = cluster.running()
    try:
        cluster.ask("scontrol", "update", f"nodename={node}", "state=drain", "reason=test")
        cluster.ask("scontrol", "requeue", job)
        wait_for(lambda: cluster.job(job)["JobState"] == "PENDING")  # for two minutes, but for this:
        cluster.ask("scontrol", "update", f"jobid={job}", "starttime=now")
        assert run.wait(180) == 0
    finally:
        run.kill()
        cluster.ask("scontrol", "update", f"nodename={node}", "state=resume")
    found = record(tmp_path, "tiny", "slow")
    assert (found["status"], len(found["time_s"]["warm"])) == ("ok", 20)
    assert {found["environment"]["node"], node} == {*NODES}
    assert found["reused_samples"] == 0  # they were the other node's


@pytest.mark.slurm
def test_any_scheduler_by_its_commands(cluster, tmp_path):
    config = small(tmp_path / "config.yaml", "stable-serial", "ends_jobs", memory_mb=500)
    target = "results/outcomes/gaussian.json"
    resources = ["--default-resources", 'partition="gpu"', 'exclusive="--exclusive"', 'gpus="--gpus=1"', "mem_mb=500"]
    given = {"profile": "cluster-generic", "ENDS_JOBS": f"{tmp_path}/ended:1"}
    snakemake(cluster, tmp_path, config, target, *resources, "runtime=5", **given)
    for setting in ("stable-serial", "ends_jobs"):  # the second attempt measured both
        assert record(tmp_path, "tiny", setting)["status"] == "ok"
        assert record(tmp_path, "tiny", setting)["environment"]["node"] in NODES
    assert cluster.job((tmp_path / "ended").read_text().strip())["TresPerJob"] == "gres:gpu:1"
