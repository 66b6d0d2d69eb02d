"""What tests of tables and figures share."""

import csv
import json

import pytest


@pytest.fixture
def load(tmp_path):
    """``load(records, statuses, skeletons)``: records as tables and figures get them, through files.

    ``statuses`` are those of verification.csv by data set and setting, where they are not ``equal`` (without a result
    ``not-run``); ``skeletons`` lie beside the records of their data set and setting.
    """
    from gpupc_impl.reporting import runs

    def through_files(records, statuses=None, skeletons=None):
        paths = []
        with open(tmp_path / "verification.csv", "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["dataset", "setting", "status", "differing_edges"])
            for number, content in enumerate(records):
                key, ok = (content["dataset"]["name"], content["setting"]), content["status"] == "ok"
                paths.append(tmp_path / f"{number}.json")
                paths[-1].write_text(json.dumps(content))
                if key in (skeletons or {}):
                    skeletons[key].save(tmp_path / f"{number}.npz")
                status = (statuses or {}).get(key, "equal" if ok else "not-run")
                writer.writerow([*key, status, 0 if ok else ""])
        return runs.load(paths, [tmp_path / "verification.csv"])

    return through_files
