"""What tests of tables and figures share."""

import json

import pytest

from gpupc_impl.core.files import write_csv
from gpupc_impl.measurement.publish import Contents, Run, files_of
from gpupc_impl.measurement.record import Record
from gpupc_impl.reporting import runs
from gpupc_impl.reporting.runs import Source

COMMIT = "0123456789" * 4

TEMPLATE = {
    "schema_version": 1,
    "canonical": True,
    "params": {},
    "separating_sets": "canonical",
    "problem": {"alpha": 0.1, "n_variables": 5, "max_level": None, "fingerprint": "f" * 64},
    "why": None,
    "limits": {"time_s": 60.0, "memory_bytes": None, "device_memory_bytes": None},
    "time_s": {"cold": None, "compile": None, "warm": [], "levels": []},
    "result": {
        **{"edges": 0, "levels_run": 0, "stopped_because": "complete", "edges_per_level": [], "tests_per_level": []},
        **{"undefined_tests": 0, "pseudo_inverses": 0, "skeleton_sha256": "a" * 64, "sepsets_sha256": "b" * 64},
    },
    "peak_bytes": {"process": None, "device": None},
    "code": "c" * 64,
    "reused_samples": 0,
    "environment": {
        **{"git_commit": COMMIT, "git_dirty": False, "platform": "linux", "cpu": "Some CPU", "cores": 2, "threads": 2},
        **{"memory_bytes": 1, "python": "3.12", "packages": {}, "blas": None, "device": None, "gpu": None},
        "warnings": [],
    },
}


def whole(content):
    """A record of which only what matters to a test is given: the rest is as in `TEMPLATE`."""
    found = TEMPLATE | content
    for key, part in TEMPLATE.items():
        if isinstance(part, dict) and key != "params" and found[key] is not None:
            found[key] = part | found[key]
    return found


def one_record(method, seconds, levels=(), **changes):
    """A run of a method on a GPU, or of a reference on cores, with one warm run; without seconds it has no time."""
    cpu, name = method.startswith("stable"), changes.pop("dataset", "nci-60")
    params = {"cupc-e": {"beta": 2, "gamma": 32}, "cupc-s": {"theta": 64, "delta": 2}}.get(method, {})
    times = {"warm": [] if seconds is None else [seconds], "levels": [list(levels)] if levels else []}
    return {
        **{"setting": method, "method": method, "family": "gaussian", "reference": cpu, "params": params},
        **{"backend": "cpu" if cpu else "cuda", "dataset": {"name": name} if isinstance(name, str) else name},
        **{"status": "ok", "result": {"edges": 5}, "time_s": times},
        **changes,
    }


@pytest.fixture
def record():
    """``record(method, seconds, levels, **changes)``: the content of a record."""
    return one_record


@pytest.fixture
def publish():
    """``publish(records, folder, statuses)``: a folder of published runs.

    ``statuses`` are those of the verification by setting; None for runs that were not verified.
    """

    def write(records, folder, statuses=None):
        published, datasets = {}, {}
        for record in map(Record.from_json, map(whole, records)):
            status = (statuses or {}).get(record.setting, "equal")
            row = status and {"status": status, "differing_edges": "0"}
            published[record.dataset, record.setting] = Run(record.family, record, row)
            datasets[record.dataset] = {"name": record.dataset, "problem": record.problem}
        for name, content in files_of(Contents(published, datasets)).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)

    return write


@pytest.fixture
def here(tmp_path):
    """``here(records, statuses, skeletons)``: a source that is this machine, with these records in files.

    ``statuses`` are those of verification.csv by data set and setting, where they are not ``equal`` (without a result
    ``not-run``); ``skeletons`` lie beside the records of their data set and setting.
    """

    def source(records, statuses=None, skeletons=None, backend="host"):
        paths, rows = [], []
        for number, content in enumerate(records):
            key, ok = (content["dataset"]["name"], content["setting"]), content["status"] == "ok"
            paths.append(tmp_path / f"{number}.json")
            paths[-1].write_text(json.dumps(whole(content)))
            if key in (skeletons or {}):
                skeletons[key].save(tmp_path / f"{number}.npz")
            status = (statuses or {}).get(key, "equal" if ok else "not-run")
            row = {"status": status, "differing_edges": 0 if ok else ""}
            rows.append(dict(zip(("dataset", "setting"), key, strict=True)) | row)
        write_csv(tmp_path / "verification.csv", rows)
        return Source(None, backend, {"records": paths, "verification": [tmp_path / "verification.csv"]})

    return source


@pytest.fixture
def load(here):
    """``load(records, statuses, skeletons)``: the records of `here` as tables and figures get them."""
    return lambda *given, **more: runs.load(here(*given, **more))
