"""The kernels of this family as Python declares them: their sources, their structs, the constants shared with them.

Every kernel is compiled with assertions that its C++ source declares the same (`KernelSource`).
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gpupc_impl.backends import Backend, KernelSource, Pointer, Struct
from gpupc_impl.discrete.labels import MAX_SAMPLES
from gpupc_impl.discrete.problem import EXPANSION_TERMS
from gpupc_impl.engine import bit_graph, graph, separating_sets
from gpupc_impl.engine.bit_graph import GRAPHS

CODE_TYPES = {"uint8": "unsigned char", "uint16": "unsigned short"}
"""The C++ types of codes, by the name of their NumPy type."""

REQUESTED_CODE = "uint8"
"""The type of codes whose kernels are requested before a search begins: that of nearly all data."""

MAX_THREADS = 512
"""Threads of a block: the kernels' launch bounds leave each thread 128 registers for the counts of a tile."""

CELL_BYTES, UNIT_BYTES = 4, 48  # bytes of a cell of a table, and of the description of one test in shared memory
DIGITS = {"cuda": 16, "host": 256}  # values of a digit of the radix sort, by backend

MAX_BATCH_COLUMNS, MAX_BATCH_STRATA = 64, 4
"""Upper bounds on the columns and strata of a batch (batches.cu) that are counted at once."""

PRODUCT_TILE, PRODUCT_THREADS, PRODUCT_STEP = 64, 256, 16
"""Planes along a side of a tile (products.cu); and, on a GPU, the threads of a tile's block and the words of a plane
that are in shared memory at once."""

COUNTER_PLACES = {"BUSY_ROWS": 2, "BUSY_ENDS": 6, "LARGEST": 7}
"""Places in a level's counters (`engine.bit_graph.Counted`) to which levels.cu gives a meaning of its own."""

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
    "PairTables",
    variables=VARIABLES,
    counts=Pointer(np.uint32),
    starts=Pointer(np.int64),
    first=np.int32,
)
BATCHES = Struct("Batches", cells=np.uint32, words=np.int32, parts=np.int32, splits=np.int32)
PRODUCTS = Struct(
    "Products",
    pairs=PAIR_TABLES,
    owners=Pointer(np.int32),
    **dict.fromkeys(("p", "number", "last", "first_row"), np.int32),
)

BETWEEN_LEVELS = {
    name: KernelSource("discrete/kernels/levels.cu", name, structs, COUNTER_PLACES)
    for name, structs in {
        "begin_level": (GRAPHS,),
        "finish_level": (GRAPHS, graph.BEST_KEYS),
        "list_removed": (GRAPHS, graph.BEST_KEYS, graph.ROWS),
        "count_upper": (GRAPHS,),
        "decay": (GRAPHS, graph.BEST_KEYS),
    }.items()
}
PACK_PLANES = {
    code: KernelSource("discrete/kernels/pack_planes.cu", f"pack_planes<{CODE_TYPES[code]}>", (DATA[code],))
    for code in CODE_TYPES
}

_PRODUCT_CONSTANTS = {
    "PRODUCT_TILE": PRODUCT_TILE,
    "PRODUCT_THREADS": PRODUCT_THREADS,
    "PRODUCT_STEP": PRODUCT_STEP,
}
PLANE_PRODUCTS = KernelSource("discrete/kernels/products.cu", "plane_products", (PRODUCTS,), _PRODUCT_CONSTANTS)
DECIDE_PAIRS = KernelSource(
    "discrete/kernels/products.cu",
    "decide_pairs",
    (SEARCH, PRODUCTS),
    {**_PRODUCT_CONSTANTS, "EXPANSION_TERMS": EXPANSION_TERMS},
)

_COUNTING_CONSTANTS = {"MAX_THREADS": MAX_THREADS, "MAX_SAMPLES": MAX_SAMPLES}
_TEST_CONSTANTS = {
    "gpupc": {
        **_COUNTING_CONSTANTS,
        "sizeof(Unit)": UNIT_BYTES,
        "CUDA_DIGITS": DIGITS["cuda"],
        "HOST_DIGITS": DIGITS["host"],
    },
    "disc_cupc": _COUNTING_CONSTANTS,
}
_BATCH_CONSTANTS = {"MAX_COLUMNS": MAX_BATCH_COLUMNS, "MAX_STRATA": MAX_BATCH_STRATA}
_WHERE_TABLES_LIE = {"gpupc": PLACES, "disc_cupc": TABLES}
ALL_WAYS, FEW_WAYS = (("SHARED", ways) for ways in ("ALL_WAYS", "FEW_WAYS"))
"""The template arguments, after the type of codes, of gpuPC's kernel for tables in shared memory from level 1 on, and
of the same kernel with fewer ways to make a test: slower, but compiled in a fifth of the time."""

_TEMPLATE_OPTIONS: dict[tuple[str, str], list[tuple[str, ...]]] = {
    ("gpupc", "level_zero"): [("SHARED",), ("SCRATCH",), ("SORTED",)],
    ("gpupc", "level"): [ALL_WAYS, FEW_WAYS, ("SCRATCH", "ALL_WAYS"), ("SORTED", "ALL_WAYS")],
    ("disc_cupc", "level_zero"): [("AHEAD",), ("IN_KERNEL",)],
    ("disc_cupc", "level"): [("AHEAD",), ("IN_KERNEL",)],
}
"""The template arguments of a method's kernels, after the type of codes."""


def tests_kernel(name: str, part: str, code: str, *options: str) -> KernelSource:
    """Return the kernel that makes the tests of a part of a search.

    Args:
        name: ``"gpupc"`` or ``"disc_cupc"``.
        part: ``"level_zero"`` or ``"level"``, which is every other level.
        code: the name of the codes' NumPy type.
        options: template arguments after the type of codes.
    """
    level, ways = ([LEVEL], [PAIR_TABLES, BATCHES] if name == "gpupc" else []) if part == "level" else ([], [])
    structs = (DATA[code], SEARCH, *level, _WHERE_TABLES_LIE[name], *ways)
    expression = f"{name}_{part}<{', '.join((CODE_TYPES[code], *options))}>"
    return KernelSource(f"discrete/kernels/{name}.cu", expression, structs, _TEST_CONSTANTS[name])


def batches_kernel(block_an_edge: bool) -> KernelSource:
    """Return the kernel in which a warp, or with `block_an_edge` all warps of a block, make many tests of an edge at
    once."""
    expression = f"gpupc_batches<{str(block_an_edge).lower()}>"
    structs = (VARIABLES, SEARCH, LEVEL, BATCHES)
    return KernelSource("discrete/kernels/batches.cu", expression, structs, _BATCH_CONSTANTS)


def search_kernels(
    backend: Backend, params: Mapping[str, Any], pmax: bool, max_level: int | None
) -> Sequence[KernelSource]:
    """Return the kernels of a search by gpuPC on data with at most 256 categories a variable (`Method.kernels`)."""
    on_gpu = backend.warp_threads > 1
    if params["tables"] == "global":
        options: tuple[tuple[str, ...], ...] = (("SCRATCH", "ALL_WAYS"),)
    else:
        options = (FEW_WAYS, ALL_WAYS) if on_gpu else (ALL_WAYS,)
    return _search_kernels("gpupc", options, on_gpu)


def disc_cupc_kernels(
    backend: Backend, params: Mapping[str, Any], pmax: bool, max_level: int | None
) -> Sequence[KernelSource]:
    """Return the kernels of a search by disc-cupc on data with at most 256 categories a variable (`Method.kernels`)."""
    return _search_kernels("disc_cupc", ((allocation(params),),), False)


def allocation(params: Mapping[str, Any]) -> str:
    """Return the template argument, after the type of codes, of disc-cupc's kernels."""
    return "IN_KERNEL" if params["tables"] == "in-kernel" else "AHEAD"


@functools.cache
def _search_kernels(name: str, options: tuple[tuple[str, ...], ...], may_batch: bool) -> tuple[KernelSource, ...]:
    code = REQUESTED_CODE
    first = [PLANE_PRODUCTS, DECIDE_PAIRS] if name == "gpupc" else [tests_kernel(name, "level_zero", code, *options[0])]
    return (
        tests_kernel(name, "level", code, *options[0]),
        PACK_PLANES[code],
        *first,
        *(BETWEEN_LEVELS[between] for between in ("finish_level", "begin_level", "list_removed")),
        *separating_sets.KERNELS.values(),
        bit_graph.KERNELS["expand"],
        *(tests_kernel(name, "level", code, *each) for each in options[1:]),
        *(batches_kernel(code, block_an_edge) for block_an_edge in (False, True) if may_batch),
    )


def all_kernels(max_level: int) -> list[KernelSource]:
    """Return every kernel that this family launches; none depends on the level."""
    tests = [
        tests_kernel(name, part, code, *options)
        for (name, part), all_options in _TEMPLATE_OPTIONS.items()
        for code in CODE_TYPES
        for options in all_options
        if options != FEW_WAYS or code == REQUESTED_CODE
    ]
    tests += map(batches_kernel, (False, True))
    shared = [
        bit_graph.KERNELS["expand"],
        graph.KERNELS["mark_pairs<unsigned long long>"],
        *separating_sets.KERNELS.values(),
    ]
    own = [*BETWEEN_LEVELS.values(), *PACK_PLANES.values(), PLANE_PRODUCTS, DECIDE_PAIRS]
    return [*shared, *own, *tests]
