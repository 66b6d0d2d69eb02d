"""Figures of several machines on one sheet: whole, in order, side by side where a page is wide enough."""

import re
import xml.etree.ElementTree as ElementTree

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.image import imread

from gpupc_impl.reporting import sheet, style
from gpupc_impl.reporting.figures import Drawing, write_drawings
from gpupc_impl.reporting.sources import Heading

GPU = Heading("h200", True, "NVIDIA H200, recorded 2026-11-21, commit 0123456789")
HERE = Heading("this machine", False, "Some CPU, 2 threads, this machine, commit 0123456789")


def figure(width, colour="red"):
    style.use()
    made, axes = plt.subplots(figsize=(width, 1))
    axes.bar([0], [1], color=colour)
    return made


def save(tmp_path, *panels):
    paths = tmp_path / "f.svg", tmp_path / "f.png"
    sheet.save(panels, *paths)
    parts = ElementTree.parse(paths[0]).getroot().findall("{http://www.w3.org/2000/svg}svg")
    places = [(float(part.get("x")), float(part.get("y"))) for part in parts]
    return paths, places


@pytest.mark.parametrize(("width", "beside"), [(style.COLUMN_WIDTH, True), (style.PAGE_WIDTH, False)])
def test_panels_stand_side_by_side_as_far_as_a_page_is_wide(tmp_path, width, beside):
    (svg, png), (strip, panel, other_strip, other) = save(tmp_path, (GPU, figure(width)), (HERE, figure(width)))
    assert strip == (0, 0)
    assert panel[0] == 0 < panel[1]
    assert (other[1] == panel[1]) == beside
    assert (other[0] > 0) == beside
    assert other[1] > other_strip[1] >= (0 if beside else panel[1])
    whole = ElementTree.parse(svg).getroot()
    size = [float(value) for value in whole.get("viewBox").split()[2:]]
    assert size[0] <= style.PAGE_WIDTH * sheet.POINTS + sheet.GAP
    dots = plt.rcParams["savefig.dpi"] / sheet.POINTS
    assert imread(png).shape[:2] == pytest.approx((size[1] * dots, size[0] * dots), abs=3)


def test_nothing_of_a_panel_is_lost(tmp_path):
    """Every red pixel of a figure saved alone is on the sheet."""
    by_itself = figure(style.COLUMN_WIDTH)
    by_itself.savefig(tmp_path / "alone.png", bbox_inches=style.settle(by_itself))
    plt.close(by_itself)
    alone = imread(tmp_path / "alone.png")
    (_, png), _ = save(tmp_path, (GPU, figure(style.COLUMN_WIDTH)), (HERE, figure(style.COLUMN_WIDTH, "blue")))

    def count(picture, colour):
        return np.count_nonzero((picture[..., :3] == colour).all(axis=-1))

    assert count(imread(png), (1, 0, 0)) == count(alone, (1, 0, 0)) == count(imread(png), (0, 0, 1)) > 1000


def test_names_in_the_file_are_unique(tmp_path):
    (svg, _), _ = save(tmp_path, (GPU, figure(2)), (HERE, figure(2)))
    text = svg.read_text()
    names = re.findall(r'\bid="([^"]+)"', text)
    assert len(names) == len(set(names)) > 10
    assert set(re.findall(r'(?:href="|url\()#([^")]+)', text)) <= set(names)


@pytest.mark.parametrize("width", [1.5, style.COLUMN_WIDTH, style.PAGE_WIDTH])
def test_a_heading_fits_into_its_strip(width):
    long = Heading(
        "x", True, "NVIDIA GeForce RTX 4090 Laptop GPU, recorded 2026-11-20 to 2026-11-21, commits 0123456789"
    )
    strip = sheet._strip(long, width * sheet.POINTS)
    strip.canvas.draw()
    for text in strip.texts:
        inside = text.get_window_extent()
        assert 0 <= inside.x0 < inside.x1 <= strip.bbox.width
        assert 0 <= inside.y0 < inside.y1 <= strip.bbox.height
    assert "".join(strip.texts[1].get_text().split()) == "".join(long.text.split())
    plt.close(strip)


def test_the_same_panels_give_the_same_bytes(tmp_path):
    first = [path.read_bytes() for path in save(tmp_path, (GPU, figure(2)))[0]]
    assert [path.read_bytes() for path in save(tmp_path, (GPU, figure(2)))[0]] == first


def test_numbers_of_several_machines_share_a_csv(tmp_path):
    panels = [(GPU, Drawing(figure(2), [{"x": 1}])), (HERE, Drawing(figure(2), [], columns=("x",)))]
    write_drawings(panels, tmp_path / "f.svg", tmp_path / "f.png", tmp_path / "f.csv")
    assert (tmp_path / "f.csv").read_text().splitlines() == ["device,x", "h200,1"]
