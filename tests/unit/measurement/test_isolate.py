"""Whatever happens in a worker becomes a status and a sentence, and no process is left behind."""

import io
import signal
import subprocess
import sys
import textwrap
import time

import psutil
import pytest

from gpupc_impl.measurement import isolate
from gpupc_impl.measurement.isolate import Worker

SERVER = textwrap.dedent("""
    import ctypes, functools, os, signal, stat, subprocess, sys, threading, time
    from gpupc_impl.measurement.isolate import serve

    @functools.cache
    def spin():
        import numba
        @numba.njit
        def loop(x):
            while x >= 0:
                x = (x * 7 + 1) % 1000003
            return x
        return loop

    def pipes():
        found = []
        for number in map(int, os.listdir("/proc/self/fd")):
            try:
                if number > 2 and stat.S_ISFIFO(os.fstat(number).st_mode):
                    found.append(number)
            except OSError:
                pass
        return found

    def write(numbers, text):
        for number in numbers:
            try:
                os.write(number, text.encode())
            except OSError:
                pass

    def escape(work):
        # A grandchild in a session of its own, whose parent is gone: its process id.
        gets, tells = os.pipe()
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.write(tells, str(os.getpid()).encode())
                work()
            os._exit(0)
        os.wait()
        return int(os.read(gets, 100))

    def eat():
        eaten = b"x" * (600 << 20)
        time.sleep(600)

    def answer(message):
        what = message["do"]
        if what == "write to its pipes":
            write(pipes(), message["text"])
        if what == "escape":
            return escape(lambda: time.sleep(600))
        if what == "escape and die":
            print(escape(lambda: time.sleep(600)), flush=True)
            os._exit(4)
        if what == "escape and eat":
            escape(eat)
            time.sleep(600)
        if what == "object":
            return {1, 2}
        if what == "endless line":
            for _ in range(40):
                os.write(1, b"x" * (1 << 20))
        if what == "echo":
            return message["value"]
        if what == "hang":
            ctypes.PyDLL(None).sleep(600)  # in C, with the interpreter's lock held
        if what == "ignore signals":
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM, signal.SIGPIPE):
                signal.signal(number, signal.SIG_IGN)
            time.sleep(600)
        if what == "half an answer":
            write(pipes(), '{"token": "')
            os._exit(0)
        if what == "spin":
            return spin()(message["start"])
        if what == "eat":
            eaten = []
            while True:
                eaten.append(b"x" * (1 << 20))
        if what == "memory error":
            raise MemoryError(message.get("text", ""))
        if what == "raise":
            raise RuntimeError("the third\\nwheel came off")
        if what == "sys.exit":
            sys.exit(3)
        if what == "exit":
            os._exit(message["code"])
        if what == "signal":
            os.kill(os.getpid(), message["number"])
        if what == "segfault":
            ctypes.string_at(0)
        if what == "print":
            print("from Python")
            sys.stdout.flush()
            os.write(1, b"from C\\n")
        if what == "child":
            return subprocess.Popen(["sleep", "600"], start_new_session=message.get("away", False)).pid
        if what == "fork and die":
            if os.fork() == 0:
                ctypes.CDLL(None).sleep(600)
            os._exit(4)

    serve(answer)
""")
ARGV = [sys.executable, "-c", SERVER]
PATIENCE_S = 30


def is_gone(pid: int) -> bool:
    """Whether a process ended; one that nobody has collected yet counts."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


@pytest.fixture
def log():
    return io.StringIO()


@pytest.fixture
def worker(log):
    with Worker(ARGV, log=log, prefix="[w] ") as worker:
        yield worker


@pytest.fixture(scope="module")
def robust_worker():
    """One that lives through a whole module of tests."""
    with Worker(ARGV, log=io.StringIO()) as worker:
        yield worker


def test_answers_again_and_again(robust_worker):
    for value in (1, "text", {"nested": [1.5, None]}, "x" * 300_000):
        outcome = robust_worker.request({"do": "echo", "value": value}, PATIENCE_S)
        assert (outcome.status, outcome.why, outcome.value) == ("ok", None, value)
    assert robust_worker.alive


@pytest.mark.parametrize("what", ["spin", "hang", "ignore signals"])
def test_time_limit_stops_compiled_code(worker, what):
    assert worker.request({"do": "spin", "start": -1}, PATIENCE_S).value == -1  # compiles
    started = time.monotonic()
    outcome = worker.request({"do": what, "start": 1}, 0.5)
    assert outcome.status == "timeout"
    assert outcome.why == "no answer within the time limit of 0.5 s"
    assert time.monotonic() - started < PATIENCE_S
    assert not worker.alive
    assert not psutil.pid_exists(worker.pid)


def test_compiling_does_not_count_against_the_time_limit(log):
    """In the kernels' compiler and in Numba's, and what follows counts."""
    server = textwrap.dedent("""
        import time
        from gpupc_impl.backends.compilations import compiling
        from gpupc_impl.measurement.clock import numba_compilation
        from gpupc_impl.measurement.isolate import serve

        def answer(message):
            with compiling(), compiling():
                time.sleep(message["compile"])
            if message["numba"]:
                import numba
                from numba.core import event
                with numba_compilation(), event.trigger_event("numba:compile", data={"dispatcher": None}):
                    time.sleep(message["compile"])
            time.sleep(message["run"])
            return "done"

        serve(answer)
    """)
    with Worker([sys.executable, "-c", server], log=log) as worker:
        assert worker.request({"compile": 0, "run": 0, "numba": True}, PATIENCE_S).ok  # imports
        for numba in (False, True):
            assert worker.request({"compile": 0.8, "run": 0, "numba": numba}, 0.5).value == "done"
        assert worker.request({"compile": 0.8, "run": 30, "numba": False}, 0.5).status == "timeout"


def test_memory_limit(log):
    with Worker(ARGV, log=log) as worker:
        worker.memory_limit_bytes = limit = 200 << 20
        outcome = worker.request({"do": "eat"}, PATIENCE_S)
        assert outcome.status == "oom"
        assert "over its limit of 209,715,200 bytes" in outcome.why
        assert worker.memory_peak > limit
        assert not psutil.pid_exists(worker.pid)


@pytest.mark.parametrize(
    ("message", "status", "why"),
    [
        ({"do": "memory error", "text": "no room for 5 elephants"}, "oom", "no room for 5 elephants"),
        ({"do": "memory error"}, "oom", "host memory is exhausted (MemoryError)"),
        ({"do": "raise"}, "error", "RuntimeError: the third wheel came off"),
        ({"do": "sys.exit"}, "error", "SystemExit: 3"),
    ],
)
def test_exceptions_leave_the_worker_alive(robust_worker, message, status, why):
    outcome = robust_worker.request(message, PATIENCE_S)
    assert (outcome.status, outcome.why) == (status, why)
    assert robust_worker.request({"do": "echo", "value": 1}, PATIENCE_S).value == 1


def test_traceback_and_prints_go_to_the_log(worker, log):
    worker.request({"do": "print"}, PATIENCE_S)
    worker.request({"do": "raise"}, PATIENCE_S)
    worker.close()
    lines = log.getvalue().splitlines()
    assert all(line.startswith("[w] ") for line in lines)
    assert "[w] from Python" in lines
    assert "[w] from C" in lines
    assert "[w] Traceback (most recent call last):" in lines


@pytest.mark.parametrize("text", ["garbage\n", "[1]\n"])
def test_what_is_no_answer_ends_the_worker_with_a_sentence(worker, text):
    assert worker.request({"do": "echo", "value": 1}, PATIENCE_S).value == 1
    outcome = worker.request({"do": "write to its pipes", "text": text}, PATIENCE_S)
    assert outcome.status == "error"
    assert outcome.why.startswith("its answer pipe held something that is no answer: ")
    assert len(outcome.why) < 200
    assert not worker.alive
    assert not psutil.pid_exists(worker.pid)


def test_an_endless_line_is_cut_in_the_log(log):
    with Worker(ARGV, log=log) as worker:
        assert worker.request({"do": "endless line"}, PATIENCE_S).status == "ok"
    *lines, last = log.getvalue().splitlines()
    assert len(log.getvalue()) < isolate.LOG_BYTES * 1.01
    assert max(map(len, lines)) == isolate.LINE_BYTES
    assert last == "[what it printed after 16,777,216 bytes is dropped]"


@pytest.mark.skipif(sys.platform != "linux", reason="children that leave their session are followed on Linux alone")
class TestEscape:
    def test_ends_with_the_worker(self, worker):
        child = worker.request({"do": "escape"}, PATIENCE_S).value
        assert psutil.pid_exists(child)
        worker.close()
        assert is_gone(child)

    def test_ends_with_a_worker_that_crashes(self, worker, log):
        outcome = worker.request({"do": "escape and die"}, PATIENCE_S)
        assert (outcome.status, outcome.why) == ("error", "it ended with exit code 4 and without an answer")
        assert is_gone(int(log.getvalue().removeprefix("[w] ")))

    def test_counts_towards_the_memory_limit(self, log):
        with Worker(ARGV, log=log) as worker:
            worker.memory_limit_bytes = 500 << 20
            assert worker.request({"do": "escape and eat"}, PATIENCE_S).status == "oom"


@pytest.mark.parametrize(
    ("message", "status", "why"),
    [
        ({"do": "segfault"}, "killed", "SIGSEGV ended it (Segmentation fault)"),
        (
            {"do": "signal", "number": int(signal.SIGKILL)},
            "killed",
            "SIGKILL ended it, likely the operating system's out-of-memory killer",
        ),
        ({"do": "signal", "number": 40}, "killed", "signal 40 ended it"),
        ({"do": "exit", "code": 3}, "error", "it ended with exit code 3 and without an answer"),
        ({"do": "half an answer"}, "error", "it ended with exit code 0 and without an answer"),
        ({"do": "fork and die"}, "error", "it ended with exit code 4 and without an answer"),
    ],
)
def test_death(worker, message, status, why):
    outcome = worker.request(message, PATIENCE_S)
    assert (outcome.status, outcome.why) == (status, why)
    assert not worker.alive


def test_nothing_is_left_behind():
    before = set(psutil.Process().children(recursive=True))
    descriptors = psutil.Process().num_fds()
    with Worker(ARGV, log=io.StringIO()) as worker:
        child = worker.request({"do": "child"}, PATIENCE_S).value
        assert psutil.pid_exists(child)
    assert is_gone(child)
    assert set(psutil.Process().children(recursive=True)) == before
    assert psutil.Process().num_fds() == descriptors


def test_worker_ends_with_its_owner_even_when_that_is_killed():
    owner = textwrap.dedent(f"""
        import sys
        from gpupc_impl.measurement.isolate import Worker
        worker = Worker([sys.executable, "-c", {SERVER!r}])
        children = [worker.request({{"do": "child", "away": away}}).value for away in (False, True)]
        print(worker.pid, *children, flush=True)
        worker.request({{"do": "hang"}})
    """)
    process = subprocess.Popen([sys.executable, "-c", owner], stdout=subprocess.PIPE, text=True)
    with process:
        pids = list(map(int, process.stdout.readline().split()))
        assert len(pids) == 3
        time.sleep(0.5)  # let it enter the hang
        process.kill()
        assert all(is_gone(pid) for pid in pids)
