"""causal-learn on our tests: its own tests are the oracle, one p-value after the other and in its searches."""

import copy
import functools
import itertools

import numpy as np
import pytest

from gpupc_impl import skeleton
from tests.graphs import linear_samples

cit = pytest.importorskip("causallearn.utils.cit")
bridge = pytest.importorskip("gpupc_impl.bridges.causal_learn")

sample = functools.partial(linear_samples, least=0.1)


def categories(p: int, m: int, seed: int) -> np.ndarray:
    """(m, p) codes of two to four categories, some of which are rare."""
    values = sample(p, m, seed=seed)
    return sum((values > cut) * (np.arange(p) % 3 >= k) for k, cut in enumerate((0.0, 1.0, 2.5)))


DATA = {"fisherz": sample(9, 120), "chisq": categories(8, 150, 1)}


def questions(p: int, deepest: int):
    for level in range(deepest + 1):
        for x, y in itertools.combinations(range(p), 2):
            yield from ((x, y, S) for S in itertools.combinations(sorted(set(range(p)) - {x, y}), level))


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("order", ["as searched", "at random"])
def test_p_values_are_causal_learns(name, order):
    data = DATA[name]
    theirs, ours = cit.CIT(data, name), cit.CIT(data, f"gpupc_{name}")
    asked = list(questions(data.shape[1], 3))
    if order == "at random":
        asked = [asked[k] for k in np.random.default_rng(0).permutation(len(asked))[:300]]
    for x, y, S in asked:
        expected = theirs(x, y, S)
        assert ours(x, y, S) == pytest.approx(expected, abs=1e-10)
        assert ours(np.int64(y), x, S[::-1]) == pytest.approx(expected, abs=1e-10)


def test_x_and_y_change_places_without_a_bit():
    test = cit.CIT(DATA["fisherz"], "gpupc_fisherz")
    for x, y, S in questions(6, 3):
        assert test(x, y, S) == test(y, x, S)


def test_large_tables_and_other_rules(monkeypatch):
    data = DATA["chisq"]
    dense = [cit.CIT(data, "gpupc_chisq", **rule)(0, 1, (2, 3)) for rule in ({}, {"df_rule": "full"})]
    monkeypatch.setattr(bridge, "DENSE_CELLS", 0)
    sparse = [cit.CIT(data, "gpupc_chisq", **rule)(0, 1, (2, 3)) for rule in ({}, {"df_rule": "full"})]
    assert dense == pytest.approx(sparse, abs=1e-12)
    expected = cit.CIT(data, "gsq")(0, 1, (2, 3))
    assert cit.CIT(data, "gpupc_chisq", test="g-square")(0, 1, (2, 3)) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("search", ["pc", "pc with maxp", "fci"])
def test_searches_find_the_same_graph(name, search, capsys):
    from causallearn.search.ConstraintBased.FCI import fci
    from causallearn.search.ConstraintBased.PC import pc

    def graph(test):
        if search == "fci":
            return fci(DATA[name], test, 0.05, show_progress=False)[0].graph
        return pc(DATA[name], 0.05, test, uc_rule=1 if "maxp" in search else 0, show_progress=False).G.graph

    assert np.array_equal(graph(name), graph(f"gpupc_{name}"))


def test_cmiknn_is_the_nonlinear_familys():
    """alpha lies between two p-values: causal-learn removes an edge above alpha, and ours from alpha on."""
    from causallearn.search.ConstraintBased.PC import pc

    data, options = sample(5, 60, seed=3), {"permutations": 20, "k_cmi": 5, "k_perm": 5}
    theirs = pc(data, 0.0749, "gpupc_cmiknn", show_progress=False, backend="host", **options).G.graph != 0
    assert np.array_equal(theirs, skeleton(data, 0.0749, family="nonlinear", backend="host", **options).adjacency)


def test_where_no_test_can_be_made_nothing_separates():
    test = cit.CIT(DATA["fisherz"][:5], "gpupc_fisherz")
    assert test(0, 1, ()) > 0
    assert test(0, 1, (2, 3)) == 0
    twins = np.column_stack([DATA["fisherz"][:, :3], DATA["fisherz"][:, 2]])
    assert cit.CIT(twins, "gpupc_fisherz")(2, 3, ()) == 0
    assert 0 <= cit.CIT(twins, "gpupc_fisherz")(0, 1, (2, 3)) <= 1  # its own test fails: the set is singular


def test_kept_values_are_bounded(monkeypatch):
    monkeypatch.setattr(bridge, "KEPT_VALUES", 3)
    test, theirs = (cit.CIT(DATA["fisherz"], name) for name in ("gpupc_fisherz", "fisherz"))
    for x, y, S in questions(5, 2):
        assert test(x, y, S) == pytest.approx(theirs(x, y, S), abs=1e-10)


def test_refusals():
    with pytest.raises(ValueError, match="gpupc_fisherz keeps its p-values in memory; leave cache_path out"):
        cit.CIT(DATA["fisherz"], "gpupc_fisherz", cache_path="p.json")
    test = cit.CIT(DATA["fisherz"], "gpupc_fisherz")
    with pytest.raises(ValueError, match="must be different variables"):
        test(0, 1, (1, 2))
    assert copy.deepcopy(test) is test
