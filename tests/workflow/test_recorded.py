"""Recorded runs as a source of tables and figures: what is there, what is not, and what cannot be shown."""

from pathlib import Path

import pytest
import yaml

from gpupc_impl.reporting.catalogue import entries
from workflow.lib.config import complete
from workflow.lib.plan import Plan, recorded_folders, recorded_plans
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
    """``device(files)``: the plan of a recorded folder in which only these are, by name, as empty files."""

    def made(*names):
        folder = tmp_path / "some-gpu"
        folder.mkdir()
        (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).touch()
        (plan,) = recorded_plans({"recorded": [str(folder)]})
        return plan

    return made


def test_a_recorded_tree_has_the_files_of_results(config):
    here, there = Plan(config), Plan(config, "results/recorded/h200")
    for name in here.outputs():
        for kind, paths in here.inputs(ENTRIES[name]).items():
            moved = [path.replace("results/", "results/recorded/h200/", 1) for path in paths]
            assert there.inputs(ENTRIES[name])[kind] == (paths if kind == "reported" else moved)


def test_only_what_is_there_is_shown(device):
    plan = device(
        *("records/tiny/cupc-s.json", "records/tiny/cupc-e-2-32.json", "records/ecoli70/cupc-s.json"),
        *("verification.csv", "problems/tiny.json"),
    )
    table2 = plan.recorded_source(ENTRIES["cupc_table2"])
    assert (table2.device, table2.backend) == ("some-gpu", "host")
    assert [Path(path).parent.name for path in table2.files["records"]] == ["ecoli70", "tiny"]
    assert [Path(path).name for path in table2.files["verification"]] == ["verification.csv"]
    assert ("nci-60", "cupc-s") in table2.absent
    assert ("tiny", "cupc-s") not in table2.absent
    grid = plan.recorded_source(ENTRIES["cupc_fig7"])
    assert [Path(path).stem for path in grid.files["records"]] == ["cupc-e-2-32"]
    sets = plan.recorded_source(ENTRIES["cupc_table1"])
    assert [Path(path).name for path in sets.files["problems"]] == ["tiny.json"]
    assert [Path(path).stem for path in sets.files["about"]] == ["cupc-s", "cupc-s"]
    claims = plan.recorded_source(ENTRIES["cupc_claims"])  # works without the sharing of sets, which is not there
    assert claims.files["sharing"] == []


def test_a_device_that_has_nothing_for_an_output_is_left_out(device):
    plan = device("records/tiny/cupc-s.json", "verification.csv", "verification/cupc_fig8.csv")
    shown = {name for name, entry in ENTRIES.items() if plan.recorded_source(entry)}
    assert {"cupc_table2", "cupc_fig6", "overview"} <= shown
    assert shown.isdisjoint(
        {"cupc_fig5", "cupc_fig8", "cupc_fig9", "cupc_fig10", "ooc_fig1", "ooc_fig2", "cupc_table1"}
    )
    assert shown.isdisjoint({"gpupc_table2", "cmiknn_table1"})  # not in its config


def test_every_device_of_the_project_is_shown_unless_the_config_names_some(config, monkeypatch, tmp_path):
    found = {path.parent.resolve() for path in (ROOT / "results/recorded").glob("*/config.yaml")}
    for folder in (ROOT, tmp_path):
        monkeypatch.chdir(folder)
        assert {Path(path).resolve() for path in recorded_folders(config | {"recorded": None})} == found
    assert recorded_folders(config | {"recorded": ["one"]}) == ["one"]
    assert recorded_plans(config | {"recorded": []}) == []


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
    folder = device("records/tiny/cupc-s.json", "verification.csv").folder
    for arguments, message in (
        (["cupc_table2", "t.svg", folder], "t.svg: cupc_table2 is written as html, csv, md"),
        (["cupc_fig7", "f.svg", folder], f"no run of cupc_fig7 is recorded in {folder}"),
        (["cupc_fig7", "f.svg", str(tmp_path)], "holds no recorded runs"),
    ):
        with pytest.raises(SystemExit):
            draw.main(arguments)
        assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "folder", sorted((ROOT / "results/recorded").glob("*/config.yaml")), ids=lambda p: p.parent.name
)
@pytest.mark.parametrize("all_figures", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_everything_that_is_recorded_can_be_drawn(folder, all_figures, config, tmp_path):
    """Every table and figure of the recorded runs of the project, without an error; figures that the tiny config has as
    well, which is run for real, are drawn in slow tests."""
    left_out = set() if all_figures else {name for name in Plan(config).outputs() if ENTRIES[name].figure}
    (plan,) = recorded_plans({"recorded": [str(folder.parent)]})
    sources = {name: plan.recorded_source(entry) for name, entry in ENTRIES.items()}
    assert sources["overview"] is not None
    for name, source in sources.items():
        if source is not None and name not in left_out:
            outputs = {kind: tmp_path / f"{name}.{kind}" for kind in ENTRIES[name].outputs()}
            ENTRIES[name].write([source], outputs)
            assert all(path.stat().st_size for path in outputs.values())
