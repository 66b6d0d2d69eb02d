"""The kernels of this family as Python declares them: their sources, their structs, the constants shared with them.
Every kernel is compiled with assertions that its C++ source declares the same (`KernelSource`)."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gpupc_impl.backends import Backend, KernelSource, Pointer, Struct
from gpupc_impl.discrete.labels import MAX_SAMPLES
from gpupc_impl.discrete.problem import EXPANSION_TERMS
from gpupc_impl.engine import bit_graph, graph, separating_sets
from gpupc_impl.engine.bit_graph import GRAPHS

CODE_TYPES = {"uint8": "unsigned char", "uint16": "unsigned short"}  # in C++, by NumPy's name
REQUESTED_CODE = "uint8"  # type of codes whose kernels are requested before a search begins: that of nearly all data
MAX_THREADS = 512  # of a block: launch bounds leave each thread 128 registers for the counts of a tile
CELL_BYTES, UNIT_BYTES = 4, 48  # bytes of a cell of a table, and of the description of one test in shared memory
DIGITS = {"cuda": 16, "host": 256}  # values of a digit of the radix sort, by backend
MAX_BATCH_COLUMNS, MAX_BATCH_STRATA = 64, 4  # of a batch (batches.cu) that are counted at once

PRODUCT_TILE, PRODUCT_THREADS, PRODUCT_STEP = 64, 256, 16
"""Planes on a tile's side (products.cu); on a GPU, its threads, and a plane's words in shared memory at once."""

COUNTER_PLACES = {"BUSY_ROWS": 2, "BUSY_ENDS": 6, "LARGEST": 7}  # levels.cu's places in `LevelCounts`

VARIABLES = Struct(
    "Variables",
    categories=Pointer(np.int32),
    planes=Pointer(np.uint64),
    first_plane=Pointer(np.int32),
    words=np.int32,
    plane_cells=np.uint32,
)
DATA = {
    code: Struct(f"Data<{cpp_type}>", codes=Pointer(code), stride=np.int64, n=np.int32, variables=VARIABLES)
    for code, cpp_type in CODE_TYPES.items()
}
RULES = Struct("Rules", logs=Pointer(np.float64), adjusted=np.bool_)
CRITICAL = Struct("Critical", values=Pointer(np.float64), listed=np.int32, expansion=Pointer(np.float64))
SEARCH = Struct(
    "DiscreteSearch",
    best=graph.BEST_KEYS,
    largest_p=Pointer(np.uint64),
    workload=np.bool_,
    rules=RULES,
    critical=CRITICAL,
)
LEVEL = Struct(
    "Level", rows=graph.ROWS, level=np.int32, side=np.int32, tests_per_edge=np.uint64, counters=Pointer(np.uint64)
)
PLACES = Struct(
    "Places",
    above=np.uint64,
    up_to=np.uint64,
    scratch=Pointer(np.uint32),
    scratch_cells=np.uint64,
    bits=np.int32,
    splits=np.int32,
)
TABLES = Struct("Tables", first=Pointer(np.uint32), cells=np.uint64, shared_cells=np.uint32, refused=Pointer(np.uint64))
PAIR_TABLES = Struct(
    "PairTables", variables=VARIABLES, counts=Pointer(np.uint32), starts=Pointer(np.int64), first=np.int32
)
BATCHES = Struct("Batches", cells=np.uint32, words=np.int32, parts=np.int32, splits=np.int32)
PRODUCTS = Struct(
    "Products",
    pairs=PAIR_TABLES,
    owners=Pointer(np.int32),
    **dict.fromkeys(("p", "number", "last", "first_row"), np.int32),
)

_COUNTING_CONSTANTS = {"MAX_THREADS": MAX_THREADS, "MAX_SAMPLES": MAX_SAMPLES}
_DIGITS = {"CUDA_DIGITS": DIGITS["cuda"], "HOST_DIGITS": DIGITS["host"]}
_CONSTANTS = {
    "levels": COUNTER_PLACES,
    "pack_planes": {},
    "products": {
        **{"PRODUCT_TILE": PRODUCT_TILE, "PRODUCT_THREADS": PRODUCT_THREADS, "PRODUCT_STEP": PRODUCT_STEP},
        "EXPANSION_TERMS": EXPANSION_TERMS,
    },
    "gpupc": {**_COUNTING_CONSTANTS, **_DIGITS, "sizeof(Unit)": UNIT_BYTES},
    "disc_cupc": _COUNTING_CONSTANTS,
    "batches": {"MAX_COLUMNS": MAX_BATCH_COLUMNS, "MAX_STRATA": MAX_BATCH_STRATA},
}
"""The constants that Python shares with each source."""


def _kernel(file: str, expression: str, *structs: Struct) -> KernelSource:
    return KernelSource(f"discrete/kernels/{file}.cu", expression, structs, _CONSTANTS[file])


BETWEEN_LEVELS = {
    "begin_level": _kernel("levels", "begin_level", GRAPHS),
    "finish_level": _kernel("levels", "finish_level", GRAPHS, graph.BEST_KEYS),
    "list_removed": _kernel("levels", "list_removed", GRAPHS, graph.BEST_KEYS, graph.ROWS),
    "count_upper": _kernel("levels", "count_upper", GRAPHS),
    "decay": _kernel("levels", "decay", GRAPHS, graph.BEST_KEYS),
}
PACK_PLANES = {code: _kernel("pack_planes", f"pack_planes<{CODE_TYPES[code]}>", DATA[code]) for code in CODE_TYPES}
PLANE_PRODUCTS = _kernel("products", "plane_products", PRODUCTS)
DECIDE_PAIRS = _kernel("products", "decide_pairs", SEARCH, PRODUCTS)

ALL_WAYS, FEW_WAYS = "SHARED, ALL_WAYS", "SHARED, FEW_WAYS"
"""The template arguments, after the type of codes, of gpuPC's kernel for tables in shared memory from level 1 on, and
of the same kernel with fewer ways to make a test: slower, but compiled in a fifth of the time."""

_ALLOCATIONS = ("AHEAD", "IN_KERNEL")
_TEST_KERNELS = {
    "gpupc_level_zero": ((PLACES,), ("SHARED", "SCRATCH", "SORTED")),
    "gpupc_level": (
        (LEVEL, PLACES, PAIR_TABLES, BATCHES),
        (ALL_WAYS, FEW_WAYS, "SCRATCH, ALL_WAYS", "SORTED, ALL_WAYS"),
    ),
    "disc_cupc_level_zero": ((TABLES,), _ALLOCATIONS),
    "disc_cupc_level": ((LEVEL, TABLES), _ALLOCATIONS),
}
"""The kernels that make tests: their structs after the data and the search, and template arguments after the codes'."""


def tests_kernel(name: str, code: str, option: str) -> KernelSource:
    """Return a kernel that makes tests, by its key in `_TEST_KERNELS`, of which ``_level`` stands for every level but
    0, the name of the codes' NumPy type, and the template arguments after the type of codes."""
    structs, _ = _TEST_KERNELS[name]
    return _kernel(name.split("_level")[0], f"{name}<{CODE_TYPES[code]}, {option}>", DATA[code], SEARCH, *structs)


def batches_kernel(block_an_edge: bool) -> KernelSource:
    """Return the kernel in which a warp, or with `block_an_edge` a block, make many tests of an edge at once."""
    return _kernel("batches", f"gpupc_batches<{str(block_an_edge).lower()}>", VARIABLES, SEARCH, LEVEL, BATCHES)


def search_kernels(
    backend: Backend, params: Mapping[str, Any], pmax: bool, max_level: int | None
) -> Sequence[KernelSource]:
    """Return the kernels of a search by gpuPC on data with at most 256 categories a variable (`Method.kernels`)."""
    on_gpu = backend.warp_threads > 1
    shared = (FEW_WAYS, ALL_WAYS) if on_gpu else (ALL_WAYS,)
    options = ("SCRATCH, ALL_WAYS",) if params["tables"] == "global" else shared
    return _search_kernels("gpupc", options, on_gpu)


def disc_cupc_kernels(
    backend: Backend, params: Mapping[str, Any], pmax: bool, max_level: int | None
) -> Sequence[KernelSource]:
    """Return the kernels of a search by disc-cupc on data with at most 256 categories a variable (`Method.kernels`)."""
    return _search_kernels("disc_cupc", (allocation(params),), False)


def allocation(params: Mapping[str, Any]) -> str:
    """Return the template argument, after the type of codes, of disc-cupc's kernels."""
    return "IN_KERNEL" if params["tables"] == "in-kernel" else "AHEAD"


@functools.cache
def _search_kernels(method: str, options: tuple[str, ...], may_batch: bool) -> tuple[KernelSource, ...]:
    code = REQUESTED_CODE
    first, *later = [tests_kernel(f"{method}_level", code, option) for option in options]
    at_zero = (
        [PLANE_PRODUCTS, DECIDE_PAIRS] if method == "gpupc" else [tests_kernel(f"{method}_level_zero", code, *options)]
    )
    return (
        first,
        PACK_PLANES[code],
        *at_zero,
        *(BETWEEN_LEVELS[between] for between in ("finish_level", "begin_level", "list_removed")),
        *separating_sets.KERNELS.values(),
        bit_graph.KERNELS["expand"],
        *later,
        *map(batches_kernel, (False, True) if may_batch else ()),
    )


def all_kernels(max_level: int) -> list[KernelSource]:
    """Return every kernel that this family launches; none depends on the level."""
    tests = [
        tests_kernel(name, code, option)
        for name, (_, options) in _TEST_KERNELS.items()
        for code in CODE_TYPES
        for option in options
        if option != FEW_WAYS or code == REQUESTED_CODE
    ]
    tests += map(batches_kernel, (False, True))
    shared = [
        bit_graph.KERNELS["expand"],
        graph.KERNELS["mark_pairs<unsigned long long>"],
        *separating_sets.KERNELS.values(),
    ]
    own = [*BETWEEN_LEVELS.values(), *PACK_PLANES.values(), PLANE_PRODUCTS, DECIDE_PAIRS]
    return [*shared, *own, *tests]
