"""Settings measured side by side: whatever one does, each gets its record, and nothing is measured twice."""

import dataclasses
import functools
import io
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter

import numpy as np
import psutil
import pytest

from gpupc_impl import GaussianProblem, Skeleton
from gpupc_impl.core import registry
from gpupc_impl.core.family import load_problem
from gpupc_impl.core.registry import get_method
from gpupc_impl.core.result import SeparatingSets
from gpupc_impl.core.solve import solve
from gpupc_impl.measurement import bench
from gpupc_impl.measurement.__main__ import main, parse_setting
from gpupc_impl.measurement.bench import Bench, Setting
from gpupc_impl.measurement.record import Limits, Record
from gpupc_impl.measurement.skeletons import MeasurementRequest, measure_side_by_side
from gpupc_impl.measurement.worker import InvalidAnswer, check_answer
from tests.inside import start_inside

PLANTED = textwrap.dedent('''
    """Methods that behave and methods that do not. Each run of theirs leaves a line in the file PLANTED_RUNS."""
    import ctypes, dataclasses, os, signal, stat, sys, time
    from collections import Counter
    import numpy as np
    from gpupc_impl.backends import DeviceMemoryError
    from gpupc_impl.core.registry import Parameter, method
    from gpupc_impl.core.result import SeparatingSets, Skeleton

    RUNS = Counter()

    def planted(name, **options):
        def register(behave):
            def solve(problem, run):
                RUNS[name] += 1
                with open(os.environ["PLANTED_RUNS"], "a") as file:
                    file.write(name + "\\n")
                p = problem.n_variables
                adjacency = ~np.eye(p, dtype=bool)
                removed = behave(run, RUNS[name]) or [(0, 1, 2)]
                for i, j, _ in removed:
                    adjacency[i, j] = adjacency[j, i] = False
                sets = [(np.array([[i, j]]), np.array([[k]])) for i, j, k in removed]
                return Skeleton(
                    adjacency, SeparatingSets.from_levels(adjacency, sets), problem.names,
                    (10, 20), (15, 14), (0.1, 0.2), 2, "complete", facts=dict(run.facts),
                )
            solve.__module__ = __name__
            fixed = {"family": "gaussian", "source": "", "summary": "", "backends": ("cpu",)}
            method("planted-" + name, **{**fixed, **options})(solve)
            return behave
        return register

    @planted("good", params={"sleep": Parameter(0.0, "seconds")}, reference=True)
    def good(run, number):
        print("working")
        time.sleep(run.params["sleep"])

    @planted("other")
    def other(run, number):
        pass

    @planted("spins")
    def spins(run, number):
        ctypes.PyDLL(None).sleep(600)

    @planted("eats")
    def eats(run, number):
        eaten = []
        while True:
            eaten.append(b"x" * (1 << 20))

    @planted("device-memory")
    def device_memory(run, number):
        raise DeviceMemoryError(1000, 10, 500)

    @planted("raises")
    def raises(run, number):
        raise RuntimeError("the wheel came off")

    @planted("raises-later")
    def raises_later(run, number):
        if number > 2:
            raise RuntimeError("the wheel came off later")

    @planted("other-edges")
    def other_edges(run, number):
        return [(0, 1 + number % 2, 3)]

    @planted("other-sets")
    def other_sets(run, number):
        return [(0, 1, 2 + number % 2)]

    @planted("own-sets", canonical=False)
    def own_sets(run, number):
        return [(0, 1, 2 + number % 2)]

    @planted("unavailable", unavailable=lambda: "needs a unicorn; none is tethered here")
    def unavailable(run, number):
        pass

    @planted("discrete", family="discrete")
    def discrete(run, number):
        pass

    from gpupc_impl.core import registry
    SOLVE = registry._METHODS["planted-other"].solve

    def not_a_skeleton(problem, run):
        return [1]
    method("planted-not-a-skeleton", family="gaussian", source="", summary="", backends=("cpu",))(not_a_skeleton)

    def changes_arrays(problem, run):
        found = SOLVE(problem, run)
        problem.correlation.setflags(write=True)
        problem.correlation[0, 1] = problem.correlation[1, 0] = 0.5
        return found
    method("planted-changes-arrays", family="gaussian", source="", summary="", backends=("cpu",))(changes_arrays)

    @planted("kernels", backends=("cuda", "host"))
    def kernels(run, number):
        return [(0, 1, 2)]

    @planted("kernels-that-crash", backends=("cuda", "host"))
    def kernels_that_crash(run, number):
        ctypes.string_at(0)
''')
LIMITS = Limits(time_s=60)
COMPLETE = ~np.eye(6, dtype=bool)


@pytest.fixture(scope="module", autouse=True)
def plugin(tmp_path_factory):
    """The planted methods, known here and in every process started from here."""
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "planted_methods.py").write_text(PLANTED)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setenv("GPUPC_PLUGINS", "planted_methods")
        patch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *filter(None, sys.path)]))
        registry._discover.cache_clear()
        yield
    for name in [name for name in registry._METHODS if name.startswith("planted-")]:
        del registry._METHODS[name]
    del sys.modules["planted_methods"]
    registry._discover.cache_clear()


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """How often each planted method ran, as a function."""
    path = tmp_path / "runs.txt"
    monkeypatch.setenv("PLANTED_RUNS", str(path))
    return lambda: Counter(path.read_text().split()) if path.exists() else Counter()


@pytest.fixture
def inside(monkeypatch):
    """Workers are no processes: for tests in which nothing ends one."""
    monkeypatch.setattr(Bench, "start_worker", start_inside)
    registry.get_method("planted-good")
    sys.modules["planted_methods"].RUNS.clear()


@pytest.fixture
def problem(tmp_path):
    path = tmp_path / "problem.npz"
    GaussianProblem.from_data(np.random.default_rng(0).normal(size=(20, 6))).save(path)
    return path


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


@pytest.fixture(scope="module")
def benches(plugin):
    """By number of threads: what can run here is found out once for all tests."""
    return functools.cache(lambda threads: Bench("host", threads))


@pytest.fixture
def run(problem, out, runs, benches):
    """Measure settings with this test's problem and folder; the events and the log are kept on the function."""

    def run(settings, **options):
        run.events, run.log = [], io.StringIO()
        given = {"dataset": {"name": "tiny"}, "out_dir": out, "store": out / "samples"}
        bench = options.pop("bench", None) or benches(options.pop("threads", None))
        bench.log = run.log
        plan = MeasurementRequest(settings=settings, **{"problem_path": problem, **given, **options})
        result = measure_side_by_side(plan, bench, progress=run.events.append)
        assert not [child for child in psutil.Process().children() if "measurement.worker" in " ".join(child.cmdline())]
        return result

    return run


def setting(name, **options):
    return Setting(name, f"planted-{name}", **{"limits": LIMITS, **options})


def check_records(found, expected, out):
    assert list(found) == list(expected)
    assert {path.stem: Record.load(path) for path in out.glob("*.json")} == found
    for name, (status, why) in expected.items():
        record = found[name]
        assert record.status == status, (name, record.why)
        assert record.why is None if why is None else why in record.why
        assert (out / f"{name}.npz").exists() == (record.result is not None) == (status == "ok")


def test_whatever_happens_becomes_a_record(run, out):
    expected = {
        "good": ("ok", None),
        "spins": ("timeout", "no answer within the time limit of 1 s"),
        "eats": ("oom", "over its limit of 400,000,000 bytes"),
        "raises": ("error", "RuntimeError: the wheel came off"),
    }
    own = {"spins": Limits(time_s=1), "eats": Limits(time_s=60, memory_bytes=400_000_000)}
    found = run([setting(name, limits=own.get(name, LIMITS)) for name in expected], repeats=2)
    check_records(found, expected, out)
    assert found["spins"].limits.time_s == 1
    assert found["good"].limits.time_s == 60
    assert "[raises] RuntimeError: the wheel came off" in run.log.getvalue()
    assert "[good] working" in run.log.getvalue()


def test_whatever_is_answered_becomes_a_record(inside, run, out):
    expected = {
        "device-memory": ("oom", "1,000 bytes asked for with 10 of 500 bytes in use"),
        "raises-later": ("error", "RuntimeError: the wheel came off later"),
        "other-edges": ("error", "two runs gave different answers: the skeletons of the cold run (14 edges) and of"),
        "other-sets": ("error", "two runs gave different answers: the separating sets of the cold run"),
        "own-sets": ("ok", None),
        "unavailable": ("skipped", "needs a unicorn; none is tethered here"),
        "discrete": ("skipped", "solves discrete problems, not gaussian ones"),
        "other": ("ok", None),
    }
    found = run([setting(name) for name in expected], repeats=2)
    check_records(found, expected, out)
    assert len(found["raises-later"].time_s.warm) == 1
    assert not found["own-sets"].canonical
    budget = Limits(time_s=60, device_memory_bytes=500)
    refused = run([Setting("budget", "cupc-s", limits=budget)])["budget"]
    assert (refused.status, refused.out_of_memory) == ("refused", True)
    assert "of 500 bytes in use" in refused.why


INVALID = {
    "not-a-skeleton": "it returned a list, not a Skeleton",
    "changes-arrays": "it changed the arrays of the problem that it was given",
}


def test_what_is_no_skeleton_of_the_problem_is_an_error(inside, run):
    found = run([setting(name) for name in [*INVALID, "good"]], repeats=1)
    for name in INVALID:
        assert found[name].status == "error"
        assert found[name].why.startswith(f"InvalidAnswer: {INVALID[name]}"), name
    assert found["good"].status == "ok"


def test_rounds_samples_and_skeleton(inside, run, out, runs):
    settings = [setting("good", params={"sleep": 0.01}), setting("other", separating_sets="first-come")]
    found = run(settings, repeats=2, threads=1)
    stages = [tuple(event.split(": ")[:2]) for event in run.events if ": done: " not in event]
    runs_of_each = ("cold", "repeat 1 of 2", "repeat 2 of 2")
    assert stages == [(name, stage) for stage in runs_of_each for name in ("good", "other")]
    assert runs() == {"good": 3, "other": 3}
    record = found["good"]
    assert record.params == {"sleep": 0.01}
    assert record.reference
    assert record.canonical
    assert not found["other"].canonical
    assert record.backend == "cpu"
    assert record.environment["device"] is None
    assert record.environment["threads"] == 1
    times = record.time_s
    assert len(times.warm) == 2
    assert times.levels == [[0.1, 0.2]] * 2
    assert min(times.cold, *times.warm) >= 0.01
    assert record.peak_bytes.process > 1_000_000
    assert record.peak_bytes.device is None
    skeleton = Skeleton.load(out / "good.npz")
    assert (skeleton.n_edges, skeleton.sha256) == (record.result.edges, record.result.skeleton_sha256)
    assert skeleton.sepsets.sha256 == record.result.sepsets_sha256
    assert skeleton.facts["method"] == "planted-good"


def test_what_can_run_here_is_asked_once_and_workers_start_together(inside, problem, out, runs, monkeypatch):
    started = []
    start = Bench.start_worker
    monkeypatch.setattr(Bench, "start_worker", lambda *given: [started.append(given[1]), start(*given)][1])
    bench, settings = Bench("host", log=io.StringIO()), [setting("good"), setting("other")]
    for number in range(2):
        folders = dict.fromkeys(("out_dir", "store"), out / str(number))
        plan = MeasurementRequest(problem_path=problem, dataset={"name": "tiny"}, settings=settings, **folders)
        measure_side_by_side(plan, bench, progress=lambda event: started.append(event.split(": ")[1]))
    assert started[:3] == ["good", "other", "cold"]
    assert started.count("good") == 2
    with bench.open():  # as for the data sets of a job
        for number in range(2, 4):
            plan = dataclasses.replace(plan, out_dir=out / str(number), store=out / str(number))
            measure_side_by_side(plan, bench, progress=lambda event: None)
    assert started.count("good") == 3


def test_kernels_share_a_process_until_one_of_them_crashes(run, monkeypatch):
    started, start = [], Bench.start_worker
    monkeypatch.setattr(Bench, "start_worker", lambda *given: [started.append(given[1]), start(*given)][1])
    first, last = (Setting(name, "planted-kernels", limits=LIMITS) for name in ("first", "last"))
    found = run([first, setting("kernels-that-crash"), last], repeats=1, bench=Bench("host"))
    assert [record.status for record in found.values()] == ["ok", "killed", "ok"]
    assert started == [bench.SHARED, bench.SHARED]
    stages = [tuple(event.split(": ")[:2]) for event in run.events if not re.search(": (cold|done): ", event)]
    assert stages == [("first", "warm-up"), ("first", "repeat 1 of 1"), ("last", "repeat 1 of 1")]
    assert all(found[name].peak_bytes.process > 1_000_000 for name in ("first", "last"))


def test_long_runs_get_one_repeat_and_settings_may_be_finished_one_by_one(inside, run):
    settings = [setting("good", params={"sleep": 0.05}), setting("other")]
    found = run(settings, long_run_s=0.05, repeats=3, side_by_side=1)
    assert len(found["good"].time_s.warm) == 1
    assert len(found["other"].time_s.warm) == 3
    assert [event.split(": ")[0] for event in run.events] == ["good"] * 3 + ["other"] * 5


def test_nothing_is_measured_twice(inside, run, out, runs):
    first = run([setting("good")], repeats=2)["good"]
    assert first.reused_samples == 0
    again = run([setting("good"), setting("other")], repeats=2)
    assert runs() == {"good": 3, "other": 3}, "adding a setting measures that one only"
    assert again["good"] == dataclasses.replace(first, reused_samples=3, environment=again["good"].environment)
    more = run([setting("good")], repeats=4)["good"]
    assert runs()["good"] == 3 + 1 + 2, "a warm-up and what was missing"
    assert more.time_s.warm[:2] == first.time_s.warm
    assert more.reused_samples == 3
    assert [event.split(": ")[1] for event in run.events] == ["warm-up", "repeat 3 of 4", "repeat 4 of 4", "done"]
    fewer = run([setting("good")], repeats=1)["good"]
    assert fewer.time_s.warm == first.time_s.warm[:1]
    assert fewer.reused_samples == 2
    run([Setting("good", "planted-good", params={"sleep": 0.001})], repeats=1)
    assert runs()["good"] == 6 + 2, "other parameters are another setting"


def test_hit_limits_are_remembered(run, runs):
    first, again = (run([setting("spins", limits=Limits(time_s=0.4))])["spins"] for _ in range(2))
    assert runs() == {"spins": 1}
    of_its_own = {name: getattr(again, name) for name in ("peak_bytes", "environment")}  # when it began
    assert again == dataclasses.replace(first, reused_samples=1, **of_its_own)
    run([setting("spins", limits=Limits(time_s=0.5))])
    assert runs()["spins"] == 2, "another limit is another question"


def test_other_failures_are_not_remembered(inside, run, runs):
    for _ in range(2):
        run([setting("raises")])
    assert runs() == {"raises": 2}


def test_a_stored_run_over_the_limit_of_today_is_no_answer(run, monkeypatch):
    slow = {"params": {"sleep": 0.4}}
    with monkeypatch.context() as patch:
        patch.setattr(Bench, "start_worker", start_inside)
        assert run([setting("good", **slow)], repeats=1)["good"].status == "ok"
    assert run([setting("good", **slow, limits=Limits(time_s=0.2))], repeats=1)["good"].status == "timeout"


def test_damaged_samples_are_measured_again(inside, run, out, runs):
    run([setting("good")], repeats=3)
    (folder,) = (out / "samples").iterdir()
    sample = folder / "sample-2.json"
    sample.write_text(sample.read_text()[:20])
    (folder / ".skeleton.1.npz").write_text("half a file that a killed process left behind")
    assert run([setting("good")], repeats=3)["good"].reused_samples == 2
    assert runs()["good"] == 4 + 1 + 2
    assert not (folder / ".skeleton.1.npz").exists()
    (folder / "skeleton.npz").unlink()
    assert run([setting("good")], repeats=3)["good"].reused_samples == 0


def coordinator(problem, out, settings, repeats, bench):
    """The command of a process that measures these settings with this bench, both written as an expression."""
    code = textwrap.dedent(f"""
        from pathlib import Path
        from gpupc_impl.measurement.bench import Bench, Setting
        from gpupc_impl.measurement.record import Limits
        from gpupc_impl.measurement.skeletons import MeasurementRequest, measure_side_by_side
        problem, out, facts = Path({str(problem)!r}), Path({str(out)!r}), {{"name": "tiny"}}
        how = {{"out_dir": out, "store": out / "samples", "repeats": {repeats}}}
        plan = MeasurementRequest(problem_path=problem, dataset=facts, settings={settings}, **how)
        measure_side_by_side(plan, {bench}, progress=str)
    """)
    return [sys.executable, "-c", code]


def test_a_killed_measurement_goes_on_where_it_was(problem, out, runs):
    settings = '[Setting(name, "planted-good", {"sleep": sleep}) for name, sleep in (("a", 0.1), ("b", 0.11))]'
    command = coordinator(problem, out, settings, 4, 'Bench("auto")')
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    give_up = time.monotonic() + 60
    while runs()["good"] < 5 and time.monotonic() < give_up:
        time.sleep(0.01)
    workers = [child for child in process_children(process.pid) if "measurement.worker" in " ".join(child.cmdline())]
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert len(workers) == 4, "each with its guard"
    psutil.wait_procs(workers, timeout=30)
    assert not any(worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE for worker in workers)
    killed_after = runs()["good"]
    kept = len(list((out / "samples").rglob("sample-*.json")))
    assert killed_after - 1 <= kept <= killed_after
    assert 4 <= kept < 10
    assert not list(out.glob("[!.]*.json"))
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    found = list(map(Record.load, out.glob("[!.]*.json")))
    assert [record.status for record in found] == ["ok", "ok"]
    assert all(len(record.time_s.warm) == 4 for record in found)
    assert sum(record.reused_samples for record in found) == kept
    assert runs()["good"] - killed_after == (10 - kept) + 2, "what was missing, and a warm-up each"


def test_a_setting_that_ends_its_job_twice_is_not_run_again(problem, out, runs, monkeypatch):
    """As under a scheduler: the whole job is killed, and tried again as the next attempt, here on another node."""
    settings = '[Setting(name, f"planted-{name}", limits=Limits(time_s=300)) for name in ("good", "spins")]'
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    for number in (1, 2):
        monkeypatch.setenv("SLURMD_NODENAME", f"n{number}")
        command = coordinator(problem, out, settings, 1, f'Bench("host", attempt={number})')
        job = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        give_up = time.monotonic() + 60
        while runs()["spins"] < number and time.monotonic() < give_up:
            time.sleep(0.01)
        workers = process_children(job.pid)
        job.kill()
        job.wait()
        psutil.wait_procs(workers, timeout=30)
    settings, how = [setting("good"), setting("spins")], {"out_dir": out, "store": out / "samples", "repeats": 1}
    plan = MeasurementRequest(problem_path=problem, dataset={"name": "tiny"}, settings=settings, **how)
    found = measure_side_by_side(plan, Bench("host", log=io.StringIO(), attempt=3), progress=lambda event: None)
    assert runs()["spins"] == 2
    why = "the job that measured it was ended in 2 attempts while it ran, the last time job 17 on node n2; the"
    assert (found["spins"].status, found["spins"].why) == ("killed", f"{why} scheduler's records say why")
    assert (found["good"].status, found["good"].environment["node"]) == ("ok", "n2")
    assert found["good"].reused_samples == 1, "the cold run of the attempt on the same node"


def process_children(pid):
    return psutil.Process(pid).children(recursive=True)


def test_a_backend_that_does_not_open_costs_only_its_methods(inside, run, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    found = run([setting("kernels"), setting("good")], repeats=1, bench=Bench("host"))
    assert (found["kernels"].status, found["kernels"].backend) == ("skipped", "host")
    assert "no-such-compiler" in found["kernels"].why
    assert found["good"].status == "ok"


def test_what_is_not_measured_has_a_record_that_says_why(inside, run, out, runs):
    both = [setting("good"), setting("other")]
    found = run(both, skipped={"other": "nobody asked for it"}, repeats=1)
    assert [(name, record.status, record.why) for name, record in found.items()] == [
        ("good", "ok", None),
        ("other", "skipped", "nobody asked for it"),
    ]
    assert found["other"].problem == found["good"].problem
    assert found["other"].time_s.cold is None
    assert runs() == {"good": 2}
    none = run(both, problem_path=None, skipped=dict.fromkeys(("good", "other"), "the data are gone"))
    assert {record.why for record in none.values()} == {"the data are gone"}
    assert {record.problem for record in none.values()} == {None}
    assert Record.load(out / "good.json") == none["good"]
    assert not (out / "good.npz").exists()


@pytest.mark.parametrize(
    ("settings", "options", "message"),
    [
        ([Setting("a", "planted-nothing")], {}, "'planted-nothing' is not known"),
        ([setting("good", params={"speed": 1})], {}, "no parameter 'speed'"),
        ([setting("good"), setting("good")], {}, "different names"),
        ([Setting("../a", "planted-good")], {}, "cannot name a file"),
        ([setting("good", separating_sets="any")], {}, "'any'; choose one of: canonical, first-come"),
        ([setting("good")], {"repeats": 0}, "at least 1"),
        ([setting("good")], {"side_by_side": 0}, "side_by_side is 0; it must be at least 1"),
        ([setting("good")], {"threads": 100_000}, "threads is 100000"),
        ([setting("good")], {"problem_path": None}, "no problem to measure other, good on"),
    ],
)
def test_what_cannot_mean_anything_is_refused(run, runs, settings, options, message):
    with pytest.raises(ValueError, match=message):
        run([setting("other"), *settings], **options)
    assert not runs()


def test_a_setting_from_the_command_line():
    found = parse_setting("cupc-s:theta=128,separating_sets=first-come", LIMITS)
    assert found == Setting("cupc-s_theta128_first-come", "cupc-s", {"theta": "128"}, "first-come", LIMITS)
    assert parse_setting("out-of-core-block:timeline=a/b.csv", LIMITS).name == "out-of-core-block_timelinea_b.csv"


def test_command_line(problem, out, runs, capsys):
    arguments = [str(problem), "--method", "planted-good:sleep=0.01", "--method", "planted-raises", "--out", str(out)]
    assert main([*arguments, "--repeats", "2", "--time-limit", "30"]) == 0
    printed = capsys.readouterr()
    header, good, raises, why = printed.out.splitlines()
    assert header.split()[:2] == ["setting", "status"]
    assert good.split()[:2] == ["planted-good_sleep0.01", "ok"]
    assert good.split()[-2:] == ["1x", "14"]
    assert raises.split()[:2] == ["planted-raises", "error"]
    assert why == "planted-raises: error: RuntimeError: the wheel came off"
    assert "planted-good_sleep0.01: repeat 2 of 2: " in printed.err
    assert json.loads((out / "planted-raises.json").read_text())["status"] == "error"
    with pytest.raises(SystemExit):
        main([str(problem), "--method", "planted-nothing"])
    assert "'planted-nothing' is not known" in capsys.readouterr().err


def test_failing_to_find_out_what_can_run_is_a_record_too(run, monkeypatch):
    monkeypatch.setattr(bench, "START_LIMIT_S", 0.01)
    for record in run([setting("kernels"), setting("good")], bench=Bench("host")).values():
        assert record.status == "timeout"
        assert record.why.startswith("finding out what can run here failed: no answer within")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"names": tuple("fedcba")}, "the names of its skeleton are not those of the problem's variables"),
        ({"adjacency": np.zeros((6, 5), bool)}, r"adjacency is bool \(6, 5\); it must be an array of bool of shape"),
        ({"sepsets": {}}, "sepsets is a dict, not SeparatingSets"),
        (
            {"adjacency": COMPLETE, "sepsets": SeparatingSets(COMPLETE, np.int32([[0, 2]]), 1, np.int32([1]))},
            r"\[0, 2\] is an edge, and has a separating set",
        ),
        ({"facts": {"problem": {"alpha": 0.05}}}, r"facts\['problem'\] is {'alpha': 0.05}"),
    ],
)
def test_what_is_wrong_with_an_answer_is_said(problem, change, message):
    loaded = load_problem(problem)
    right = solve(loaded, get_method("stable-serial"), None)
    check_answer(right, loaded)
    with pytest.raises(InvalidAnswer, match=message):
        check_answer(dataclasses.replace(right, **change), loaded)
