"""The device memory of levels 0 and 1 by products (filter.py), and the sizes of arrays that fit into a budget."""

from __future__ import annotations

import dataclasses

from gpupc_impl.engine.budget import COUNTER_BYTES, allocated_bytes
from gpupc_impl.integers import ceil_div, round_up

COLUMNS_A_WARP = 4096  # columns of level 0 that a warp takes (kernels/filter.cu)
MOST_CANDIDATES = 4096  # upper bound on the variables of a block of candidates (kernels/filter.cu)
STEP = 32  # lower bound on the candidates of a block, whose number is a multiple of this one
MOST_TILE = 1 << 28  # upper bound on the products in a tile, since larger tiles hardly shorten the waits between them
TILE_ROWS = 128  # rows that libraries compute at once, to a multiple of which the rows of larger tiles are rounded
LEAST_SHARE = 8  # samples are kept in parts as well if that leaves so many times as much memory to the rest
MOST_UPLOAD_BYTES = 1 << 30  # upper bound on the bytes of samples that are standardised at a time
LISTS = 8  # lists of each variable's neighbours in a block of candidates (kernels/filter.cu)
EDGE_BYTES = 8  # bytes of an edge: its partner, and its product or member
CANDIDATE_BYTES = 4  # bytes of a product in the panel of a block of candidates
NEIGHBOUR_BYTES = 6  # bytes of an entry of a list of neighbours: the neighbour's number and product
RESULT_BYTES = 32  # of an edge: partner, member, whether it is separated, its entry in the list of the open edges

# Upper bound on the edges whose results are read at a time, so that the page-locked memory of all threads stays within
# what the backend caches; pinning pages anew takes longer than copying.
MOST_READ = 1 << 22
# With samples in parts, open edges are copied once there are at most m / OPEN_SHARE for each variable: a block of the
# second pass, which has the candidates before the copy, then takes about as long as the second members of a block.
OPEN_SHARE = 8
OPEN_BYTES = 20  # bytes of the copy of an open edge: its partner, its product, its index, and the member of a set


@dataclasses.dataclass(frozen=True)
class FilterPlan:
    """The sizes of the arrays on a device beside the samples."""

    parts: bool  # whether products are made from samples in parts (products.py)
    tile: int  # number of products in a tile
    candidates: int  # number of variables in a block of candidates
    neighbours: int  # upper bound on the entries of all lists of neighbours among a block of candidates
    edges: int  # upper bound on the edges of a group of rows
    open_edges: int  # upper bound on the open edges that are copied to a list of their own
    read: int  # upper bound on the edges whose results are read at a time; no row has more edges
    device_bytes: int  # lower bound on the device memory that the search needs


def fixed_bytes(m: int, p: int, tile: int, part_bytes: int) -> int:
    """Return the bytes of samples, a tile and its words, counts and sums of edges, degrees, starts of rows, and
    counters; `part_bytes` are those of the samples of a variable in parts, or 0 for products in double precision."""
    products = allocated_bytes(part_bytes * p) + (4 if part_bytes else 12) * tile
    counts = max((32 + COLUMNS_A_WARP // 8) * (tile // COLUMNS_A_WARP + tile // p + 1), 32 * p)
    return allocated_bytes(8 * m * p) + products + counts + 4 * p + 16 * (p + 1) + COUNTER_BYTES + 32 * 512


def candidate_bytes(p: int, candidates: int, neighbours: int) -> int:
    """Return the bytes of a block of candidates: its panel, and the entries, starts and ends of the neighbour lists."""
    places = (8 + 4 * LISTS) * p
    return CANDIDATE_BYTES * p * round_up(candidates, STEP) + NEIGHBOUR_BYTES * neighbours + places + 8 * 512


def least_device_bytes(m: int, p: int) -> int:
    """Return the least device memory: two copies of the samples for levels from 2 on, or, if larger, the samples with
    the smallest tile and block of candidates and the edges of one row."""
    arrays = fixed_bytes(m, p, p, 0) + candidate_bytes(p, STEP, LISTS * STEP * p)
    return max(2 * allocated_bytes(8 * m * p), arrays + (EDGE_BYTES + OPEN_BYTES + RESULT_BYTES) * p)


def variables_at_once(m: int, p: int, budget: int) -> int:
    """Return the number of variables whose samples are standardised at a time, on a device with this budget."""
    samples = allocated_bytes(8 * m * p)
    return max(1, min(MOST_UPLOAD_BYTES, budget - samples, ceil_div(samples, 8)) // (8 * m))


def choose(m: int, p: int, budget: int, part_bytes: int) -> FilterPlan:
    """Return the plan for a device with a budget of at least `least_device_bytes`, with samples in parts if they take
    `part_bytes` for a variable, above 0, and a small share of the budget."""
    least = least_device_bytes(m, p)
    if LEAST_SHARE * part_bytes * p > budget - least:
        part_bytes = 0
    spare = budget - least - part_bytes * p  # divided among larger tiles, blocks and lists, and edges
    tile = p + min(max(0, min(MOST_TILE, p * p) - p), spare // 16 // (4 if part_bytes else 12))
    candidates = STEP + min(MOST_CANDIDATES - STEP, spare // 4 // (CANDIDATE_BYTES * p) // STEP * STEP)
    entries = LISTS * p * STEP, p * candidates // 16, spare // 16 // NEIGHBOUR_BYTES
    neighbours = min(LISTS * p * candidates, max(entries))
    most_open = p * m // (OPEN_SHARE if part_bytes else 1)
    open_edges = p + min(spare // 16 // OPEN_BYTES, most_open)
    read = p + min(MOST_READ, spare // 32 // RESULT_BYTES)
    candidates = min(candidates, p)
    taken = fixed_bytes(m, p, tile, part_bytes) + candidate_bytes(p, candidates, neighbours)
    # Without this room the memory pool gives temporary arrays back to the driver, and allocates them again and again.
    left = budget - taken - OPEN_BYTES * open_edges - max(RESULT_BYTES * read, spare // 64)
    return FilterPlan(
        parts=part_bytes > 0,
        tile=tile,
        candidates=candidates,
        neighbours=neighbours,
        edges=max(1, min(left // EDGE_BYTES, p * (p - 1) // 2)),
        open_edges=max(1, min(open_edges, p * (p - 1) // 2)),
        read=read,
        device_bytes=least,
    )
