"""What several unit tests share."""

import csv
import json

import pytest


@pytest.fixture
def load():
    """``load(folder, records, statuses)``: records as tables and figures get them, through files.

    ``statuses`` are those of verification.csv by data set and setting, where they are not ``equal``.
    """
    from gpupc_impl.reporting import experiments  # here: other tests of this folder need no matplotlib

    def through_files(folder, records, statuses=None):
        paths = []
        for number, content in enumerate(records):
            paths.append(folder / f"{number}.json")
            paths[-1].write_text(json.dumps(content))
        with open(folder / "verification.csv", "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["dataset", "setting", "status"])
            for content in records:
                key = content["dataset"]["name"], content["setting"]
                writer.writerow([*key, (statuses or {}).get(key, "equal")])
        return experiments.load(paths, folder / "verification.csv")

    return through_files
