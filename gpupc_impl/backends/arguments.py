"""Arguments of kernels: their types in C++, the values that Python passes, and the checks that the two agree.

A kernel takes pointers, numbers, and structs by value. The description of a compiled kernel suffices to check pointers
and numbers. A struct is declared again in Python, field by field in the order of C++::

    SEARCH = Struct("Search", C=Pointer(np.float64), critical_r_squared=np.float64, best=BEST_KEYS)
    kernel = backend.kernel("gaussian/kernels/cupc_s.cu", "cupc_s<Exactly<3>>", [ROWS, SEARCH])
    kernel(grid, block, [rows, SEARCH(C=matrix, critical_r_squared=0.1, best=keys), np.bool_(True)])

Both backends compile these declarations with the kernel, as assertions on the types and offsets of the fields
(`sources.declaration_checks`), so a struct changed on one side only does not compile. Every launch checks the values of
the fields. Constants that Python and CUDA share, such as the threads of a block, are asserted in the same way."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import struct as packing
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

_CPP = {
    "bool": "bool",
    "int8": "signed char",
    "uint8": "unsigned char",
    "int16": "short",
    "uint16": "unsigned short",
    "int32": "int",
    "uint32": "unsigned",
    "int64": "long long",
    "uint64": "unsigned long long",
    "float32": "float",
    "float64": "double",
}

Address = Callable[[Any], int]  # returns the address of a C-contiguous device array; else raises `Unfit`


class Unfit(TypeError):
    """Raised if a value does not fit a parameter; ``field`` is the path to the field of a struct."""

    field = ""

    def __init__(self, expected: str, actual: str):
        super().__init__(f"must be {expected}, not {actual}")


class KernelParameter(abc.ABC):
    """A parameter or a struct's field: its size and alignment (`storage`), and its C++ type without const (`cpp`)."""

    storage: np.dtype
    cpp: str

    @abc.abstractmethod
    def encode(self, value: Any, address: Address) -> bytes:
        """Return the bytes that the kernel receives for a value."""


class Pointer(KernelParameter):
    """A pointer, to const or not. Its values are device arrays of one type, or None for the null pointer. The elements
    of an array must have the type's size and kind; signed integers, unsigned integers and bools count as one kind."""

    storage = np.dtype(np.uint64)

    def __init__(self, element: DTypeLike | None):
        self.element = None if element is None else np.dtype(element)
        self.cpp = "void*" if self.element is None else f"{_CPP[self.element.name]}*"

    def encode(self, value: Any, address: Address) -> bytes:
        if value is None:
            return bytes(8)
        if isinstance(value, np.generic) or not hasattr(value, "dtype") or not self._points_to(value.dtype):
            raise Unfit(f"a device array of {'any type' if self.element is None else self.element}", described(value))
        return address(value).to_bytes(8, sys.byteorder)

    def _points_to(self, dtype: np.dtype) -> bool:
        if self.element is None:
            return True
        kinds = {self.element.kind, dtype.kind}
        return self.element.itemsize == dtype.itemsize and (len(kinds) == 1 or kinds <= set("biu"))


class Number(KernelParameter):
    """A number: a NumPy scalar of exactly this type or, if the type is declared in Python, a Python number."""

    def __init__(self, dtype: DTypeLike, declared: bool = False):
        self.storage, self.declared = np.dtype(dtype), declared
        self.cpp = _CPP[self.storage.name]
        exact = declared and self.storage != np.float32  # A Python float has 64 bits.
        # `struct` uses the same letters as NumPy.
        self._pack = packing.Struct(self.storage.char).pack if exact else None
        self._python = {"b": bool, "f": float}.get(self.storage.kind, int)

    def encode(self, value: Any, address: Address) -> bytes:
        if isinstance(value, np.generic):
            if value.dtype == self.storage:
                return value.tobytes()
        elif self._pack is not None and type(value) is self._python:
            with contextlib.suppress(packing.error):  # The number is too large for the type.
                return self._pack(value)
        expected = f"a Python number for {self.storage}, or a NumPy one" if self.declared else f"a NumPy {self.storage}"
        raise Unfit(expected, described(value))


class Word(KernelParameter):
    """A parameter as PTX describes it: its kind ("f": floating point, "b": any, otherwise integer) and its number of
    bits. PTX does not distinguish a pointer from an integer of 64 bits."""

    def __init__(self, kind: str, bits: int):
        self.kind, self.bits = kind, bits
        self._kinds = {"f": "f", "b": "biuf"}.get(kind, "biu")
        self.storage = (
            np.dtype(f"V{bits // 8}") if kind == "b" else np.dtype(f"{'f' if kind == 'f' else 'u'}{bits // 8}")
        )
        self._pointer = Pointer(None) if kind != "f" and bits == 64 else None
        # A cache of the NumPy types that fit, because comparing kinds and sizes is slow.
        self._fitting: set[type] = set()

    def encode(self, value: Any, address: Address) -> bytes:
        if type(value) in self._fitting:
            encoded: bytes = value.tobytes()
            return encoded
        if isinstance(value, np.generic):
            if value.dtype.kind in self._kinds and value.dtype.itemsize * 8 == self.bits:
                self._fitting.add(type(value))
                return value.tobytes()
        elif self._pointer is not None and (value is None or hasattr(value, "dtype")):
            return self._pointer.encode(value, address)
        scalar = f"a NumPy {self.bits}-bit {'floating-point' if self.kind == 'f' else 'integer'} scalar"
        raise Unfit(scalar if self._pointer is None else f"a device array, None or {scalar}", described(value))


class Struct(KernelParameter):
    """A struct that kernels take by value: its name in C++, with its template arguments, and all fields in order, each
    a `Pointer`, a `Struct`, or a NumPy type for a number."""

    def __init__(self, name: str, /, **fields: Pointer | Struct | DTypeLike):
        self.cpp = self.name = name
        self.fields: dict[str, KernelParameter] = {
            field: kind if isinstance(kind, KernelParameter) else Number(kind, declared=True)
            for field, kind in fields.items()
        }
        self.storage = np.dtype([(field, kind.storage) for field, kind in self.fields.items()], align=True)
        assert self.storage.fields is not None
        self.offsets = {field: self.storage.fields[field][1] for field in self.fields}

    def __call__(self, **values: Any) -> Filled:
        if values.keys() != self.fields.keys():
            wrong = ", ".join(sorted(values.keys() ^ self.fields.keys()))
            raise TypeError(f"{self.name} takes {', '.join(self.fields)}; missing or unknown: {wrong}")
        return Filled(self, values)

    def encode(self, value: Any, address: Address) -> bytes:
        if not isinstance(value, Filled) or value.struct is not self:
            raise Unfit(f"the struct {self.name}", described(value))
        encoded = value.encoded.get(address)
        if encoded is None:
            encoded = value.encoded[address] = self._encode(value, address)
        return encoded

    def _encode(self, value: Filled, address: Address) -> bytes:
        encoded = bytearray(self.storage.itemsize)
        for field, kind in self.fields.items():
            try:
                part = kind.encode(value.values[field], address)
            except Unfit as unfit:
                unfit.field = f".{field}{unfit.field}"
                raise
            offset = self.offsets[field]
            encoded[offset : offset + len(part)] = part
        return bytes(encoded)


@dataclasses.dataclass(frozen=True)
class Filled:
    """A struct with its values; see `Struct.__call__`."""

    struct: Struct
    values: Mapping[str, Any]
    encoded: dict[Address, bytes] = dataclasses.field(default_factory=dict, repr=False, compare=False)


def described(value: Any) -> str:
    if isinstance(value, Filled):
        return f"the struct {value.struct.name}"
    if isinstance(value, np.generic):
        return f"{value.dtype} {value}"
    if hasattr(value, "dtype"):
        return f"an array of {value.dtype}"
    return f"{value!r} ({type(value).__name__})"
