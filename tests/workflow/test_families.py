"""The workflow on discrete and nonlinear data, without any Gaussian: what its papers' tables show, for real and dry."""

import itertools
import json
import re
from pathlib import Path

import pytest
import yaml

from tests.workflow.test_workflow import rows, snakemake, with_value
from workflow.lib.config import check_config
from workflow.lib.experiments import expand

ROOT = Path(__file__).parents[2]
FAMILIES = Path(__file__).with_name("families.yaml")
TABLES = (
    *("gpupc_table1", "gpupc_table2", "gpupc_table3", "cmiknn_table1"),
    *("cmiknn_table5", "cmiknn_table10", "methods_by_dataset", "provenance"),
)

pytest.importorskip("snakemake")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder in which the config was run."""
    folder = tmp_path_factory.mktemp("families")
    snakemake(folder, FAMILIES)
    return folder


def test_the_settings_are_the_papers():
    config = yaml.safe_load((ROOT / "config/paper.yaml").read_text())
    experiments = expand(config)
    assert {name: len(set(values.values())) for name, values in experiments["gpupc_table2"].sweeps.items()} == {
        **{"p": 4, "categories": 5, "n": 5, "tests_per_edge": 5, "decay": 3}
    }
    assert len(experiments["cmiknn_table5"].graphs) == 5 * 10 * 3
    assert len(experiments["cmiknn_fig1"].graphs) == 50 * 10
    assert config["ci_tests"]["tests"] == 20
    assert config["problems"]["nonlinear"] == {"alpha": 0.01, "permutations": 100, "k_cmi": 7, "k_perm": 15}


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("ci_tests.implementations.x", {}, "ci_tests.implementations.x: method 'x' is not known"),
        ("ci_tests.implementations.gpupc", {}, "method 'gpupc' has no single test that could be timed"),
        ("ci_tests.implementations.counting.params", {"k": 1}, "method 'gpucmiknn-single' has no parameter 'k'"),
        ("ci_tests.tables.cmiknn_table1.k_cmi", 7, "ci_tests.tables.cmiknn_table1: k_cmi varies, so it must be a list"),
        ("ci_tests.implementations", {}, "ci_tests: there are tables, but no implementations"),
        ("ci_tests.tables.cmiknn_table9", {}, "unknown key 'cmiknn_table9' at ci_tests.tables"),
        ("problems.nonlinear.perm", 5, "unknown parameter 'perm' in problems.nonlinear"),
        ("experiments", {6: {}}, "experiments: the key 6 is no text; put it in quotes"),
    ],
)
def test_mistakes_in_a_config(path, value, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        check_config(with_value(FAMILIES, path, value))


# Slow: `make reproduce` runs each of these rules on larger data, and tests/unit/reporting makes each of these tables.


@pytest.mark.slow
def test_everything_is_there(finished):
    for name in TABLES:
        for suffix in ("csv", "md", "html"):
            assert (finished / f"results/tables/{name}.{suffix}").stat().st_size > 0
    for name in ("overview", "cmiknn_fig1"):
        assert (finished / f"figures/{name}.svg").read_text().rstrip().endswith("</svg>")
    assert not list((finished / "results/tables").glob("cupc_*"))
    of_all = rows(finished / "results/tables/methods_by_dataset.csv")
    assert {row["family"] for row in of_all} == {"discrete", "nonlinear"}


@pytest.mark.slow
def test_every_answer_is_verified(finished):
    tables = [finished / f"results/verification/{family}.csv" for family in ("discrete", "nonlinear")]
    for row in itertools.chain(*map(rows, tables)):
        if row["dataset"] == "sachs-cd3cd28":
            assert row["status"] == "not-run"
        elif row["setting"] == "causal-learn-discrete":
            assert row["status"] in ("equal", "convention")
        else:
            assert row["status"] == "equal"
    single = rows(finished / "results/verification/ci_tests.csv")
    assert {row["status"] for row in single if row["dataset"].endswith("k_cmi=60, k_rule=fixed")} == {"not-run"}
    assert {row["status"] for row in single if "k_cmi=60" not in row["dataset"]} == {"equal"}
    for row in rows(finished / "results/verification/cmiknn_table5.csv"):
        assert row["status"] in ("equal", "random" if row["setting"] == "tigramite" else "equal")


@pytest.mark.slow
def test_disc_cupc_runs_out_of_memory_where_its_tables_are_too_large(finished):
    found = {
        (row["parameter"], row["value"], row["method"]): row
        for row in rows(finished / "results/tables/gpupc_table2.csv")
        if row["source"] == "ours"
    }
    assert found["categories", "20", "disc-cupc"]["status"] == "refused"
    assert found["categories", "20", "gpupc"]["speedup"] == "inf"
    assert float(found["p", "20", "gpupc"]["speedup"]) > 0
    assert found["categories", "20", "gpupc"]["edges_per_level"] == "38 8 2"  # a fifth is left after each level
    assert int(found["categories", "20", "gpupc"]["device_bytes"]) <= 3_000_000
    assert "∞" in (finished / "results/tables/gpupc_table2.md").read_text()


@pytest.mark.slow
def test_what_is_absent_says_why(finished):
    table = (finished / "results/tables/cmiknn_table10.md").read_text()
    assert "mcc-nonlinear not run: GPU-CMIknn-Parallel: data set 'mcc-nonlinear'" in table
    cells = json.loads((finished / "results/tests/cmiknn_table1.json").read_text())["cells"]
    late = [cell for cell in cells if cell["k_cmi"] == 60]
    assert len(late) == 3
    assert all(cell["status"] == "skipped" and "k_cmi is 60" in cell["why"] for cell in late)
    assert {cell["k_cmi"] for cell in cells if cell["k_rule"] == "adaptive"} == {10}
