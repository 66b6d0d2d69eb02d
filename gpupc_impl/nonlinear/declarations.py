"""The sources of the family's kernels, and the structs and constants that kernels share with Python. Both backends
assert structs and constants when they compile a kernel (backends/arguments.py). Values are short, float or double
(kernels/numbers.cuh); most kernels and structs are templates of the type of a value."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gpupc_impl.backends import Backend, KernelSource, Pointer, Struct

PERMUTATION_SOURCE = "nonlinear/kernels/permutation.cu"
COUNTING_SOURCE = "nonlinear/kernels/estimate.cu"
LISTS_SOURCE = "nonlinear/kernels/lists.cu"
BUCKETS_SOURCE = "nonlinear/kernels/buckets.cu"
FAR_SOURCE = "nonlinear/kernels/far.cu"
REGISTERS_SOURCE = "nonlinear/kernels/registers.cu"
INSERTION_SOURCE = "nonlinear/kernels/insertion.cu"

TYPES = {"short": (np.int16, np.int16), "float": (np.float32, np.int32), "double": (np.float64, np.int64)}
"""The C++ types of a value, each with the NumPy types of a value and of the integer keys that order distances."""

# --- structs ---------------------------------------------------------------------------------------------------------
INT, FLAG, BYTES, WORDS = np.int32, np.bool_, Pointer(np.uint8), Pointer(np.uint32)
VALUES, KEY = object(), object()  # placeholders for what depends on the type of a value: a pointer, and a key


def _by_type(name: str, **fields: Any) -> dict[str, Struct]:
    """Return the instances of a struct template, by the type of a value."""
    return {
        kind: Struct(
            f"{name}<{kind}>", **{field: {VALUES: Pointer(value), KEY: key}.get(of, of) for field, of in fields.items()}
        )
        for kind, (value, key) in TYPES.items()
    }


SETS = _by_type("Sets", values=VALUES, variables=Pointer(INT), order=Pointer(INT), n=INT, level=INT)
TESTS = Struct(
    "Tests",
    pairs=Pointer(INT),
    **dict.fromkeys(("count", "replicates", "k"), INT),
    psi=Pointer(np.int64),
    partials=Pointer(np.uint64),
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
PANEL = 32  # number of replicates in a panel of columns; the number of all replicates is rounded up to a multiple of it
FEW_NEAREST = 16  # number of samples in a list up to which `assign` keeps the order of the list in one 64-bit number
VECTOR_BYTES = 64  # the bytes of the SIMD vector that a thread of the host backend processes in `estimate`
BINS, FINE = 32, 256  # buckets of a list, and of the histogram that determines the width of these buckets
ENTRIES = 8  # the number of entries to a multiple of which lists are padded
HEADER_BYTES = 280
ENTRY_BYTES = {"short": 4, "float": 8, "double": 16}
CELL_BYTES = {"short": 2, "float": 2, "double": 4}
"""The bytes of the header of a sample's lists and, by the type of a value, of a list's entry and a bucket's counter."""

REGISTERS_REPLICATES, REGISTERS_BYTES = 8, 24
"""Replicates of a warp of `estimate_by_registers`, and a sample's bytes of shared memory, for values and a digamma."""

REGISTERS_END = 2**11  # up to which 16-bit floating-point numbers of `estimate_by_registers` hold every integer

_LISTS = {
    "BINS": BINS,
    "ENTRIES": ENTRIES,
    "sizeof(Header)": HEADER_BYTES,
    **{f"sizeof(Entry<{kind}>)": size for kind, size in ENTRY_BYTES.items()},
}
CONSTANTS: Mapping[str, Mapping[str, int]] = {
    PERMUTATION_SOURCE: {"PANEL": PANEL, "FEW_NEAREST": FEW_NEAREST},
    COUNTING_SOURCE: {"VECTOR_BYTES": VECTOR_BYTES},
    LISTS_SOURCE: {**_LISTS, "FINE": FINE},
    BUCKETS_SOURCE: {
        **_LISTS,
        "PANEL": PANEL,
        **{f"sizeof(Cells<{kind}>::Cell)": size for kind, size in CELL_BYTES.items()},
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
"""The constants that kernels must agree with, by source."""

# --- kernels ---------------------------------------------------------------------------------------------------------
KEPT_IN_REGISTERS = (8, 32)  # the numbers of nearest distances that `estimate_by_insertion` can keep in registers
REGISTERS_ROWS = (8, 12, 16)  # the neighbours whose distances a warp of `estimate_by_registers` keeps, divided by 32


class Template(NamedTuple):
    """A kernel whose first template argument is the type of a value. Its instances have the further template arguments
    in `variants`, except for a rule for distances; `kinds` are the types of values that it is for."""

    source: str
    structs: Sequence[Struct | Mapping[str, Struct]]
    variants: Sequence[tuple[str, ...]] = ((),)
    kinds: Sequence[str] = tuple(TYPES)


FLAGS = (("true",), ("false",))

KERNELS = {
    "arrange": Template(PERMUTATION_SOURCE, [SETS]),
    "nearest": Template(PERMUTATION_SOURCE, [SETS]),
    "assign": Template(PERMUTATION_SOURCE, [SETS, SHUFFLES], FLAGS),
    "assign_racing": Template(PERMUTATION_SOURCE, [SETS, SHUFFLES]),
    "permute_freely": Template(PERMUTATION_SOURCE, [SETS]),
    "lay_side_by_side": Template(PERMUTATION_SOURCE, [SETS]),
    "estimate": Template(COUNTING_SOURCE, [SETS, TESTS, COUNTING], FLAGS),
    "list_neighbours": Template(LISTS_SOURCE, [SETS, TESTS, LISTS], FLAGS),
    "estimate_by_buckets": Template(BUCKETS_SOURCE, [SETS, TESTS, LISTS, COLUMNS], FLAGS),
    "estimate_far": Template(FAR_SOURCE, [SETS, TESTS, LISTS, COLUMNS], FLAGS),
    "estimate_by_registers": Template(
        REGISTERS_SOURCE,
        [SETS, TESTS, LISTS, COLUMNS],
        [(*flag, str(rows)) for flag in FLAGS for rows in REGISTERS_ROWS],
        ("short",),
    ),
    "estimate_by_insertion": Template(
        INSERTION_SOURCE, [SETS, TESTS], [(str(kept),) for kept in (*KEPT_IN_REGISTERS, 0)], ("float", "double")
    ),
}


def kernel_of(name: str, kind: str, *arguments: str) -> KernelSource:
    """Return a kernel of `KERNELS` for a type of value, with further template arguments."""
    source, structs = KERNELS[name][:2]
    own = tuple(struct if isinstance(struct, Struct) else struct[kind] for struct in structs)
    return KernelSource(source, f"{name}<{', '.join((kind, *arguments))}>", own, CONSTANTS[source])


def instances(
    of: Callable[..., KernelSource], names: Iterable[str], kinds: Iterable[str] = TYPES
) -> list[KernelSource]:
    return [
        of(name, kind, *variant)
        for name in names
        for kind in kinds
        if kind in KERNELS[name].kinds
        for variant in KERNELS[name].variants
    ]


def all_kernels(max_level: int) -> list[KernelSource]:
    """Return every kernel of this family; all levels have the same kernels."""
    return instances(kernel_of, KERNELS)


def search_kernels(
    backend: Backend, params: Mapping[str, Any], pmax: bool, max_level: int | None
) -> Sequence[KernelSource]:
    """Return the kernels that a search of ranks with the default k_CMI needs (see `Method.kernels`)."""
    return first_kernels(kernel_of, backend.name, params["selection"])


@functools.cache
def first_kernels(of: Callable[..., KernelSource], backend: str, selection: str) -> tuple[KernelSource, ...]:
    """Return a search's first kernels on a backend, by the family's `kernel_of` and the parameter `selection`."""
    if selection == "auto":
        selection = "counting" if backend == "host" else "buckets"
    listed = "list_neighbours", "estimate_far"
    estimating = {
        "counting": ("estimate",),
        "buckets": ("estimate_by_buckets", *listed),
        "registers": ("estimate_by_registers", *listed),
        "insertion": (),
    }
    names = (*estimating[selection], "permute_freely", "lay_side_by_side", "arrange", "nearest")
    return *instances(of, names, ("short",)), of("assign", "short", "true")
