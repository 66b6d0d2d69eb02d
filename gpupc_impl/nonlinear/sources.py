"""The family's kernels: their sources, and the structs and constants that they share with Python.

Both backends assert structs and constants when they compile a kernel (backends/arguments.py). Values are short, float
or double (kernels/numbers.cuh); most kernels and structs are templates of that type.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gpupc_impl.backends import Backend, KernelSource, Pointer, Struct

PERMUTATION_SOURCE = "nonlinear/kernels/permutation.cu"
COUNTING_SOURCE = "nonlinear/kernels/estimate.cu"
LISTS_SOURCE = "nonlinear/kernels/lists.cu"
BUCKETS_SOURCE = "nonlinear/kernels/buckets.cu"
FAR_SOURCE = "nonlinear/kernels/far.cu"
REGISTERS_SOURCE = "nonlinear/kernels/registers.cu"
INSERTION_SOURCE = "nonlinear/kernels/insertion.cu"
STOPPING_SOURCE = "nonlinear/kernels/stopping.cu"

TYPES = {"short": (np.int16, np.int16), "float": (np.float32, np.int32), "double": (np.float64, np.int64)}
"""C++'s types of a value, with NumPy's for it and for the integer keys that order its distances."""

# --- structs ---------------------------------------------------------------------------------------------------------

INT, FLAG, BYTES, WORDS = np.int32, np.bool_, Pointer(np.uint8), Pointer(np.uint32)
VALUES, KEY = object(), object()
"""A pointer to values, and a key, in a struct that depends on the type of a value."""


def _by_type(name: str, **fields: Any) -> dict[str, Struct]:
    """A struct template, by the type of a value."""
    return {
        kind: Struct(
            f"{name}<{kind}>",
            **{field: {VALUES: Pointer(value), KEY: key}.get(of, of) for field, of in fields.items()},
        )
        for kind, (value, key) in TYPES.items()
    }


SETS = _by_type("Sets", values=VALUES, variables=Pointer(INT), order=Pointer(INT), n=INT, level=INT)
TESTS = Struct(
    "Tests",
    pairs=Pointer(INT),
    **dict.fromkeys(("count", "replicates", "all_replicates", "k"), INT),
    psi=Pointer(np.int64),
    partials=Pointer(np.uint64),
    open=BYTES,
)
SHUFFLES = Struct("Shuffles", knn=Pointer(INT), k=INT, seed=np.uint64)
COUNTING = _by_type(
    "Counting",
    **dict.fromkeys(("columns", "sorted"), VALUES),
    ranks=FLAG,
    **dict.fromkeys(("stride", "first_length"), INT),
    widest=KEY,
    capacity=INT,
    scratch=BYTES,
    scratch_bytes=np.int64,
)
LISTS = _by_type(
    "Lists",
    **dict.fromkeys(("entries", "headers"), BYTES),
    arranged=VALUES,
    **dict.fromkeys(("first", "samples", "near", "padded", "reach"), INT),
    fine_low=KEY,
    fine_shift=INT,
    widest=KEY,
    **dict.fromkeys(("candidates", "remembered"), INT),
    **dict.fromkeys(("far", "counters"), WORDS),
    **dict.fromkeys(("shares", "replicates"), INT),
)
COLUMNS = _by_type(
    "Columns",
    **dict.fromkeys(("values", "rows", "sorted"), VALUES),
    ranks=FLAG,
    **dict.fromkeys(("stride", "width", "group_pieces", "test_pieces", "sample_bytes"), INT),
)

# --- constants that the kernels assert -------------------------------------------------------------------------------

PANEL = 32
"""Replicates that a panel of the columns holds; their number is padded to a multiple of this."""

FEW_NEAREST = 16
"""Samples of a list up to which `assign` keeps its order in one number of 64 bits."""

MOST_ORDERED = 2**16
"""Samples up to which `assign` numbers them with 16 bits."""

VECTOR_BYTES = 64
"""Size of the vector that a thread of the host backend works on in `estimate`."""

BINS, FINE = 32, 256
"""Buckets of a list, and of the histogram that determines their width."""

ENTRIES = 8
"""Lists are padded to a multiple of this."""

HEADER_BYTES = 280
"""Size of the header of a sample's lists."""

ENTRY_BYTES = {"short": 4, "float": 8, "double": 16}
CANDIDATE_BYTES = {"short": 8, "float": 12, "double": 24}
DISTANCES_BYTES = {"short": 4, "float": 8, "double": 16}
CELL_BYTES, WIDE_CELL_BYTES = {"short": 2, "float": 2, "double": 4}, 4
"""Sizes of an entry of a list; of a sample that may be listed; of its distances in (V_j, S) and in S; and of the
counter of a bucket, where the last one is for float values of more samples than 16 bits count."""

REGISTERS_REPLICATES = 8
"""Replicates that a warp of `estimate_by_registers` works on."""

REGISTERS_END = 2**11
"""Its 16-bit floating-point numbers hold all whole numbers up to this one."""

REGISTERS_BYTES = 24
"""Shared memory that a sample takes there: its values in those replicates, and a digamma."""

_LISTS = {
    "BINS": BINS,
    "ENTRIES": ENTRIES,
    "sizeof(Header)": HEADER_BYTES,
    **{f"sizeof(Entry<{kind}>)": size for kind, size in ENTRY_BYTES.items()},
}
CONSTANTS: Mapping[str, Mapping[str, int]] = {
    PERMUTATION_SOURCE: {"PANEL": PANEL, "FEW_NEAREST": FEW_NEAREST, "MOST_ORDERED": MOST_ORDERED},
    COUNTING_SOURCE: {"VECTOR_BYTES": VECTOR_BYTES},
    LISTS_SOURCE: {
        **_LISTS,
        "FINE": FINE,
        **{f"sizeof(Candidate<{kind}>)": size for kind, size in CANDIDATE_BYTES.items()},
        **{f"sizeof(Distances<{kind}>)": size for kind, size in DISTANCES_BYTES.items()},
    },
    BUCKETS_SOURCE: {
        **_LISTS,
        "PANEL": PANEL,
        **{f"sizeof(Cells<{kind}, false>::Cell)": size for kind, size in CELL_BYTES.items()},
        "sizeof(Cells<float, true>::Cell)": WIDE_CELL_BYTES,
    },
    FAR_SOURCE: _LISTS,
    REGISTERS_SOURCE: {
        **_LISTS,
        "REPLICATES": REGISTERS_REPLICATES,
        "END": REGISTERS_END,
        "sizeof(Octet) + sizeof(long long)": REGISTERS_BYTES,
    },
    INSERTION_SOURCE: {},
}
"""Constants by the source that has them."""

# --- kernels ---------------------------------------------------------------------------------------------------------

KEPT_IN_REGISTERS = (8, 32)
"""Numbers of nearest distances for which `estimate_by_insertion` keeps them in registers."""

REGISTERS_ROWS = (8, 12, 16)
"""Multiples of 32 neighbours whose distances a warp of `estimate_by_registers` can keep."""

KERNELS = {
    "arrange_members": (PERMUTATION_SOURCE, [SETS]),
    "nearest": (PERMUTATION_SOURCE, [SETS]),
    "assign": (PERMUTATION_SOURCE, [SETS, SHUFFLES]),
    "assign_racing": (PERMUTATION_SOURCE, [SETS, SHUFFLES]),
    "permute_freely": (PERMUTATION_SOURCE, [SETS]),
    "lay_side_by_side": (PERMUTATION_SOURCE, [SETS]),
    "estimate": (COUNTING_SOURCE, [SETS, TESTS, COUNTING]),
    "arrange": (LISTS_SOURCE, [SETS, TESTS]),
    "list_neighbours": (LISTS_SOURCE, [SETS, TESTS, LISTS]),
    "estimate_by_buckets": (BUCKETS_SOURCE, [SETS, TESTS, LISTS, COLUMNS]),
    "estimate_far": (FAR_SOURCE, [SETS, TESTS, LISTS, COLUMNS]),
    "estimate_by_insertion": (INSERTION_SOURCE, [SETS, TESTS]),
}
"""Source and structs of each kernel whose first template argument is the type of a value."""

CLOSE_TESTS = KernelSource(STOPPING_SOURCE, "close_tests", (TESTS,))

_FLAGS = ("true", "false")


def kernel_of(name: str, kind: str, *arguments: str) -> KernelSource:
    """A kernel of `KERNELS` for a type of value, with its further template arguments."""
    source, structs = KERNELS[name]
    own = tuple(struct if isinstance(struct, Struct) else struct[kind] for struct in structs)
    return KernelSource(source, f"{name}<{', '.join((kind, *arguments))}>", own, CONSTANTS[source])


def registers_kernel(level: int, rows: int) -> KernelSource:
    """The kernel that estimates in registers, with one of `REGISTERS_ROWS`."""
    structs = SETS["short"], TESTS, LISTS["short"], COLUMNS["short"]
    expression = f"estimate_by_registers<{'false' if level else 'true'}, {rows}>"
    return KernelSource(REGISTERS_SOURCE, expression, structs, CONSTANTS[REGISTERS_SOURCE])


def kernels_with_a_rule(kind: str) -> list[tuple[str, ...]]:
    """The kernels that estimate and take a rule for distances: name and template arguments between type and rule."""
    kernels: list[tuple[str, ...]] = [
        (name, empty) for name in ("estimate", "list_neighbours", "estimate_far") for empty in _FLAGS
    ]
    widths = _FLAGS if kind == "float" else ("false",)
    return kernels + [("estimate_by_buckets", empty, wide) for empty in _FLAGS for wide in widths]


def search_kernels(
    backend: Backend, params: Mapping[str, Any], pmax: bool, max_level: int | None
) -> Sequence[KernelSource]:
    """What a search needs of ranks, of data without many ties and with the default k_CMI (`Method.kernels`)."""
    return first_kernels(kernel_of, backend.name, params["selection"])


@functools.cache
def first_kernels(of: Callable[..., KernelSource], backend: str, selection: str) -> tuple[KernelSource, ...]:
    """What a search that selects neighbours in a way, "auto" among them, needs first, by its family's `kernel_of`."""
    kind = "short"
    if selection == "auto":
        selection = "counting" if backend == "host" else "registers" if of is kernel_of else "buckets"
    permuting = [of(name, kind) for name in ("permute_freely", "lay_side_by_side", "arrange_members", "nearest")]
    permuting.append(of("assign", kind, "true"))
    if selection == "counting":
        return *(of("estimate", kind, empty) for empty in _FLAGS), *permuting
    listing = [of(name, kind, empty) for empty in _FLAGS for name in ("list_neighbours", "estimate_far")]
    if selection == "buckets":
        estimating = [of("estimate_by_buckets", kind, empty, "false") for empty in _FLAGS]
    elif selection == "registers":
        estimating = [registers_kernel(level, rows) for level in (0, 1) for rows in REGISTERS_ROWS]
    else:
        return tuple(permuting)
    return *estimating, *listing, of("arrange", kind), *permuting


def all_kernels(max_level: int) -> list[KernelSource]:
    """Every kernel of this family; they serve all levels."""
    kernels = [CLOSE_TESTS]
    for kind in TYPES:
        permuting = [name for name, (source, _) in KERNELS.items() if source == PERMUTATION_SOURCE and name != "assign"]
        kernels += [kernel_of(name, kind) for name in (*permuting, "arrange")]
        kernels += [kernel_of("assign", kind, few) for few in _FLAGS]
        kernels += [kernel_of(name, kind, *others) for name, *others in kernels_with_a_rule(kind)]
        if kind != "short":
            kernels += [kernel_of("estimate_by_insertion", kind, str(kept)) for kept in (*KEPT_IN_REGISTERS, 0)]
    return kernels + [registers_kernel(level, rows) for level in (0, 1) for rows in REGISTERS_ROWS]
