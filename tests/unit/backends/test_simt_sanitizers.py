"""Planted faults are seen by the sanitizers, and kernels without faults are clean."""

import contextlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gpupc_impl.backends import KernelSource, open_backend, replay
from gpupc_impl.backends.simt import build
from tests.sanitized import address_environment, check

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


def sanitized(script: str) -> subprocess.CompletedProcess:
    """Run a script under the address and undefined-behaviour sanitizers."""
    command = [sys.executable, "-c", START + script]
    return subprocess.run(command, env=address_environment(), capture_output=True, text=True, timeout=300)


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


# --- replay ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def recorder(tmp_path, monkeypatch):
    """A backend whose launches are recorded, and where."""
    monkeypatch.setenv("GPUPC_RECORD_LAUNCHES", str(tmp_path / "launches"))
    return open_backend("host"), tmp_path / "launches"


@needs_thread
@pytest.mark.parametrize(
    "pairs",
    [
        pytest.param(["reverse_block<{}>", "flag_race<{}>"], id="of a block and of the grid"),
        pytest.param(["swap_in_warp<{}>", "blocks_race<{}>"], id="of a warp and of blocks", marks=pytest.mark.slow),
    ],
)
def test_races_are_seen_and_their_cures_are_clean(recorder, pairs):
    backend, folder = recorder
    for kernel in [pair.format(cured) for pair in pairs for cured in ("false", "true")]:
        backend.kernel(TROUBLE, kernel)((8,), (64,), [backend.full(8 * 64, 0, np.int32)])
    results = {result.kernel.split(" of ")[0]: result for result in replay.replay(folder)}
    for pair in pairs:
        assert "WARNING: ThreadSanitizer: data race" in results[pair.format("false")].report, pair
        assert "trouble.cu" in results[pair.format("false")].report
        assert results[pair.format("true")].clean, results[pair.format("true")].report


@needs_address
@needs_thread
@pytest.mark.parametrize(
    ("kernels", "report"),
    [
        (["double_it"], "signed integer overflow(?s:.*)in double_it"),
        (["reverse_block<true>", "reverse_block<false>"], "reverse_block<false>(?s:.*)data race"),
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
        check(START + launch, tmp_path / "launches", required)
    assert {path.stem[-2:] for path in (tmp_path / "kernels").iterdir()} == {f"-{n}" for n in range(len(kernels))}


@needs_thread
def test_words_that_order_memory_do_so_for_the_sanitizer(recorder, capsys):
    backend, folder = recorder
    values = backend.upload(np.arange(64, dtype=np.int32))
    part, arrived, out = (backend.full(n, 0, t) for n, t in ((64, np.int32), (1, np.uint32), (1, np.int32)))
    backend.kernel(WORDS, "last_block")((64,), (32,), [values, part, arrived, out])
    for _ in range(2):
        backend.kernel(WORDS, "scan")((1,), (1000,), [backend.full(1000, 1, np.int32)], 4000)
    backend.kernel(WORDS, "relaxed<int>")((8,), (64,), [values])
    status = replay.main([str(folder)])
    assert status == 0, capsys.readouterr().out


@needs_thread
def test_what_a_thread_leaves_on_the_stack_is_no_race(recorder, capsys):
    backend, folder = recorder
    values = backend.upload(np.arange(64, dtype=np.int32))
    backend.kernel(WORDS, "sort_own")((5,), (100,), [values, backend.full(500, 0, np.int32)])
    status = replay.main([str(folder)])
    assert status == 0, capsys.readouterr().out


@needs_thread
def test_a_replay_that_deadlocks_fails(recorder, capsys):
    backend, folder = recorder
    with pytest.raises(Exception, match="deadlocked"):
        backend.kernel(TROUBLE, "barrier_against_warp")((2,), (64,), [])
    assert replay.main([str(folder)]) == 1
    said = capsys.readouterr().out
    assert "barrier_against_warp of" in said
    assert "is deadlocked; of 64 threads" in said


def test_launches_of_two_backend_objects_are_all_recorded(recorder):
    first, folder = recorder
    for backend in (first, open_backend("host")):
        backend.kernel(TROUBLE, "nothing")((1,), (1,), [])
    assert len(list(folder.glob("*.json"))) == len(list(folder.glob("*.launch"))) == 2


def test_a_folder_without_launches_is_named(tmp_path, capsys):
    assert replay.main([str(tmp_path)]) == 2
    assert "no recorded launches" in capsys.readouterr().err
