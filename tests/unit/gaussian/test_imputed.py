"""Tests over several completed tables: Rubin's rules by the letter, and causal-learn's search with them."""

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from gpupc_impl import GaussianProblem, InvalidProblem, bootstrap, methods, pc, skeleton
from gpupc_impl.cli import main
from gpupc_impl.core.solve import solve, unavailable
from gpupc_impl.gaussian.imputed import METHOD, ImputedProblem
from tests.graphs import linear_samples

ALPHA = 0.05


def completed(p: int, m: int, count: int, seed: int) -> list[np.ndarray]:
    """Tables of a linear model of which a fifth of the values are drawn anew in each."""
    rng = np.random.default_rng(seed)
    values = linear_samples(p, m, 0.4, rng, least=0.2)
    missing = rng.random(values.shape) < 0.2
    return [np.where(missing, values * 0.7 + rng.standard_normal(values.shape), values) for _ in range(count)]


def rubin(tables: list[np.ndarray], i: int, j: int, members: tuple[int, ...]) -> float:
    """The p-value by the formulas in micd's documentation of gaussMItest, from residuals of least squares."""
    z = []
    for table in tables:
        design = np.column_stack([np.ones(len(table)), table[:, list(members)]])
        x, y = (table[:, k] - design @ np.linalg.lstsq(design, table[:, k])[0] for k in (i, j))
        r = (x @ y) / np.sqrt((x @ x) * (y @ y))
        z.append(0.5 * np.log((1 + r) / (1 - r)))
    M, W = len(z), 1 / (len(tables[0]) - len(members) - 3)
    B = np.var(z, ddof=1)
    T = W + (1 + 1 / M) * B
    df = (M - 1) * (1 + (W / B) * (M / (M + 1))) ** 2
    return 2 * stats.t.sf(abs(np.mean(z)) / np.sqrt(T), df)


def test_p_values_are_rubins():
    tables = completed(6, 80, 5, 0)
    test = ImputedProblem.from_data(tables).tests()
    for level in range(4):
        for members in itertools.combinations(range(2, 6), level):
            outcome = test(np.array([[0, 1]]), np.array([members], int).reshape(1, level), True)
            expected = rubin(tables, 0, 1, members)
            assert outcome.p_values[0] == pytest.approx(expected, rel=1e-9)
            assert outcome.separates[0] == (expected >= ALPHA)


@pytest.mark.parametrize("seed", range(2))
def test_the_skeleton_is_causal_learns_with_rubins_test(seed):
    discovery = pytest.importorskip("causallearn.utils.PCUtils.SkeletonDiscovery")
    tables = completed(8, 150, 4, seed)

    class Test:
        method = "rubin"

        def __call__(self, i, j, members=()):
            return rubin(tables, int(i), int(j), tuple(map(int, members or ())))

    theirs = discovery.skeleton_discovery(tables[0], ALPHA, Test(), stable=True, show_progress=False)
    found = skeleton(tables, ALPHA, missing="imputed", pmax=True)
    assert np.array_equal(found.adjacency, theirs.G.graph != 0)
    for (i, j), members in found.sepsets.items():
        assert found.pmax[i, j] == pytest.approx(rubin(tables, i, j, members), rel=1e-9)


def test_equal_tables_give_the_answer_of_one():
    table = completed(12, 200, 1, 3)[0]
    table[:, 3] = table[:, 2]  # undefined tests, pseudo-inverses
    expected = skeleton(table, method="stable-serial", pmax=True)
    found = skeleton([table] * 3, missing="imputed", pmax=True)
    assert found == expected
    assert min(found.undefined_tests, expected.undefined_tests) > 0
    assert np.allclose(found.pmax, expected.pmax, atol=1e-9, equal_nan=True)


def test_the_order_of_variables_does_not_change_the_graph():
    tables, order = completed(8, 120, 3, 1), np.random.default_rng(0).permutation(8)
    graph, other = pc(tables, missing="imputed"), pc([table[:, order] for table in tables], missing="imputed")
    assert np.array_equal(graph.directed[np.ix_(order, order)], other.directed)


def test_files_frames_and_the_command_line(tmp_path, capsys):
    frames = [pd.DataFrame(table, columns=list("abcdef")) for table in completed(6, 80, 3, 2)]
    paths = [tmp_path / f"{k}.csv" for k in range(3)]
    for frame, path in zip(frames, paths, strict=True):
        frame.to_csv(path, index=False)
    found = skeleton(paths, missing="imputed")
    assert found == skeleton(frames, missing="imputed") == skeleton(np.stack(frames), missing="imputed")
    assert "in each of 3 completed tables; z is pooled over the tables by Rubin's rules" in str(found.summary())
    assert list(found.strengths().columns)
    assert main(["skeleton", *map(str, paths), "--missing", "imputed"]) == 0
    told = capsys.readouterr().out
    assert "read: 3 completed tables, the first of 80 rows, 6 columns" in told
    assert "gaussian test (all columns are numbers), z is pooled" in told
    assert main(["skeleton", *map(str, paths)]) == 2
    assert "3 tables are given; several are for --missing imputed" in capsys.readouterr().err


def test_refusals(tmp_path):
    tables = completed(4, 40, 2, 0)
    holes = np.where(np.arange(4) == 1, np.nan, tables[1])
    words = pd.DataFrame(tables[1]).assign(w="x")
    for data, message in (
        (tables[:1], r"1 completed table\(s\); Rubin's rules pool two or more"),
        (tables[0], "takes a list of completed tables"),
        ([tables[0], tables[1][:30]], "completed table 2 has 30 samples of 4 variables"),
        ([tables[0], holes], "40 value.s. missing in 1 column"),
        ([tables[0], words], "a table has columns of text"),
    ):
        with pytest.raises(InvalidProblem, match=message):
            skeleton(data, missing="imputed")
    with pytest.raises(InvalidProblem, match="which the kernel test is not"):
        skeleton(tables, missing="imputed", family="kernel")
    with pytest.raises(InvalidProblem, match="give one of them"):
        bootstrap(tables, 2, missing="imputed")
    with pytest.raises(InvalidProblem, match="is for missing='imputed'"):
        solve(GaussianProblem.from_data(tables[0]), METHOD, None)
    problem = ImputedProblem.from_data(tables)
    assert problem.fingerprint != ImputedProblem.from_data(tables[::-1] + tables[:1]).fingerprint
    with pytest.raises(InvalidProblem, match="made of its data; save those"):
        problem.save(tmp_path / "problem.npz")


@pytest.mark.parametrize("name", [name for name, each in methods("gaussian").items() if not unavailable(each)])
def test_other_methods_refuse_several_tables(name):
    with pytest.raises(InvalidProblem, match=r"critical values of their own \(missing='imputed'\)|ready problem"):
        skeleton(ImputedProblem.from_data(completed(5, 40, 2, 0)), method=name)
