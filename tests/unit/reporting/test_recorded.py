"""The published runs of the project are valid, and all methods found the same."""

from pathlib import Path

import pytest

from gpupc_impl.measurement.publish import check, differing_answers, stale_runs, unknown_origins
from gpupc_impl.measurement.published import open_published
from gpupc_impl.verification.known_differences import KNOWN_DIFFERENCES

ROOT = Path(__file__).parents[3]
DEVICES = sorted(path.parent for path in (ROOT / "results/recorded").glob("*/machines.json"))
GPUS = [device for device in DEVICES if "backend: cuda\n" in (device / "config.yaml").read_text(encoding="utf-8")]


@pytest.mark.parametrize("device", DEVICES, ids=lambda path: path.name)
def test_published_runs_are_valid_and_in_few_files(device):
    # The commit of 19 runs is lost; they stay until a new recording replaces them.
    lost = "ca3cb440a5619ec094758a65a23a6298adfd4403 is not in the history"
    assert check(device) == []
    assert [fault for fault in unknown_origins(device) if lost not in fault] == []
    assert sum(path.is_file() for path in device.rglob("*")) < 150
    for record in open_published(device).records():
        # A run on a GPU was alone there, or is known not to have been; a run that was skipped looked at none.
        if record.backend == "cuda" and record.status != "skipped":
            others = record.environment["gpu"]["others_on_gpu"]
            assert others is any("another process used" in said for said in record.environment["warnings"])


def test_all_methods_found_the_same_on_all_devices():
    """One skeleton a problem, and one set of separating sets where they are canonical; what differs is known."""
    assert differing_answers(DEVICES) == []
    assert GPUS
    for device in GPUS:
        published = open_published(device)
        for record in published.records():
            known = (record.method, record.dataset, record.edges) in KNOWN_DIFFERENCES
            verified = published.verification(record.dataset, record.setting)
            of_another_test = verified is not None and verified["status"] == "convention"
            division = published.division(record.dataset, record.setting)
            assert division in ("closed", "alone") or known or of_another_test or record.random or not record.ok


def test_a_release_has_no_stale_run():
    """Between releases the changelog has a section of what is unreleased, and code may be newer than the runs."""
    if "\n## [Unreleased]\n" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"):
        pytest.skip("this is no release")
    assert [stale_runs(device)[0] for device in GPUS] == [[]] * len(GPUS)
