"""Times of kernels: every launch of a search is counted, once, and bad requests say what to do."""

import collections
import re

import pytest

from gpupc_impl.backends.host import HostKernel
from gpupc_impl.core.registry import methods
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.measurement import kernel_times
from gpupc_impl.measurement.__main__ import main, parse_setting
from gpupc_impl.measurement.record import Limits
from gpupc_impl.nonlinear.problem import NonlinearProblem
from tests.graphs import chain

PROBLEMS = {
    "gaussian": GaussianProblem.from_data(chain(200, 12)),
    "nonlinear": NonlinearProblem.from_data(chain(40, 4), permutations=9, k_perm=5, k_cmi=3),
}


@pytest.mark.parametrize("text", ["cupc-s:theta=64", "gpucmiknn-parallel"])
def test_every_launch_of_one_search_is_counted(monkeypatch, text):
    counted, launch = collections.Counter(), HostKernel._launch

    def count(kernel, *args):
        counted[kernel.name] += 1
        launch(kernel, *args)

    monkeypatch.setattr(HostKernel, "_launch", count)
    setting = parse_setting(text, Limits())
    problem = PROBLEMS[methods()[setting.method].family]
    repeats = 3
    found = kernel_times.search_time(problem, setting, "host", repeats)
    assert {name: (1 + repeats) * len(launches) for name, launches in found.kernels.items()} == counted
    assert 0 < sum(map(sum, found.kernels.values())) < found.seconds
    assert found.tests > 0


def test_the_table_has_totals(capsys, tmp_path):
    path = tmp_path / "problem.npz"
    PROBLEMS["gaussian"].save(path)
    assert main([str(path), "--backend", "host", "--method", "cupc-s", "--kernels", "--repeats", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "cupc-s"
    assert lines[1].split() == ["kernel", "launches", "ms", "us", "each", "share"]
    rows = lines[2:-1]
    assert {"level_zero", "cupc_s<Exactly<1>>"} <= {row.split()[0] for row in rows}
    shares = [float(row.split()[-1].rstrip("%")) for row in rows]
    assert shares == sorted(shares, reverse=True)
    assert sum(float(row.split()[-1].rstrip("%")) for row in rows) == pytest.approx(100, abs=0.05 * len(rows) + 0.01)
    last = r"[\d,]+ tests: kernels ([\d.,]+) ms, [\d.,]+ us a test; the search [\d.,]+ ms"
    total = float(re.fullmatch(last, lines[-1])[1].replace(",", ""))
    assert sum(float(row.split()[-3]) for row in rows) == pytest.approx(total, abs=0.001 * len(rows))


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("stable-serial", "method 'stable-serial' has no kernels to time; name one that runs on a backend"),
        ("cupc-s:theta=many", "parameter theta is 'many'"),
        ("gpupc", "method 'gpupc' solves discrete problems"),
        ("no-such", "no-such"),
    ],
)
def test_bad_requests_say_what_is_wrong(capsys, tmp_path, method, message):
    path = tmp_path / "problem.npz"
    PROBLEMS["gaussian"].save(path)
    with pytest.raises(SystemExit):
        main([str(path), "--method", method, "--kernels"])
    assert message in capsys.readouterr().err
