"""Each word of CUDA against its meaning, on the host backend and, where there is a device, on the GPU."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpupc_impl.backends import backend_class, open_backend

WORDS = Path(__file__).parent / "kernels" / "words.cu"
FULL = 0xFFFFFFFF
quick = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


NO_GPU = backend_class("cuda").unavailable()


@pytest.fixture(scope="module", params=["host"] if NO_GPU else ["host", pytest.param("cuda", marks=pytest.mark.gpu)])
def backend(request):
    return open_backend(request.param)


@pytest.mark.gpu
@pytest.mark.skipif(NO_GPU is not None, reason=NO_GPU or "")
def test_the_gpu_is_held_to_the_same_words():
    """Says in the report whether the tests below ran on a GPU, too."""


def run(backend, expression, grid, block, *args, shared_bytes=0):
    """Launch with host arrays as arguments; returns the arrays as the kernel leaves them."""
    given = [backend.upload(a) if isinstance(a, np.ndarray) else a for a in args]
    backend.kernel(WORDS, expression)(grid, block, given, shared_bytes)
    return [backend.download(d) for a, d in zip(args, given, strict=True) if isinstance(a, np.ndarray)]


dimensions = st.tuples(*[st.integers(1, 5)] * 3)


@quick
@given(grid=dimensions, block=dimensions)
def test_indexes_in_three_dimensions(backend, grid, block):
    blocks, threads = np.prod(grid), np.prod(block)
    (out,) = run(backend, "indexes", grid, block, np.full((blocks, threads, 12), -1, np.int32))
    t, b = np.arange(threads), np.arange(blocks)
    thread = np.stack([t % block[0], t // block[0] % block[1], t // (block[0] * block[1])], axis=-1)
    place = np.stack([b % grid[0], b // grid[0] % grid[1], b // (grid[0] * grid[1])], axis=-1)
    np.testing.assert_array_equal(out[..., 0:3], np.broadcast_to(thread, (blocks, threads, 3)))
    np.testing.assert_array_equal(out[..., 3:6], np.broadcast_to(place[:, None], (blocks, threads, 3)))
    np.testing.assert_array_equal(out[..., 6:9], np.broadcast_to(block, (blocks, threads, 3)))
    np.testing.assert_array_equal(out[..., 9:12], np.broadcast_to(grid, (blocks, threads, 3)))


@pytest.mark.parametrize(("grid", "block"), [((3,), (4,)), ((3, 1), (4, 1))])
def test_missing_dimensions_are_one(backend, grid, block):
    (out,) = run(backend, "indexes", grid, block, np.zeros((12, 12), np.int32))
    np.testing.assert_array_equal(out[-1], [3, 0, 0, 2, 0, 0, 4, 1, 1, 3, 1, 1])


def test_indexes_stay_with_their_thread_through_a_barrier(backend):
    (out,) = run(backend, "indexes_after_barrier", (1,), (4, 8, 16), np.zeros(512, np.int32))
    np.testing.assert_array_equal(out, np.arange(512))


@pytest.mark.parametrize("dtype", ["int32", "float64"])
@pytest.mark.parametrize("threads", [1, 2, 33, 1024])
def test_static_and_dynamic_shared_memory(backend, dtype, threads):
    values = np.random.default_rng(1).integers(-1000, 1000, (40, threads)).astype(dtype)
    name, blank = {"int32": "int", "float64": "double"}[dtype], np.zeros_like(values)
    shared = threads * values.itemsize
    _, out = run(backend, f"shared_memory<{name}>", (40,), (threads,), values, blank, shared_bytes=shared)
    np.testing.assert_array_equal(out, np.roll(values, -1, axis=1) + 2 * np.roll(values, 1, axis=1))


def test_dynamic_shared_memory_is_aligned(backend):
    (out,) = run(backend, "dynamic_shared_alignment", (1,), (1,), np.ones(1, np.uint64), shared_bytes=8)
    assert out[0] == 0


def test_device_and_constant_tables_template_arguments_and_launch_bounds(backend):
    (out,) = run(backend, "tables<3, true>", (1,), (64,), np.zeros(64, np.int32))
    expected = [2 * (a + b + 3) for a, b in zip([2, 3, 5, 7], [11, 13, 17, 19], strict=True)]
    np.testing.assert_array_equal(out, np.tile(expected, 16))


@quick
@given(data=st.data(), threads=st.sampled_from([1, 5, 32, 40, 96]))
def test_barrier_votes_count_threads_that_have_not_exited(backend, data, threads):
    rounds = np.array(data.draw(st.lists(st.integers(0, 4), min_size=threads, max_size=threads)), np.int32)
    predicate = np.random.default_rng(data.draw(st.integers(0, 99))).integers(0, 3, (threads, 4)).astype(np.int32)
    blank = np.full((threads, 4), -1, np.int32)
    arguments = rounds, predicate, np.int32(4), blank, blank, blank
    _, _, count, every, some = run(backend, "barrier_votes", (1,), (threads,), *arguments)
    takes_part = rounds[:, None] > np.arange(4)
    holds = takes_part & (predicate != 0)
    number, live = holds.sum(axis=0), takes_part.sum(axis=0)
    np.testing.assert_array_equal(count, np.where(takes_part, number, -1))
    np.testing.assert_array_equal(every != 0, np.where(takes_part, number == live, True))
    np.testing.assert_array_equal(some != 0, np.where(takes_part, number > 0, True))


@pytest.mark.parametrize("threads", [1, 31, 64, 1000, 1024])
def test_scan(backend, threads):
    values = np.arange(threads, dtype=np.int32) ** 2 % 97
    (out,) = run(backend, "scan", (1,), (threads,), values, shared_bytes=4 * threads)
    np.testing.assert_array_equal(out, np.cumsum(values))


TYPES = {"int": np.int32, "unsigned": np.uint32, "long long": np.int64, "float": np.float32, "double": np.float64}


@st.composite
def groups(draw, warps=2):
    """Masks that split each warp into groups of lanes; a lane in no group has mask 0."""
    group = np.array(draw(st.lists(st.integers(0, 3), min_size=32 * warps, max_size=32 * warps)))
    mask = np.zeros(32 * warps, np.uint32)
    for t in range(32 * warps):
        warp = group[t // 32 * 32 : t // 32 * 32 + 32]
        mask[t] = 0 if group[t] == 0 else sum(1 << lane for lane in range(32) if warp[lane] == group[t])
    return mask


def source_lanes(lane: int, argument: int, width: int) -> list[int]:
    """Which lane __shfl, _up, _down and _xor read, as the CUDA C++ guide words it."""
    start = lane // width * width
    up, down, xor = lane - argument, lane + argument, lane ^ argument
    return [
        start + argument % width,
        up if up >= start else lane,
        down if down < start + width else lane,
        xor if xor < start + width else lane,
    ]


@quick
@given(data=st.data(), mask=groups(), width=st.sampled_from([2, 4, 8, 16, 32]), type_=st.sampled_from(sorted(TYPES)))
def test_shuffles_in_groups_of_a_divergent_warp(backend, data, mask, width, type_):
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    value = random.integers(0, 2**31, 64).astype(TYPES[type_])
    argument = random.integers(0, width, 64).astype(np.int32)
    delay = np.array([m % 5 for m in mask], np.int32)  # the same for all lanes of a group
    blank = np.zeros((64, 4), TYPES[type_])
    *_, out = run(backend, f"shuffles<{type_}>", (1,), (64,), value, mask, delay, argument, np.int32(width), blank)
    for t in range(64):
        for kind, source in enumerate(source_lanes(t % 32, int(argument[t]), width)):
            if mask[t] >> source & 1:  # a lane outside the group has no defined value to give
                assert out[t, kind] == value[t // 32 * 32 + source], (t, kind)


@quick
@given(mask=groups(), seed=st.integers(0, 2**32), threshold=st.sampled_from([0, 1, 2, 3]))
def test_votes_in_groups_of_a_divergent_warp(backend, mask, seed, threshold):
    predicate = (np.random.default_rng(seed).integers(0, 3, 64) < threshold).astype(np.int32) * 8
    *_, out = run(backend, "votes", (1,), (64,), mask, predicate, np.zeros((64, 3), np.uint32))
    for t in range(64):
        if mask[t] == 0:
            continue
        holds = sum(1 << lane for lane in range(32) if predicate[t // 32 * 32 + lane] and mask[t] >> lane & 1)
        assert out[t, 0] == holds
        assert (out[t, 1] != 0) == (holds != 0)
        assert (out[t, 2] != 0) == (holds == mask[t])


@pytest.mark.parametrize("stay", [1, 7, 32])
def test_exited_lanes_do_not_vote(backend, stay):
    (out,) = run(backend, "ballot_after_exit", (1,), (32,), np.int32(stay), np.zeros(32, np.uint32))
    assert set(out[:stay]) == {(1 << stay) - 1}


def test_lanes_beyond_the_block_do_not_count(backend):
    (out,) = run(backend, "ballot_after_exit", (1,), (40,), np.int32(40), np.zeros(40, np.uint32))
    assert set(out[:32]) == {FULL}
    assert set(out[32:]) == {0xFF}


def test_warp_reduction(backend):
    values = np.arange(4 * 128, dtype=np.float64)
    _, out = run(backend, "warp_reduce", (4,), (128,), values, np.zeros(16))
    np.testing.assert_array_equal(out, values.reshape(16, 32).sum(axis=1))


def test_active_mask_holds_the_caller(backend):
    (out,) = run(backend, "active_mask", (1,), (48,), np.zeros(48, np.uint32))
    assert out.all()


@pytest.mark.parametrize("type_", ["int", "unsigned", "unsigned long long"])
def test_atomics_from_many_blocks(backend, type_):
    dtype = {"int": np.int32, "unsigned": np.uint32, "unsigned long long": np.uint64}[type_]
    info = np.iinfo(dtype)
    operand = np.random.default_rng(3).integers(info.min // 2**20, info.max // 2**20, 64 * 64, dtype)
    start = np.array([5, info.max, info.min, -1 if info.min else info.max, 0, 77, 9, 0, 11], dtype)
    _, cell = run(backend, f"atomics<{type_}>", (64,), (64,), operand, start)
    total = operand.sum(dtype=dtype)
    assert cell[0] == total + dtype(5)
    assert cell[1] == operand.min()
    assert cell[2] == operand.max()
    assert cell[3] == np.bitwise_and.reduce(operand)
    assert cell[4] == np.bitwise_or.reduce(operand)
    assert cell[5] == np.bitwise_xor.reduce(operand) ^ dtype(77)
    assert cell[6] in operand
    assert cell[7] + cell[6] == total + dtype(9)
    assert cell[8] == total + dtype(11)


def test_signed_64_bit_minimum_and_maximum(backend):
    operand = np.random.default_rng(4).integers(-(2**62), 2**62, 2048)
    _, cell = run(backend, "atomics_signed_64", (32,), (64,), operand, np.zeros(2, np.int64))
    assert cell.tolist() == [operand.min(), operand.max()]


@pytest.mark.parametrize(
    ("kernel", "type_"), [("sub", "int"), ("sub", "unsigned"), ("add_float", "float"), ("add_float", "double")]
)
def test_atomic_differences_and_sums_of_reals(backend, kernel, type_):
    operand = np.arange(2048).astype(TYPES[type_])  # reals are exact in any order
    _, cell = run(backend, f"atomic_{kernel}<{type_}>", (32,), (64,), operand, np.zeros(1, operand.dtype))
    total = operand.sum(dtype=operand.dtype, keepdims=True)
    np.testing.assert_array_equal(cell, -total if kernel == "sub" else total)


def test_atomics_return_the_old_value(backend):
    _, taken = run(backend, "tickets", (40,), (50,), np.zeros(1, np.uint64), np.zeros(2000, np.int32))
    assert (taken == 1).all()


def test_the_last_block_sees_what_the_others_wrote(backend):
    values = np.arange(500, dtype=np.int32)
    blank = np.zeros_like(values), np.zeros(1, np.uint32), np.zeros(1, np.int32)
    *_, out = run(backend, "last_block", (500,), (32,), values, *blank)
    assert out[0] == values.sum()


@pytest.mark.parametrize(
    "type_", ["int", "unsigned", "long long", "unsigned long long", "float", "double", "unsigned char"]
)
def test_relaxed_loads_and_stores(backend, type_):
    dtype = {**TYPES, "unsigned long long": np.uint64, "unsigned char": np.uint8}[type_]
    values = np.arange(32).astype(dtype)
    (out,) = run(backend, f"relaxed<{type_}>", (1,), (32,), values)
    np.testing.assert_array_equal(out, values + dtype(1))


WORDS_OF_64_BITS = st.integers(0, 2**64 - 1) | st.sampled_from([0, 1, 2**31, 2**32, 2**63, 2**64 - 1])


@quick
@given(st.lists(WORDS_OF_64_BITS, min_size=1, max_size=64))
def test_bits(backend, numbers):
    values = np.array(numbers, np.uint64)
    _, out = run(backend, "bits", (1,), (len(numbers),), values, np.zeros((len(numbers), 6), np.int32))
    for v, got in zip(numbers, out.tolist(), strict=True):
        low = v % 2**32
        counts, lowest = [low.bit_count(), v.bit_count()], [(low & -low).bit_length(), (v & -v).bit_length()]
        assert got == [*counts, *lowest, 32 - low.bit_length(), 64 - v.bit_length()]


def test_high_halves_of_products(backend):
    a, b = np.random.default_rng(5).integers(0, 2**64, (2, 64), np.uint64, endpoint=False)
    *_, out = run(backend, "high_products", (1,), (64,), a, b, np.zeros((64, 2), np.uint64))
    for x, y, got in zip(a.tolist(), b.tolist(), out.tolist(), strict=True):
        assert got == [x * y >> 64, (x % 2**32) * (y % 2**32) >> 32]


def test_reals_are_rounded_once_and_never_contracted(backend):
    from mpmath import mp, mpf

    a, b, c = np.random.default_rng(6).standard_normal((3, 64))
    c[:32] = -(a * b)[:32]  # contraction would leave the rounding error of the product here
    with np.errstate(all="raise"):
        *_, out = run(backend, "reals", (1,), (64,), a, b, c, np.zeros((64, 12)))
    with mp.workprec(400):
        fused = np.array([float(mpf(x) * mpf(y) + mpf(z)) for x, y, z in zip(a, b, c, strict=True)])
        a32, b32, c32 = (v.astype(np.float32) for v in (a, b, c))
        # A product and a sum of float32 rounded to odd in between: one rounding, as fmaf does.
        exact = [mpf(float(x)) * mpf(float(y)) + mpf(float(z)) for x, y, z in zip(a32, b32, c32, strict=True)]
    fused32 = np.array([round_to_float32(e) for e in exact])
    np.testing.assert_array_equal(out[:, 0], fused)
    np.testing.assert_array_equal(out[:, 1], a * b + c)
    assert (out[:32, 1] == 0).all()
    assert (out[:32, 0] != 0).any()
    np.testing.assert_array_equal(out[:, 2], np.sqrt(np.abs(a)))
    np.testing.assert_array_equal(out[:, 3], a / b)
    np.testing.assert_array_equal(out[:, 4], fused)
    np.testing.assert_array_equal(out[:, 5], a * b)
    np.testing.assert_array_equal(out[:, 6], (a.view(np.int64) ^ 1).view(np.float64))
    np.testing.assert_array_equal(out[:, 7].astype(np.float32), fused32)
    np.testing.assert_array_equal(out[:, 8].astype(np.float32), (a32.view(np.uint32) ^ np.uint32(1)).view(np.float32))
    np.testing.assert_array_equal(out[:, 9].astype(np.float32), b32)
    np.testing.assert_array_equal(out[:, 10], (a - b) + b / c)
    np.testing.assert_array_equal(out[:, 11], np.sqrt(np.abs(a32)).astype(np.float64) + np.sqrt(np.abs(b)))


def round_to_float32(exact) -> np.float32:
    """The float32 nearest to a number of any precision."""
    from mpmath import mp

    with mp.workprec(24):
        return np.float32(float(+exact))


@pytest.mark.parametrize(
    ("type_", "dtype"),
    [("int", np.int32), ("unsigned", np.uint32), ("long", np.int64), ("unsigned long long", np.uint64)],
)
def test_minimum_and_maximum_of_integers(backend, type_, dtype):
    info = np.iinfo(dtype)
    a, b = np.random.default_rng(7).integers(info.min, info.max, (2, 64), dtype, endpoint=True)
    a[:2] = info.min, info.max
    blank = np.zeros(64, dtype)
    *_, least, greatest = run(backend, f"extremes<{type_}>", (1,), (64,), a, b, blank, blank)
    np.testing.assert_array_equal(least, np.minimum(a, b))
    np.testing.assert_array_equal(greatest, np.maximum(a, b))


@pytest.mark.parametrize(("type_", "dtype"), [("float", np.float32), ("double", np.float64)])
def test_minimum_and_maximum_of_reals(backend, type_, dtype):
    special = np.array([0.0, -0.0, 1.5, -2.5, np.inf, -np.inf, np.nan], dtype)
    a, b = (m.ravel() for m in np.meshgrid(special, special))
    blank = np.zeros(a.size, dtype)
    *_, least, greatest = run(backend, f"extremes<{type_}>", (1,), (a.size,), a, b, blank, blank)
    np.testing.assert_array_equal(least, np.fmin(a, b))
    np.testing.assert_array_equal(greatest, np.fmax(a, b))


def test_mixed_types_take_the_common_one(backend):
    (out,) = run(backend, "mixed_extremes", (1,), (1,), np.zeros(5))
    assert out.tolist() == [1, 1, 1.25, 1.5, 7]


def test_printf(backend, capfd):
    import ctypes

    run(backend, "says", (2,), (3,))
    backend.synchronize()
    ctypes.CDLL(None).fflush(None)
    assert sorted(capfd.readouterr().out.splitlines()) == ["block 0 says 0.500", "block 1 says 0.500"]
