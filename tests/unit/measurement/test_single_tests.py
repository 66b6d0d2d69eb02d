"""Timing single tests: the protocol with made-up tests, then the real ones; what is killed, kept and compared."""

import dataclasses
import io
import sys

import numpy as np
import pytest

from gpupc_impl.core import registry
from gpupc_impl.core.family import get_family
from gpupc_impl.measurement.bench import Bench, Setting
from gpupc_impl.measurement.record import InvalidRecord, Limits, load_tests, save_tests, schema_of_tests
from gpupc_impl.measurement.single_tests import Case, draw_tests, measure_tests
from gpupc_impl.verification.single_tests import verify_tests
from tests.inside import start_inside

PLUGIN = """
import os, time
from gpupc_impl.core.registry import Parameter, method

def open_test(problem, backend, params):
    made = []
    def test(i, j, members):
        made.append(1)
        if len(made) - 1 == params["sleep_at"] and problem.n_variables == 3:
            time.sleep(60)
        with open(os.environ["TOLD"], "a") as file:
            file.write(f"{i} {j} {members} {problem.n_variables}\\n")
        return (i + j) / 100 + params["more"]
    return test

for name in ("made-up", "made-up-too"):
    @method(name, family="gaussian", backends=("cpu",), source="a test", summary="a test", reference=True,
            open_test=open_test, params={"sleep_at": Parameter(-1, "hang in this run"),
                                         "more": Parameter(0.0, "added to the answer")})
    def solve(problem, run):
        raise AssertionError("only its single test is timed")
"""


BENCH = Bench("host", threads=1, log=io.StringIO())
"""What can run here is found out once for all tests."""


@pytest.fixture
def plugin(tmp_path, monkeypatch, own_methods):
    """Two methods whose tests are made up, known here and in the processes that are started."""
    (tmp_path / "madeup.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("GPUPC_PLUGINS", "madeup")
    monkeypatch.setenv("TOLD", str(tmp_path / "told"))
    sys.modules.pop("madeup", None)
    registry._discover.cache_clear()
    registry.methods()
    yield tmp_path / "told"
    registry._discover.cache_clear()


@pytest.fixture
def inside(monkeypatch):
    """Workers are no processes: for tests in which nothing ends one."""
    monkeypatch.setattr(Bench, "start_worker", start_inside)


def case(folder, p, tests, **facts):
    path = folder / f"problem-{p}.npz"
    get_family("gaussian").problem.from_data(np.random.default_rng(p).normal(size=(20, p))).save(path)
    return Case(path, tests, facts)


def measure(folder, cases, implementations, time_limit_s=30.0):
    lines = []
    limited = [dataclasses.replace(each, limits=Limits(time_s=time_limit_s)) for each in implementations]
    return measure_tests(cases, limited, BENCH, store=folder / "samples", progress=lines.append), lines


def test_cells_take_turns_after_a_cold_run_each(inside, tmp_path, plugin):
    tests = [(0, 1, (2,)), (2, 0, (1,))]
    both = [Setting("a", "made-up"), Setting("b", "made-up-too")]
    timed, lines = measure(tmp_path, [[case(tmp_path, 3, tests, n=3), case(tmp_path, 4, tests, n=4)]], both)
    assert plugin.read_text().splitlines() == [
        f"{i} {j} {members} {p}" for i, j, members in (tests[0], *tests) for p in (3, 4) for _ in both
    ]
    assert [(cell["implementation"], cell["n"], cell["status"]) for cell in timed["cells"]] == [
        *(("a", 3, "ok"), ("b", 3, "ok"), ("a", 4, "ok"), ("b", 4, "ok"))
    ]
    assert all(len(cell["seconds"]) == 2 and cell["cold_s"] > 0 for cell in timed["cells"])
    assert timed["cells"][0]["p_values"] == [0.01, 0.02]
    assert len(lines) == 4
    assert timed["environments"].keys() == {"cpu"}
    assert {row["status"] for row in verify_tests(timed["cells"])} == {"equal"}


def test_an_implementation_is_not_timed_where_it_is_left_out(inside, tmp_path, plugin):
    cases = [dataclasses.replace(case(tmp_path, 3, [(0, 1, ())], n=3), left_out=["b"])]
    timed, _ = measure(tmp_path, [cases], [Setting("a", "made-up"), Setting("b", "made-up-too")])
    assert [(cell["implementation"], cell["status"]) for cell in timed["cells"]] == [("a", "ok"), ("b", "skipped")]
    assert timed["cells"][1]["why"] == "the config times this implementation on other cells"
    assert len(plugin.read_text().splitlines()) == 2  # a cold and a warm run of one implementation


def test_samples_are_kept_and_what_is_missing_is_measured(inside, tmp_path, plugin):
    tests = [(0, 1, ()), (1, 2, ()), (0, 2, ())]
    cases = [[case(tmp_path, 3, tests)]]
    first, _ = measure(tmp_path, cases, [Setting("a", "made-up")])
    (folder,) = (tmp_path / "samples").iterdir()
    plugin.unlink()
    assert measure(tmp_path, cases, [Setting("a", "made-up")])[0]["cells"] == first["cells"]
    assert not plugin.exists()
    for number in (2, 3):  # as if killed before these
        (folder / f"sample-{number}.json").unlink()
    again, _ = measure(tmp_path, cases, [Setting("a", "made-up")])
    assert again["cells"][0]["seconds"][0] == first["cells"][0]["seconds"][0]
    assert len(again["cells"][0]["seconds"]) == 3
    assert plugin.read_text().splitlines() == ["0 1 () 3", "1 2 () 3", "0 2 () 3"]  # the first to warm up


def test_a_cell_over_its_limit_costs_the_others_nothing(tmp_path, plugin):
    tests = [(0, 1, ()), (1, 2, ())]
    slow = Setting("slow", "made-up", {"sleep_at": 1})  # its process, with both problems, is killed
    cases = [[case(tmp_path, 4, tests, n=4), case(tmp_path, 3, tests, n=3)]]
    timed, _ = measure(tmp_path, cases, [slow, Setting("b", "made-up-too")], time_limit_s=2.0)
    status = {(cell["implementation"], cell["n"]): cell["status"] for cell in timed["cells"]}
    assert status == {("slow", 3): "timeout", ("b", 3): "ok", ("slow", 4): "ok", ("b", 4): "ok"}
    late = timed["cells"][2]
    assert "over the time limit of 2 s for a cell: 0 of 2 tests were made" in late["why"]
    assert [row["status"] for row in verify_tests(timed["cells"])] == ["equal", "equal", "not-run", "alone"]


def test_files_fit_their_schema(inside, tmp_path, plugin):
    cases = [[case(tmp_path, 3, [(0, 1, ())], samples=20)]]
    timed, _ = measure(tmp_path, cases, [Setting("a", "made-up"), Setting("b", "made-up-too")])
    content = timed | {"source": {"20": "made up"}}
    save_tests(content, tmp_path / "table.json")
    assert load_tests(tmp_path / "table.json") == content
    content["cells"][0]["status"] = "fine"
    with pytest.raises(InvalidRecord, match=r"other\.json is not a valid record: at \$\.cells\[0\]\.status"):
        save_tests(content, tmp_path / "other.json")
    assert not (tmp_path / "other.json").exists()
    keys = schema_of_tests()["properties"]
    assert all("description" in node for node in (*keys.values(), *keys["cells"]["items"]["properties"].values()))


def test_another_p_value_is_unexplained_unless_it_is_random(inside, tmp_path, plugin):
    wrong = Setting("wrong", "made-up-too", {"more": 0.5})
    timed, _ = measure(tmp_path, [[case(tmp_path, 3, [(0, 1, ())])]], [Setting("a", "made-up"), wrong])
    rows = {row["setting"]: row for row in verify_tests(timed["cells"])}
    assert (rows["a"]["status"], rows["wrong"]["status"]) == ("equal", "unexplained")
    assert rows["wrong"]["detail"] == "test 0: p = 0.51 and 0.01"
    for cell in timed["cells"]:
        cell["random"] = cell["implementation"] == "wrong"
    assert {row["setting"]: row["status"] for row in verify_tests(timed["cells"])}["wrong"] == "random"


def test_what_is_no_p_value_is_an_error(inside, tmp_path, plugin):
    off = [1.0, -1.0, float("nan")]
    settings = [Setting(f"wrong{more}", "made-up-too", {"more": more}) for more in off] + [Setting("a", "made-up")]
    timed, _ = measure(tmp_path, [[case(tmp_path, 3, [(0, 1, ())])]], settings)
    *wrong, right = timed["cells"]
    for more, cell in zip(off, wrong, strict=True):
        assert cell["status"] == "error"
        assert cell["why"] == f"InvalidAnswer: the p-value of test (0, 1, []) is {0.01 + more}; it must lie in [0, 1]"
    assert right["status"] == "ok"


def test_a_method_without_a_single_test_is_refused(tmp_path):
    with pytest.raises(ValueError, match="a: method 'cupc-s' has no single test to time"):
        measure(tmp_path, [], [Setting("a", "cupc-s")])


@pytest.mark.xdist_group("cmiknn")  # so that only one process compiles the references
def test_every_implementation_of_cmiknn_finds_the_same_p_values(inside, tmp_path):
    path = tmp_path / "problem.npz"
    values = np.random.default_rng(0).normal(size=(60, 5))
    values[:, 1] += values[:, 0]
    get_family("nonlinear").problem.from_data(values, permutations=20, k_cmi=5, k_perm=5).save(path)
    methods = ("cmiknn-serial", "cmiknn-parallel", "gpucmiknn-single")
    found = [Setting(method.partition("-")[2], method) for method in methods]
    timed, _ = measure(tmp_path, [[Case(path, draw_tests(5, 2, 3, 0), {})]], found, time_limit_s=300.0)
    assert [(row["status"], row["compared_with"]) for row in verify_tests(timed["cells"])] == [("equal", "serial")] * 3


def test_a_case_without_a_problem_says_why(inside, tmp_path, plugin):
    none = Case(None, [(0, 1, ())], {"n": 5}, "k_cmi is too large")
    timed, _ = measure(tmp_path, [[none]], [Setting("a", "made-up")])
    assert (timed["cells"][0]["status"], timed["cells"][0]["why"]) == ("skipped", "k_cmi is too large")
