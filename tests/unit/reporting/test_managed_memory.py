"""The model of unified memory: a page trace that was worked out by hand, and what holds for every budget."""

import pytest

from gpupc_impl.reporting.papers.managed_memory import (
    COARSE_BYTES,
    UPLOAD,
    Traffic,
    modelled_seconds,
    row_bytes,
    touches,
    traffic,
)

PAGE = 1 << 16


def pages(found):
    return {phase: tuple(moved // PAGE for moved in vars(of).values()) for phase, of in found.items()}


def test_everything_fits():
    """128 variables have a matrix and best keys of two pages each, and four arrays of one page each."""
    assert pages(traffic(128, 8 * PAGE, PAGE)) == {UPLOAD: (2, 0, 0), 0: (0, 0, 3), 1: (0, 0, 3)}


def test_a_device_of_four_pages_by_hand():
    """The pages: M0 M1 the matrix, B0 B1 best keys, G graph, R rows, K members, W bits; the oldest page leaves.

    Upload: M0 M1. Level 0: B0 B1 are new. M0 is there, G (new) drives out M1; M1 returns and drives out B0; G twice.
    Level 1 begins with B1 M0 M1 G: G, R (new) for B1; K (new) for M0; M0 returns for M1, W (new) for G, M1 returns for
    R, W. The tiles use K M0 M1 W and then K M1 W, the ranks K. R returns for M0, B0 for M1, G for W, and then B1 for K.
    """
    assert pages(traffic(128, 4 * PAGE, PAGE)) == {UPLOAD: (2, 0, 0), 0: (1, 2, 3), 1: (6, 9, 3)}


@pytest.mark.parametrize("page", [1 << 16, 1 << 21])
def test_the_matrix_is_moved_again_for_every_row_of_tiles_only_if_it_does_not_fit(page):
    p = 1024
    matrix, members = 8 * p * p, 4 * p * p
    roomy, tight = (traffic(p, budget, page)[1] for budget in (matrix + members, matrix // 4))
    assert roomy.to_device <= 2 * sum(row_bytes(p).values()) * p
    if page == 1 << 16:  # With the larger page a quarter of the matrix is a single page.
        assert tight.to_device > 4 * matrix
    assert tight.to_host >= tight.to_device


def test_what_is_moved_does_not_depend_on_the_page_if_it_fits():
    found = [traffic(2048, 1 << 40, page) for page in (1 << 16, 1 << 21)]
    assert [each[1].to_device for each in found] == [0, 0]
    new = (4 + 4 + 1 / 8) * 2048**2
    assert all(new <= each[1].first_touch <= new + 3 * (1 << 21) for each in found)


def test_every_row_of_every_array_is_touched():
    touched = {}
    for _, array, first, last in touches(100):
        touched.setdefault(array, set()).update(range(first, last))
    assert touched == {array: set(range(100)) for array in row_bytes(100)}


def test_seconds_are_those_of_the_kernels_and_of_what_is_moved():
    rates = {"to_device_gb_s": 10.0, "to_host_gb_s": 5.0, "first_touch_gb_s": 20.0}
    assert Traffic(10**10, 10**10, 10**10).seconds(rates) == pytest.approx(1 + 2 + 0.5)
    assert modelled_seconds(128, 1, 1 << 40, 7.0, rates) == pytest.approx(7 + 3 * COARSE_BYTES / 2e10)
