"""Numbers, labels and notes of tables."""

import pytest

from gpupc_impl.reporting import cells


def test_numbers_have_three_digits():
    assert [cells.number(x) for x in (0, 0.01234, 1.0, 45.67, 1297.4, 265360)] == [
        *("0", "0.0123", "1.00", "45.7", "1,297", "265,360")
    ]


@pytest.mark.parametrize(
    ("setting", "name"),
    [
        ("cupc-e", "cuPC-E"),
        ("cupc-e-first-come", "cuPC-E, first-come"),
        ("cupc-s-pseudo", "cuPC-S, Algorithm 7"),
        ("cupc-e-2-32", "cuPC-E-2-32"),
        ("gpupc-paper", "gpuPC, counting samples"),
        ("disc-cupc-paper-wide", "disc-cuPC, 32-bit codes"),
        ("gpucmiknn-parallel-insertion", "GPU-CMIknn-Parallel, insertion"),
        ("gpucmiknn-authors-single", "GPU-CMIknn, authors' program, single"),
        ("gpucsl-discrete", "GPUCSL"),
        ("stable-serial", "stable-serial"),
        ("cupc-extra", "cupc-extra"),
    ],
)
def test_a_setting_has_its_method_s_name_and_what_its_own_adds(setting, name):
    assert cells.label(setting) == name
    assert cells.label(setting, "cuda") == f"{name} (cuda)"


def record(dataset, setting, status):
    ok = status == "ok"
    return {
        **{"setting": setting, "method": setting[:6], "family": "gaussian", "reference": False, "backend": "host"},
        **{"dataset": {"name": dataset}, "status": status, "why": None if ok else "too large"},
        **{"time_s": {"warm": [1.0] if ok else []}, "result": {} if ok else None},
        "environment": {"device": {"device": "Some CPU", "threads": 2}},
    }


def test_names_with_commas_are_separated_by_slashes(load):
    names = ("cupc-e-first-come", "cupc-s-first-come")
    records = [record("d", name, "ok") for name in names] + [record("wide", name, "oom") for name in names]
    runs = load(records)
    both = "cuPC-E, first-come / cuPC-S, first-come"
    assert cells.places(runs) == [f"Backend host: Some CPU, 2 threads ({both})."]
    assert cells.remarks(runs) == [f"wide oom: {both}: too large"]
