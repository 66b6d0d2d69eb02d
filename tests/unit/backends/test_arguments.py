"""Structs that kernels take by value: what arrives, what is refused, and declarations that do not fit their C++."""

import numpy as np
import pytest

from gpupc_impl.backends import KernelCompilationError, KernelLaunchError, KernelSource, Pointer, Struct, open_backend
from gpupc_impl.backends.sources import declaration_checks

SOURCE = """
#include "backends/simt/portable.cuh"

struct Inner {
    const double* weights;
    bool flag;
};

struct Numbers {
    bool b;
    signed char i1;
    unsigned char u1;
    short i2;
    unsigned short u2;
    int i4;
    unsigned u4;
    float f4;
    long long i8;
    unsigned long long u8;
    double f8;
    Inner inner;
    int* out;
};

__global__ void spread(const __grid_constant__ Numbers given, double* out) {
    const double values[] = {double(given.b),  double(given.i1), double(given.u1), double(given.i2), double(given.u2),
                             double(given.i4), double(given.u4), double(given.f4), double(given.i8), double(given.u8),
                             given.f8,         double(given.inner.flag),
                             given.inner.weights == nullptr ? -1.0 : given.inner.weights[1]};
    for (int k = 0; k < 13; ++k) out[k] = values[k];
    if (given.out != nullptr) given.out[0] = 7;
}

constexpr int WIDTH = 4;

struct Pair {
    int first, second;
};
struct Other {
    const float* values;
    int n;
};

template <int N>
__global__ void both(const Pair pair, int* out, const __grid_constant__ Other other) {
    out[0] = N * (pair.first - pair.second) + other.n;
}
"""

INNER = Struct("Inner", weights=Pointer(np.float64), flag=np.bool_)
SMALL = {"b": np.bool_, "i1": np.int8, "u1": np.uint8, "i2": np.int16, "u2": np.uint16, "i4": np.int32, "u4": np.uint32}
LARGE = {"f4": np.float32, "i8": np.int64, "u8": np.uint64, "f8": np.float64}
NUMBERS = Struct("Numbers", **SMALL, **LARGE, inner=INNER, out=Pointer(np.int32))
PAIR = Struct("Pair", first=np.int32, second=np.int32)
OTHER = Struct("Other", values=Pointer(np.float32), n=np.int32)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("arguments") / "structs.cu"
    path.write_text(SOURCE)
    return path


def numbers(backend, **changed):
    values = {"b": True, "i1": -128, "u1": 255, "i2": -(2**15), "u2": 2**16 - 1, "i4": -(2**31), "u4": 2**32 - 1}
    values |= {"f4": np.float32(0.5), "i8": -(2**53), "u8": np.uint64(2**63), "f8": 0.1}
    values |= {"inner": INNER(weights=backend.upload(np.array([1.0, 2.5])), flag=False)}
    return NUMBERS(**{**values, "out": backend.full(1, 0, np.int32), **changed})


def test_every_field_arrives(backend, source):
    given, out = numbers(backend), backend.empty(13, np.float64)
    backend.kernel(source, "spread", [NUMBERS])((1,), (1,), [given, out])
    expected = [1, -128, 255, -(2**15), 2**16 - 1, -(2**31), 2**32 - 1, 0.5, -(2**53), 2**63, 0.1, 0, 2.5]
    assert backend.download(out).tolist() == expected
    assert given.values["out"][0] == 7
    nothing = numbers(backend, inner=INNER(weights=None, flag=True), out=None)
    backend.kernel(source, "spread", [NUMBERS])((1,), (1,), [nothing, out])
    assert backend.download(out).tolist() == [*expected[:11], 1, -1]


def test_structs_among_other_parameters(backend, source):
    out = backend.full(1, 0, np.int32)
    arguments = [PAIR(first=9, second=2), out, OTHER(values=None, n=4)]
    backend.kernel(source, "both<3>", [PAIR, OTHER])((1,), (1,), arguments)
    assert out[0] == 3 * 7 + 4


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("i1", 128, r"Numbers\.i1 must be a Python number for int8, or a NumPy one, not 128 \(int\)"),
        ("u8", -1, r"Numbers\.u8 .* not -1 \(int\)"),
        ("i4", True, r"Numbers\.i4 .* not True \(bool\)"),
        ("i4", np.int64(1), r"Numbers\.i4 .* not int64 1"),
        ("i4", None, r"Numbers\.i4 .* not None"),
        ("f8", 1, r"Numbers\.f8 .* not 1 \(int\)"),
        ("f4", 0.5, r"Numbers\.f4 .* not 0\.5 \(float\)"),
        ("out", np.zeros(1, np.int32), r"Numbers\.out must be a device array, not a NumPy array in host memory"),
        ("inner", None, r"Numbers\.inner must be the struct Inner, not None"),
        ("inner", PAIR(first=1, second=2), r"Numbers\.inner must be the struct Inner, not the struct Pair"),
    ],
)
def test_a_wrong_field_is_named(backend, source, field, value, said):
    arguments = [numbers(backend, **{field: value}), backend.empty(13, np.float64)]
    with pytest.raises(KernelLaunchError, match=f"kernel spread: {said}"):
        backend.kernel(source, "spread", [NUMBERS])((1,), (1,), arguments)


def test_a_wrong_field_of_an_inner_struct_is_named(backend, source):
    kernel, out = backend.kernel(source, "spread", [NUMBERS]), backend.empty(13, np.float64)
    cells = backend.full((4, 2), 1, np.float64)
    for wrong, said in (
        (backend.full(2, 1, np.float32), "a device array of float64, not an array of float32"),
        (cells[:, 0], "a C-contiguous array, not one with strides"),
    ):
        given = numbers(backend, inner=INNER(weights=wrong, flag=True))
        with pytest.raises(KernelLaunchError, match=rf"kernel spread: Numbers\.inner\.weights must be {said}"):
            kernel((1,), (1,), [given, out])


def test_a_missing_or_unknown_field_is_named():
    with pytest.raises(TypeError, match="Pair takes first, second; missing or unknown: second, third"):
        PAIR(first=1, third=3)


@pytest.mark.parametrize(
    ("expression", "structs", "said"),
    [
        ("both<3>", [OTHER, PAIR], "Python passes these structs to both<3>: Other, Pair"),
        ("both<3>", [PAIR], "Python passes these structs to both<3>: Pair"),
        ("both<3>", [], "Python passes these structs to both<3>: none"),
        (
            "both<3>",
            [Struct("Pair", second=np.int32, first=np.int32), OTHER],
            "Python declares second of Pair as int at byte 0",
        ),
        ("both<3>", [Struct("Pair", first=np.int32), OTHER], "Pair has 4 bytes as Python declares it"),
        ("both<3>", [Struct("Pair", first=np.int32, third=np.int32), OTHER], "third"),
        (
            "both<3>",
            [PAIR, Struct("Other", values=Pointer(np.float64), n=np.int32)],
            r"Python declares values of Other as double\* at byte 0",
        ),
        ("both<3>", [PAIR, Struct("Other", values=np.uint64, n=np.int32)], "values of Other as unsigned long long"),
    ],
)
def test_a_declaration_that_does_not_fit_does_not_compile(backend, source, expression, structs, said):
    with pytest.raises(KernelCompilationError, match=said):
        open_backend("host").kernel(source, expression, structs)


def test_a_nested_struct_is_checked_as_well():
    checks = declaration_checks([KernelSource("spread.cu", "spread", (NUMBERS,))])
    assert "decltype(Inner::weights), double*>" in checks
    assert checks.index("sizeof(Inner) == 16") < checks.index("sizeof(Numbers) ==")


def test_a_constant_that_differs_between_python_and_the_source_does_not_compile(source):
    backend = open_backend("host")
    assert backend.kernel(source, "both<3>", [PAIR, OTHER], {"WIDTH": 4}) is not None
    with pytest.raises(KernelCompilationError, match="Python declares WIDTH as 5"):
        open_backend("host").kernel(source, "both<3>", [PAIR, OTHER], {"WIDTH": 5})
