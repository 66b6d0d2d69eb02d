"""A recording: what the configs ask for, measurements side by side on several GPUs, and runs that are published."""

import json
import multiprocessing
import os
from pathlib import Path

import pytest

from datasets import registry
from gpupc_impl.measurement.publish import check, publish
from gpupc_impl.measurement.published import open_published
from gpupc_impl.measurement.record import load_tests
from gpupc_impl.reporting.catalogue import entries
from tests.workflow.test_workflow import record, snakemake, variant
from workflow.lib import jobs
from workflow.lib.config import complete, read_config
from workflow.lib.plan import Plan, recorded_plans
from workflow.lib.searches import method_of
from workflow.lib.single_tests import cases, is_timed

CONFIGS = Path(__file__).parents[2] / "config"


def plan_of(name):
    config = read_config(CONFIGS / name)
    complete(config)
    return Plan(config)


def test_the_gpu_config_asks_for_every_table_and_figure():
    assert set(plan_of("gpu.yaml").outputs()) == set(entries())


def test_the_cells_in_which_tigramite_is_timed_are_in_the_tables():
    ci_tests = plan_of("gpu.yaml").config["ci_tests"]
    cells = [case for table in ci_tests["tables"].values() for case in cases(table)]
    for chosen in ci_tests["implementations"]["tigramite"]["only"]:
        assert any(is_timed({"only": [chosen]}, case) for case in cells), chosen


def test_the_runs_that_others_contribute_are_on_published_problems_and_download_nothing():
    ours, published = plan_of("submit.yaml"), plan_of("gpu.yaml")
    both = set(ours.measured()) & set(published.measured())
    assert both
    assert set(ours.measured()) - both == {"cgm-p8-n200"}
    for name in both:
        assert ours.entries[name] == published.entries[name]
        assert ours.parameters_of(name) == published.parameters_of(name)
    assert not any(registry.files(ours.entries[name]) for name in ours.measured())


@pytest.mark.parametrize(
    ("cores", "gpus", "sizes"), [(16, 1, [4, 8, 4]), (64, 4, [4, 4, 4, 4, 32, 16]), (5, 2, [1, 1, 2, 1])]
)
def test_parts_of_the_cores_are_disjoint(cores, gpus, sizes):
    parts = jobs.parts_of(list(range(cores)), gpus)
    assert [len(part) for part in parts] == sizes
    assert sorted(core for part in parts for core in part) == list(range(cores))


def test_every_part_has_a_core():
    assert jobs.parts_of([6, 7], 2) == [[6], [7], [7], [7]]


def take_part(folder, references, taken, end):
    with jobs.own_cores(2, references, folder):
        taken.put((os.environ["CUDA_VISIBLE_DEVICES"], os.sched_getaffinity(0)))
        end.wait(30)


def test_jobs_side_by_side_have_gpus_and_cores_of_their_own(tmp_path, monkeypatch):
    cores = sorted(os.sched_getaffinity(0))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, GPU-7")
    monkeypatch.setenv(jobs.CORES, json.dumps(cores))
    context = multiprocessing.get_context("fork")
    taken, end = context.Queue(), context.Event()
    given = [(tmp_path, references, taken, end) for references in (True, False, False, False)]
    running = [context.Process(target=take_part, args=each) for each in given]
    for job in running:
        job.start()
    first = dict(taken.get(timeout=30) for _ in range(3))
    own = list(map(set, jobs.parts_of(cores, 2)))
    assert first == {"3": own[0], "GPU-7": own[1], "": own[2]}
    end.set()
    assert taken.get(timeout=30)[0] in ("3", "GPU-7")  # the last job waited for a GPU
    for job in running:
        job.join()


def test_snakemake_keeps_off_the_cores_of_measurements(monkeypatch):
    moved = []
    monkeypatch.setenv(jobs.CORES, "")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(32)))
    monkeypatch.setattr(os, "sched_setaffinity", lambda process, cores: moved.append(cores))
    jobs.leave_cores_to_measurements(16, 2)
    assert json.loads(os.environ[jobs.CORES]) == list(range(16))
    assert moved == [list(range(12, 16))]


def test_a_job_alone_keeps_all_gpus_and_cores(tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    cores = os.sched_getaffinity(0)
    with jobs.own_cores(0, folder=tmp_path):
        assert "CUDA_VISIBLE_DEVICES" not in os.environ
        assert os.sched_getaffinity(0) == cores


def test_jobs_share_a_batch_without_measuring_twice():
    plan = plan_of("gpu.yaml")
    for name, batch in plan.batches.items():
        shares = plan.jobs(apart=True)[name].values()
        keys = [key for job in shares for key in job.keys]
        assert len(keys) == len(set(keys))
        assert set(keys) == set(batch.keys)
        assert all(len({method_of(*each).backends == ("cpu",) for each in job.settings.items()}) == 1 for job in shares)


def small(config):
    """One data set, two quick settings, one large graph, and a single test by a reference and by kernels."""
    graphs = {"spec": {"family": "gaussian", "generator": "generate.random_dag_gaussian"}, "name": "graph-p{p}"}
    graphs["sweeps"] = {"n": {"varies": "p", "parameters": {"p": [8], "m": 100, "density": 0.2, "seed": 0}}}
    config["datasets"] = {"tiny": config["datasets"]["tiny"]}
    config["settings"] = {"gaussian": {"stable-serial": {}, "slow": {}}}
    config["experiments"] = {"cupc_fig10": {"large": True, "settings": ["stable-serial"], "graphs": graphs}}
    table = {"varies": "k_cmi", "k_cmi": [7], "samples": 60, "permutations": 5}
    both = {"gpucmiknn-single": {}, "cmiknn-serial": {}}
    config["ci_tests"] = {"tests": 1, "tables": {"cmiknn_table1": table}, "implementations": both}


@pytest.mark.slow
def test_a_recording_goes_on_and_is_published(tmp_path):
    """A part of it is measured first, as if the first call had been interrupted, by several jobs at a time."""
    config = variant(tmp_path / "config.yaml", small)
    several = ("--resources", "gpu=2", "timing_slot=3", "--")
    snakemake(tmp_path, config, *several, "results/verification/graph-p8.csv")
    assert not list(tmp_path.glob("results/problems/graph-p8.np?")), "a large problem is removed when it is verified"
    assert (tmp_path / "results/problems/graph-p8.json").is_file()
    measured = (tmp_path / "results/records/graph-p8/stable-serial.json").stat().st_mtime_ns
    snakemake(tmp_path, config, *several, "record")
    assert (tmp_path / "results/records/graph-p8/stable-serial.json").stat().st_mtime_ns == measured
    assert record(tmp_path, "tiny", "slow")["status"] == "ok"
    single = load_tests(tmp_path / "results/tests/cmiknn_table1.json")["cells"]
    assert {cell["backend"]: cell["status"] for cell in single} == {"cpu": "ok", "host": "ok"}
    assert "Nothing to be done" in snakemake(tmp_path, config, *several[:-1], "--dry-run", "record")
    device = tmp_path / "device"
    publish(tmp_path / "results", device)
    assert check(device) == []
    published = open_published(device)
    assert {("tiny", "stable-serial"), ("tiny", "slow"), ("graph-p8", "stable-serial")} == set(published)
    assert published.verification("graph-p8", "stable-serial")["status"] == "alone"
    (plan,) = recorded_plans({"recorded": [str(device)]})
    assert plan.recorded_source(entries()["cupc_fig10"]).runs == [("graph-p8", "stable-serial")]
