"""Figures of several machines on one sheet, and the PDF for papers."""

import re
import xml.etree.ElementTree as ElementTree

import matplotlib.pyplot as plt
import pytest

from gpupc_impl.core.family import families
from gpupc_impl.core.registry import methods
from gpupc_impl.reporting import figures, style
from gpupc_impl.reporting.figures import Drawing, write_drawings
from gpupc_impl.reporting.runs import Heading

GPU = Heading("h200", True, "NVIDIA H200, recorded 2026-11-21, commit 0123456789")
HERE = Heading("this machine", False, "Some CPU, 2 threads, this machine, commit 0123456789")


def figure(width, around=True):
    made, axes = figures.canvas(1, 1, (width, 1))
    axes[0, 0].bar([0], [1])
    if around:
        made.suptitle("a heading")
        made.supxlabel("small print")
    return made


def sheet(*panels):
    text = figures.sheet([(heading, style.svg(drawn)) for heading, drawn in panels])
    return text, ElementTree.fromstring(text.encode())


@pytest.mark.parametrize(("width", "beside"), [(style.COLUMN_WIDTH, True), (style.PAGE_WIDTH, False)])
def test_panels_stand_side_by_side_as_far_as_a_page_is_wide(width, beside):
    _, root = sheet((GPU, figure(width)), (HERE, figure(width)))
    one, other = root.findall("{http://www.w3.org/2000/svg}svg")
    assert (one.get("y") == other.get("y")) == beside
    assert (float(other.get("x")) > 0) == beside
    size = [float(value) for value in root.get("viewBox").split()[2:]]
    assert size[0] <= style.PAGE_WIDTH * 72 + figures.GAP
    for panel in (one, other):
        left, top, wide, high = (float(panel.get(name)) for name in ("x", "y", "width", "height"))
        assert left + wide <= size[0] + 1e-3
        assert top + high <= size[1] + 1e-3


def test_names_in_the_file_are_unique_and_the_machines_are_named():
    text, root = sheet((GPU, figure(2)), (HERE, figure(2)))
    names = re.findall(r'\bid="([^"]+)"', text)
    assert len(names) == len(set(names)) > 10
    assert set(re.findall(r'(?:href="|url\()#([^")]+)', text)) <= set(names)
    words = " ".join(node.text for node in root.iter("{http://www.w3.org/2000/svg}text"))
    assert "GPU NVIDIA H200," in words
    assert "CPU cores Some CPU," in words


def test_equal_figures_give_equal_files_and_a_pdf_has_a_page_for_each_machine(tmp_path):
    contents = []
    for name in ("a", "b"):
        panels = [(GPU, Drawing(figure(2), [{"x": 1}])), (HERE, Drawing(figure(2)))]
        paths = {kind: tmp_path / f"{name}.{kind}" for kind in ("svg", "pdf", "csv")}
        write_drawings(panels, paths["svg"], paths["pdf"], paths["csv"])
        contents.append([path.read_bytes() for path in paths.values()])
    assert contents[0] == contents[1]
    _, pdf, rows = contents[0]
    assert len(re.findall(rb"/Type /Page\b", pdf)) == 2
    assert rows == b"device,x\nh200,1\n"


def test_a_figure_for_papers_has_neither_heading_nor_small_print(tmp_path):
    both, bare = figure(3), figure(3, around=False)
    for name, drawn in (("both", both), ("bare", bare)):
        figures.save_plain([drawn], tmp_path / f"{name}.pdf")
        plt.close(drawn)
    assert both._suptitle.get_visible()
    boxes = [re.findall(rb"/MediaBox \[[^]]*\]", (tmp_path / f"{n}.pdf").read_bytes()) for n in ("both", "bare")]
    assert boxes[0] == boxes[1]


def test_every_method_has_a_colour_of_its_own():
    for family in families():
        colours = [style.COLOURS[name] for name in methods(family) if name in style.COLOURS]
        assert len(set(colours)) == len(colours)
    assert style.colour("a-plug-in") == style.OTHER_COLOUR
