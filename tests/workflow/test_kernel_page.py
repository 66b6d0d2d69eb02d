"""The page of the kernel tests: results that are measured once, and the tables made of them."""

import json

import pytest

from workflow.pages import kernel, kernel_runs


def test_what_a_file_has_is_not_measured_again(tmp_path):
    calls = []
    for k in (1, 2, 2):
        results = kernel_runs.Results(tmp_path, "host")
        results.measure("speed", {"samples": k}, lambda results, k: calls.append(k) or {"seconds": k}, k)
    assert calls == [1, 2]
    assert [line["seconds"] for line in kernel_runs.read(tmp_path)] == [1, 2]


def test_files_of_two_machines_make_one_page(tmp_path):
    lines = {"host": [], "cuda": []}
    for name in kernel_runs.KERNEL_TESTS:
        for first, p in enumerate(([0.04] * 4, [0.5] * 4)):
            own = {"test": name, "first": first, "samples": 200, "p_values": [[value] for value in p]}
            lines["host"] += [own | {"part": part, "device": "a core"} for part in ("calibration", "power")]
    search = {"part": "accuracy", "test": "RCIT", "seconds": 1.0, "device": "a core"}
    lines["host"] += [search | {"graph": graph, "distance": distance} for graph, distance in ((0, 2), (1, 4))]
    shape = {"samples": 1000, "device": "a GPU", "seconds": 0.001, "backend": "cuda", "test": "rcit"}
    found = {"variables": 5, "edges": 4, "tests": 9, "levels": 2}
    lines["cuda"] = [
        shape | {"part": "speed", "level": 1, "their_seconds": 0.7, "core": "a core", "threads": 1},
        shape | {"part": "searches", "data": "generated"} | found,
    ]
    for name, own in lines.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in own))
    parts = ("calibration", "power", "accuracy", "speed", "searches")
    page = tmp_path / "page.md"
    page.write_text("\n".join(f"<!-- {part} -->\nold\n<!-- end -->" for part in parts))
    kernel.main([str(tmp_path), "--page", str(page)])
    text = page.read_text()
    assert "old" not in text
    assert "| RCIT | 200 | 3 | 2 | 50.0 % | 0.0 % | 0.500 |" in text
    assert "| RCIT | 2 | 1 | 3.0 ± 1.0 |" in text
    assert "| RCIT | 1,000 | 1 | a core | 700 | a GPU | 1 | 700 |" in text
    assert "| generated | RCIT | a GPU | 5 | 1,000 | 9 | 2 | 4 | 0.001 |" in text
    with pytest.raises(SystemExit):
        kernel.main([str(tmp_path), "--parts", "weather"])
