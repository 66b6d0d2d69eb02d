"""Planted faults are seen by the sanitizers, and kernels without faults are clean."""

import contextlib
import subprocess
from pathlib import Path

import pytest

from gpupc_impl.backends import KernelSource
from gpupc_impl.backends.simt import build
from tests.sanitized import check, run_python

TROUBLE = Path(__file__).parent / "kernels" / "trouble.cu"
WORDS = Path(__file__).parent / "kernels" / "words.cu"
START = f"""
import numpy as np
from gpupc_impl.backends import KernelLaunchError, open_backend
backend = open_backend("host")
trouble, words = {str(TROUBLE)!r}, {str(WORDS)!r}
cells = backend.full(10, 2**30, np.int32)
"""
WRITE = "backend.kernel(trouble, '{kernel}')((2,), (1,), [{array}np.int32({index})], 32)"


def needs(*kinds: str) -> pytest.MarkDecorator:
    reason = build.missing_sanitizer(kinds)
    return pytest.mark.skipif(reason is not None, reason=reason or "")


needs_address = needs("address", "undefined")
needs_thread = needs("thread")


def sanitized(script: str, sanitizers: str = "address,undefined") -> subprocess.CompletedProcess:
    return run_python(START + script, sanitizers)


@needs_address
@pytest.mark.parametrize(
    ("launch", "report"),
    [
        (WRITE.format(kernel="write_at", array="cells, ", index=10), "AddressSanitizer: heap-buffer-overflow"),
        pytest.param(
            *(WRITE.format(kernel="write_at", array="cells, ", index=-1), "AddressSanitizer: heap-buffer-overflow"),
            marks=pytest.mark.slow,
        ),
        (WRITE.format(kernel="write_dynamic_at", array="", index=8), "AddressSanitizer: heap-buffer-overflow"),
        (WRITE.format(kernel="write_static_at", array="cells, ", index=8), "index 8 out of bounds for type 'int"),
        ("backend.kernel(trouble, 'double_it')((1,), (1,), [cells])", "signed integer overflow: 1073741824"),
    ],
)
def test_a_fault_is_seen(launch, report):
    done = sanitized(launch)
    assert done.returncode != 0
    assert report in done.stderr
    assert "trouble.cu" in done.stderr


@needs_address
def test_kernels_without_faults_are_clean():
    done = sanitized(
        "\n".join(
            [
                WRITE.format(kernel="write_at", array="cells, ", index=9),
                WRITE.format(kernel="write_at", array="cells, ", index=0),
                WRITE.format(kernel="write_dynamic_at", array="", index=7),
                WRITE.format(kernel="write_static_at", array="cells, ", index=7),
                """
for _ in range(2):
    try:  # what a deadlock leaves on the stacks of its fibers must not be mistaken for a fault later
        backend.kernel(trouble, "shuffle_against_vote")((8,), (64,), [])
    except KernelLaunchError:
        pass
    else:
        raise SystemExit("no deadlock")
    ones = backend.full(1024, 1, np.int32)
    backend.kernel(words, "scan")((1,), (1024,), [ones], 4096)
    assert (backend.download(ones) == np.arange(1, 1025)).all()
    array = backend.upload(np.arange(512.0))
    out = backend.full(16, 0, np.float64)
    backend.kernel(words, "warp_reduce")((4,), (128,), [array, out])
    assert backend.download(out).sum() == np.arange(512).sum()
""",
            ]
        )
    )
    assert done.returncode == 0, done.stderr


@needs_address
def test_memory_that_nobody_wrote_is_nonsense():
    done = sanitized("print(backend.empty(3, np.int16).tolist())")
    assert done.stdout == "[-515, -515, -515]\n"


RACE = "backend.kernel(trouble, '{kernel}<{cured}>')((8,), (64,), [backend.full(8 * 64, 0, np.int32)])\n"
KINDS = ["reverse_block", "flag_race", "swap_in_warp", "blocks_race"]
"""Of a block, of the grid, of a warp and of blocks."""


@needs_thread
@pytest.mark.parametrize("kernel", KINDS)
def test_a_race_is_seen(kernel):
    done = sanitized(RACE.format(kernel=kernel, cured="false"), "thread")
    assert done.returncode != 0
    assert "WARNING: ThreadSanitizer: data race" in done.stderr
    assert "trouble.cu" in done.stderr


@needs_thread
def test_what_cuda_orders_is_no_race():
    done = sanitized(
        "".join(RACE.format(kernel=kernel, cured="true") for kernel in KINDS)
        + """
values = backend.upload(np.arange(64, dtype=np.int32))
part, arrived, out = (backend.full(n, 0, t) for n, t in ((64, np.int32), (1, np.uint32), (1, np.int32)))
backend.kernel(words, "last_block")((64,), (32,), [values, part, arrived, out])
for _ in range(2):
    backend.kernel(words, "scan")((1,), (1000,), [backend.full(1000, 1, np.int32)], 4000)
backend.kernel(words, "relaxed<int>")((8,), (64,), [values])
# What a thread leaves on its stack is no race either.
backend.kernel(words, "sort_own")((5,), (100,), [values, backend.full(500, 0, np.int32)])
try:
    backend.kernel(trouble, "barrier_against_warp")((2,), (64,), [])
except KernelLaunchError as error:
    assert "is deadlocked; of 64 threads" in str(error)
else:
    raise SystemExit("no deadlock")
""",
        "thread",
    )
    assert done.returncode == 0, done.stderr


@needs_address
@needs_thread
@pytest.mark.parametrize(
    ("kernels", "report"),
    [
        (["double_it"], "signed integer overflow(?s:.*)in double_it"),
        (["reverse_block<true>", "reverse_block<false>"], "data race(?s:.*)reverse_block<false>"),
        (["reverse_block<true>", "swap_in_warp<true>"], None),
    ],
)
def test_of_kernels_compiled_together_each_is_checked(kernels, report, tmp_path):
    launch = f"""
for kernel in {kernels}:
    backend.kernel(trouble, kernel)((8,), (64,), [backend.full(8 * 64, 2**30, np.int32)])
"""
    required = [KernelSource(str(TROUBLE), kernel) for kernel in kernels]
    with pytest.raises(AssertionError, match=report) if report else contextlib.nullcontext():
        check(START + launch, tmp_path / "kernels", required)
    assert {path.stem[-2:] for path in (tmp_path / "kernels").iterdir()} == {f"-{n}" for n in range(len(kernels))}


@needs_address
def test_a_kernel_that_is_not_launched_is_named(tmp_path):
    with pytest.raises(AssertionError, match=r"not launched: \['double_it'\]"):
        check(START, tmp_path / "kernels", [KernelSource(str(TROUBLE), "double_it")])
