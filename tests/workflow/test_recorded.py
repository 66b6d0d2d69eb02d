"""Published runs as a source of tables and figures: what is there, what is not, and what cannot be shown."""

import json
from pathlib import Path

import pytest
import yaml

from gpupc_impl.reporting.catalogue import entries
from workflow.lib.config import complete
from workflow.lib.plan import Plan, recorded_plans
from workflow.pages import draw

ROOT = Path(__file__).parents[2]
TINY = Path(__file__).with_name("tiny.yaml")
ENTRIES = entries()


@pytest.fixture
def config():
    config = yaml.safe_load(TINY.read_text())
    complete(config)
    return config


@pytest.fixture
def device(tmp_path, config):
    """``device(runs, datasets, files)``: the plan of a published folder with these runs, as ``DATASET/SETTING``, with
    the facts of these data sets and with these files, which are empty."""

    def make(runs=(), datasets=(), files=()):
        folder = tmp_path / "some-gpu"
        (folder / "records").mkdir(parents=True)
        (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
        lines = [dict(zip(("dataset", "setting"), run.split("/"), strict=True)) for run in runs]
        (folder / "records/gaussian.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        (folder / "datasets.json").write_text(json.dumps({name: {"problem": None} for name in datasets}))
        for name in files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).touch()
        (plan,) = recorded_plans({"recorded": [str(folder)]})
        return plan

    return make


def test_a_recorded_tree_has_the_files_of_results(config):
    here, there = Plan(config), Plan(config, "results/recorded/h200")
    for name in here.outputs():
        for kind, paths in here.inputs(ENTRIES[name]).items():
            moved = [path.replace("results/", "results/recorded/h200/", 1) for path in paths]
            assert there.inputs(ENTRIES[name])[kind] == (paths if kind in ("reported", "factors") else moved)


def test_only_what_is_there_is_shown(device):
    plan = device(["ecoli70/cupc-s", "tiny/cupc-s", "tiny/cupc-e-2-32", "tiny/not-asked-for"], ["tiny", "other"])
    table2 = plan.recorded_source(ENTRIES["cupc_table2"])
    assert (table2.name, table2.backend) == ("some-gpu", "host")
    assert table2.runs == [("ecoli70", "cupc-s"), ("tiny", "cupc-s")]
    assert [Path(path).name for path in table2.files["published"]] == ["datasets.json", "gaussian.jsonl"]
    assert ("nci-60", "cupc-s") in table2.absent
    assert ("tiny", "cupc-s") not in table2.absent
    absent = plan.recorded_source(ENTRIES["methods_by_dataset"]).absent
    assert ("tiny", "pair-scan") in absent
    assert ("ecoli70", "pair-scan") not in absent  # the config leaves it out
    assert plan.recorded_source(ENTRIES["cupc_fig7"]).runs == [("tiny", "cupc-e-2-32")]
    sets = plan.recorded_source(ENTRIES["cupc_table1"])
    assert sets.datasets == ["tiny"]
    assert sets.runs == [("ecoli70", "cupc-s"), ("tiny", "cupc-s")]  # for the heading
    claims = plan.recorded_source(ENTRIES["cupc_claims"])  # works without the sharing of sets, which is not there
    assert claims.files["sharing"] == []


def test_a_device_that_has_nothing_for_an_output_is_left_out(device):
    plan = device(["tiny/cupc-s"])
    shown = {name for name, entry in ENTRIES.items() if plan.recorded_source(entry)}
    assert {"cupc_table2", "cupc_fig6", "overview"} <= shown
    assert shown.isdisjoint({*(f"cupc_fig{k}" for k in (5, 8, 9, 10)), "ooc_fig1", "ooc_fig2", "cupc_table1"})
    assert shown.isdisjoint({"gpupc_table2", "cmiknn_table1"})  # not in its config
    (Path(plan.folder) / "timelines").mkdir()
    (timeline,) = plan.inputs(ENTRIES["ooc_fig1"])["timeline"]
    Path(timeline).touch()
    assert plan.recorded_source(ENTRIES["ooc_fig1"]).files["timeline"] == [timeline]


def test_a_folder_that_cannot_be_shown_is_named(device, tmp_path):
    with pytest.raises(ValueError, match=r"recorded: .*nowhere holds no recorded runs: it has no file config\.yaml"):
        recorded_plans({"recorded": [str(tmp_path / "nowhere")]})
    folder = Path(device().folder)
    (folder / "config.yaml").write_text("datasets: {nci60: {}}\nsettings: {gaussian: {}}\n")
    with pytest.raises(ValueError, match=r"config\.yaml cannot be read any more: no data set is called 'nci60'"):
        recorded_plans({"recorded": [str(folder)]})
    (folder / "config.yaml").write_text("datasets: {")
    with pytest.raises(ValueError, match="cannot be read any more"):
        recorded_plans({"recorded": [str(folder)]})


def test_the_command_that_draws_says_what_is_wrong(device, tmp_path, capsys):
    folder = device(["tiny/cupc-s"]).folder
    for arguments, message in (
        (["cupc_table2", "t.svg", folder], "t.svg: cupc_table2 is written as html, csv, md"),
        (["cupc_fig7", "f.svg", folder], f"no run of cupc_fig7 is recorded in {folder}"),
        (["cupc_fig7", "f.svg", str(tmp_path)], "holds no recorded runs"),
    ):
        with pytest.raises(SystemExit):
            draw.main(arguments)
        assert message in capsys.readouterr().err
