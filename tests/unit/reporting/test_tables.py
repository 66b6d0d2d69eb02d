"""Tables as files: what is text stays text, a block for each machine, and the papers' numbers once."""

import pytest

from gpupc_impl.core.files import read_csv
from gpupc_impl.reporting import cells, tables
from gpupc_impl.reporting.cells import Cell, Line, of_lines
from gpupc_impl.reporting.papers import cupc
from gpupc_impl.reporting.runs import Heading
from gpupc_impl.reporting.tables import Table, write_tables

HERE, GPU = Heading("here", False, "my laptop"), Heading("gpu", True, "a GPU")


@pytest.fixture
def write(tmp_path):
    """``write(blocks)``: the contents of the files of a table."""

    def made(*blocks):
        paths = [tmp_path / f"t.{kind}" for kind in ("csv", "md", "html")]
        write_tables(blocks, *paths)
        return [path.read_text() for path in paths]

    return made


def test_a_table_of_lines_has_a_cell_for_each_column_and_no_empty_line():
    lines = [
        Line(["ours"], {"b": Cell("2", {"source": "ours", "value": 2})}),
        Line(["not run"], {"a": Cell("not run"), "b": Cell("–")}),
        Line(["paper"], {"a": Cell("1", {"source": "paper", "value": 1})}),
    ]
    table = of_lines("T", [""], {"a": "A", "b": "B"}, lines, [])
    assert table.header == ["", "A", "B"]
    assert table.rows == [["ours", "–", "2"], ["paper", "1", "–"]]
    assert [row["value"] for row in table.plain] == [2, 1]


def test_a_licence_is_text_in_every_form(write):
    """Registry entries hold words of others; a renderer of Markdown must not take them for HTML, links or rows."""
    licence = "<img src=x onerror=alert(1)> &lt;b> [free](javascript:alert(1))\n| a < b & c"
    facts = {"name": "d", "available": True, "n_variables": 3, "n_samples": 9, "alpha": 0.05, "why": licence}
    _, page, html = write((HERE, cupc.cupc_table1([{**facts, "licence": licence}], [])))
    (row,) = (line for line in page.splitlines() if line.startswith("| d "))
    for text in (row, page):
        assert "<img" not in text
        assert "](javascript" not in text
    assert r"&lt;img src=x onerror=alert(1)> &amp;lt;b> [free]\(javascript:alert(1)) \| a < b & c" in row
    assert "<img" not in html


def test_the_papers_numbers_stand_once_in_a_csv_and_shared_notes_once_on_a_page(write):
    printed = {"source": "paper", "value": 7}
    blocks = [
        (heading, Table("T", ["a"], [["1"]], ["shared", own], [{"source": "ours", "value": k}, printed], left=(0,)))
        for k, (heading, own) in enumerate([(GPU, "of the GPU"), (HERE, "of the cores")])
    ]
    content, page, html = write(*blocks)
    assert content.splitlines() == ["device,source,value", "gpu,ours,0", ",paper,7", "here,ours,1"]
    assert page.count("- shared\n") == 1
    assert page.index("a GPU") < page.index("of the GPU") < page.index("my laptop") < page.index("All of these:")
    assert html.index('<h2 class="gpu"><span>GPU</span>') < html.index('<h2 class="cpu"><span>CPU cores</span>')


def test_a_machine_without_verdicts_is_folded_away_beside_another(write):
    def claims(*verdicts):
        return Table("Claims", ["claim", "verdict"], [["x", word] for word in verdicts], [], [{}], verdict=1)

    few, many = (claims(*["holds"] * count, *["cannot be judged"] * (3 - count)) for count in (1, 2))
    before, after = write((GPU, many), (HERE, few))[2].split("my laptop")
    assert "<details>" not in before
    assert "<details><summary>1 of 3 sentences" in after
    assert "<details>" not in write((HERE, few))[2]  # Alone it is what there is.


def test_a_table_without_rows_is_its_notes(write, tmp_path):
    content, page, html = write((HERE, Table("T", ["a"], [], ["nothing was run"], [])))
    assert "- nothing was run" in page
    assert "<table>" not in html
    assert read_csv(tmp_path / "t.csv") == []
    assert tables.html_body(html).startswith("<h2")
    assert not content.strip()


def test_numbers_have_three_digits():
    expected = ["0", "0.0123", "1.00", "45.7", "1,297", "265,360"]
    assert [cells.number(x) for x in (0, 0.01234, 1.0, 45.67, 1297.4, 265360)] == expected


@pytest.mark.parametrize(
    ("setting", "name"),
    [
        ("cupc-e-first-come", "cuPC-E, first-come"),
        ("cupc-s-pseudo", "cuPC-S, Algorithm 7"),
        ("cupc-e-2-32", "cuPC-E-2-32"),
        ("gpupc-paper", "gpuPC, counting samples"),
        ("disc-cupc-paper-wide", "disc-cuPC, 32-bit codes"),
        ("gpucmiknn-authors-single", "GPU-CMIknn, authors' program, single"),
        ("gpucsl-discrete", "GPUCSL"),
        ("cupc-extra", "cupc-extra"),
    ],
)
def test_a_setting_has_its_method_s_name_and_what_its_own_adds(setting, name):
    assert cells.label(setting) == name
    assert cells.label(setting, "cuda") == f"{name} (cuda)"


def test_names_with_commas_are_separated_by_slashes(load, record):
    names = ("cupc-e-first-come", "cupc-s-first-come")
    cores = {"backend": "host", "environment": {"device": {"device": "Some CPU", "threads": 2}}}
    failed = {"dataset": "wide", "status": "oom", "why": "too large", "result": None}
    records = [record(name[:6], 1.0, setting=name, **cores) for name in names]
    records += [record(name[:6], None, setting=name, **cores, **failed) for name in names]
    runs = load(records)
    both = "cuPC-E, first-come / cuPC-S, first-come"
    assert cells.places(runs) == [f"Backend host: Some CPU, 2 threads ({both})."]
    assert cells.remarks(runs) == [f"wide oom: {both}: too large"]
