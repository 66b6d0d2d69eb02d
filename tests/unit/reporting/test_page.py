"""The report."""

import re

from gpupc_impl.reporting.catalogue import entries
from gpupc_impl.reporting.page import report_page
from gpupc_impl.reporting.tables import Table


def test_figures_and_tables_stand_in_the_papers_order(tmp_path):
    shown = list(entries().values())
    for name, content in (("page.html", "<table></table>"), ("figure.svg", "<svg></svg>")):
        (tmp_path / name).write_text(content)
    files = {entry.name: {"html": tmp_path / "page.html", "svg": tmp_path / "figure.svg"} for entry in shown}
    page = report_page([], Table("Headlines", [], [], [], []), shown, {entry.name: "" for entry in shown}, files)
    sections = dict(re.findall(r'<h2 class="paper" id="[^"]*">([^<]*)</h2>(.*?)(?=<h2|$)', page, re.DOTALL))
    summaries = {paper: re.findall("<summary>(.*?)</summary>", section) for paper, section in sections.items()}
    numbered = [title.partition(":")[0] for title in summaries["cuPC"]]
    assert numbered == [*(f"Fig. {k}" for k in range(5, 11)), "Table 1", "Table 2", "Section 5"]
    assert [title.partition(":")[0] for title in summaries["GPU-CMIknn"]] == [
        *("Fig. 1", "Scaling"),
        *(f"Table {k}" for k in range(1, 11)),
        "Section 5",
    ]
    assert sum(map(len, summaries.values())) == len(shown)
