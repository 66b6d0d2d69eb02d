"""What every method of every family must do with required and forbidden edges and with tiers; a new method is tested
unasked."""

import functools
import itertools

import numpy as np
import pytest

from gpupc_impl import BackgroundKnowledge, DeviceMemoryError, InvalidProblem, methods, skeleton
from gpupc_impl.core.family import families, get_family, load_problem, open_tests
from gpupc_impl.core.knowledge import with_knowledge
from gpupc_impl.core.solve import open_method_backend, unavailable
from gpupc_impl.gaussian.array_search import ArrayProblem
from gpupc_impl.measurement.worker import check_answer
from tests.graphs import linear_samples
from tests.launches import solve

P = {"gaussian": 12, "discrete": 9, "nonlinear": 5, "mixed": 5, "kernel": 6, "regression": 6}
SAMPLES = {"gaussian": 150, "discrete": 400, "nonlinear": 60, "mixed": 60, "kernel": 80, "regression": 150}
OPTIONS = {
    "gaussian": {"correlations": "device"},  # a method may have no matrix
    "discrete": {"df_rule": "adjusted"},  # causal-learn's
    "nonlinear": {"permutations": 30, "k_cmi": 5, "k_perm": 5},
    "mixed": {"permutations": 30, "k_cmi": 5, "k_perm": 5, "categories": ["V0"]},
    "regression": {"categories": ["V0"]},
}

GROUPS = {"discrete": "discrete", "nonlinear": "cmiknn", "mixed": "cmiknn"}
"""Where one process compiles the references of a family; in one process, a problem is searched by hand once."""


def settings():
    for name, method in methods().items():
        for backend in method.backends:
            if method.family not in P:
                continue
            reason = unavailable(method, "auto" if backend == "cpu" else backend)
            marks = [pytest.mark.xdist_group(GROUPS.get(method.family, f"knowledge of {method.family}"))]
            marks += [pytest.mark.gpu] if backend == "cuda" else []
            marks += [pytest.mark.skip(reason=f"{name}: {reason}")] if reason and method.knowledge else []
            yield pytest.param((method, backend), marks=marks, id=f"{name}-{backend}")


@pytest.fixture(params=settings())
def any_setting(request):
    """Any method that knows of fixed edges, and the backend it runs on."""
    if not request.param[0].knowledge:
        pytest.skip("a program of other people, which refuses them; see the test below")
    return request.param


@functools.cache
def make_problem(family, seed, share=0.25, p=None, tiers=(), max_level=None):
    """A problem with random knowledge, and one without; tiers limit its separating sets."""
    rng = np.random.default_rng(seed)
    p, n = p or P[family], SAMPLES[family]
    data = linear_samples(p, n, 0.4, rng, least=0.4)
    if family == "discrete":
        data = np.digitize(data, [-0.7, 0.7])
    if family in ("mixed", "regression"):
        data[:, 0] = np.digitize(data[:, 0], [-0.7, 0.7])
    free = get_family(family).problem.from_data(data, max_level=max_level, **OPTIONS.get(family, {}))
    pairs = rng.permutation(np.array(list(itertools.combinations(range(p), 2))))
    count = max(1, round(share * len(pairs) / 2))
    flip = rng.random(len(pairs)) < 0.5
    pairs[flip] = pairs[flip, ::-1]
    edges = {"required_edges": pairs[:count], "forbidden_edges": pairs[count : 2 * count]} if share else {}
    return with_knowledge(free, BackgroundKnowledge(**edges, tiers=tiers, tiers_in_search=bool(tiers))), free


def run(problem, any_setting, **how):
    method, backend = any_setting
    if how.get("pmax") and method.cluster:
        pytest.skip("methods on clusters record no largest p-values")
    open_backend = open_method_backend(method, "auto" if backend == "cpu" else backend)
    return solve(problem, method, open_backend, **how)


@functools.cache
def by_hand(problem):
    """Serial PC-stable as pcalg's, word by word: edges, sets and levels, by the family's test from scratch."""
    p, fixed = problem.n_variables, problem.fixed
    lists = ((), ()) if fixed is None else (fixed.required.tolist(), fixed.forbidden.tolist())
    required, forbidden = (set(map(tuple, pairs)) for pairs in lists)
    decide = decision_from_scratch(problem)
    graph = {(i, j) for i, j in itertools.combinations(range(p), 2) if (i, j) not in forbidden}
    sets, edges_per_level = {}, []
    for level in range(p if problem.max_level is None else problem.max_level + 1):
        near = [[j for j in range(p) if (min(i, j), max(i, j)) in graph] for i in range(p)]
        to_test = sorted(graph - required)
        if level and not any(len(near[i]) > level or len(near[j]) > level for i, j in to_test):
            break
        for i, j in to_test:
            for owner, other in ((i, j), (j, i)) if level else ((i, j),):
                candidates = [k for k in near[owner] if k != other and not later_than_both(problem.tiers, k, i, j)]
                found = (s for s in itertools.combinations(candidates, level) if separates(decide, owner, other, s))
                if (members := next(found, None)) is not None:
                    sets[i, j] = members
                    graph.discard((i, j))
                    break
        edges_per_level.append(len(graph))
    return graph, sets, edges_per_level


def later_than_both(tiers, k, i, j):
    in_time = tiers is not None and min(tiers[i], tiers[j], tiers[k]) >= 0
    return in_time and tiers[k] > tiers[i] and tiers[k] > tiers[j]


def decision_from_scratch(problem):
    """The family's test from scratch; tests of missing values are the problem's own."""
    if isinstance(problem, ArrayProblem):
        return open_tests(problem).separates
    retest = get_family(problem.family).retest(problem)
    return lambda pairs, sets: retest.ratios(pairs, sets)[0] <= 1


def separates(decide, i, j, members):
    return decide(np.array([[i, j]]), np.array([members], int).reshape(1, -1))[0]


def test_fixed_edges_are_kept_to_and_never_tested(any_setting):
    method, _ = any_setting
    problem, _ = make_problem(method.family, 0)
    found = run(problem, any_setting)
    check_answer(found, problem)
    fixed = problem.fixed
    assert not len(fixed.broken_by(found.adjacency))
    assert found.tests_per_level[0] == problem.n_variables * (problem.n_variables - 1) // 2 - len(fixed)
    assert found.facts["problem"]["required_edges"] == len(fixed.required)
    for pair in map(tuple, fixed.forbidden.tolist()):
        assert pair not in found.sepsets
    assert len(dict(found.sepsets)) == len(found.sepsets)
    if method.random:
        return
    assert_by_hand(found, problem, method)
    assert found.stopped_because.startswith("complete")


def assert_by_hand(found, problem, method):
    graph, sets, edges_per_level = by_hand(problem)
    assert set(map(tuple, found.edges.tolist())) == graph
    assert list(found.edges_per_level) == edges_per_level
    if method.canonical:
        assert dict(found.sepsets) == sets


TIERS = {9: ((3, 7, 8), (0, 5), (1, 4)), 7: ((0, 1, 2, 6), (3,), (4,)), 6: ((2, 4, 5), (0,), (1,)), 5: ((1, 3), (0, 2))}
"""Of each number of variables: tiers that keep some separating set out; some variables are in none."""
REFERENCE = {"gaussian": "stable-serial", "discrete": "discrete-serial"}


def test_no_set_has_a_member_that_is_later_than_both_ends(any_setting):
    method, _ = any_setting
    p = 9 if method.family == "gaussian" else P[method.family]
    problem, free = make_problem(method.family, 9, 0, p, TIERS[p], max_level=2)
    if not method.tiers:
        said = f"'{method.name}' cannot keep later tiers out .*take one of: .*-serial"
        with pytest.raises(InvalidProblem, match=said):
            run(problem, any_setting)
        return
    found = run(problem, any_setting)
    check_answer(found, problem)
    for (i, j), members in found.sepsets.items():
        assert not any(later_than_both(problem.tiers, k, i, j) for k in members)
    if not method.random:
        assert_by_hand(found, problem, method)
        assert dict(found.sepsets) != dict(run(free, any_setting).sepsets)  # the tiers keep some set out


def test_tiers_with_fixed_edges_and_p_values(any_setting):
    method, _ = any_setting
    if not method.tiers or method.family not in ("gaussian", "discrete"):
        pytest.skip("it has no tiers, or its p-values are noted by code of its family that has tests above")
    problem, _ = make_problem(method.family, 9, 0.15, 9, TIERS[9], max_level=2)
    expected = solve(problem, methods()[REFERENCE[method.family]], None, pmax=True)
    found = run(problem, any_setting, pmax=True)
    assert found == expected
    assert np.allclose(found.pmax, expected.pmax, rtol=1e-9, equal_nan=True)


def test_tiers_with_missing_values():
    data = np.random.default_rng(2).standard_normal((150, 9)) @ np.triu(np.full((9, 9), 0.6))
    data[::7, 4] = np.nan
    known = BackgroundKnowledge(tiers=TIERS[9], tiers_in_search=True)
    found = skeleton(data, missing="pairwise", knowledge=known, max_level=2)
    graph, sets, _ = by_hand(found.problem)
    assert set(map(tuple, found.edges.tolist())) == graph
    assert dict(found.sepsets) == sets
    assert sets != dict(skeleton(data, missing="pairwise", max_level=2).sepsets)


def test_p_values_of_fixed_edges_are_not_recorded(any_setting):
    problem, _ = make_problem(any_setting[0].family, 3)
    found = run(problem, any_setting, pmax=True)
    fixed = np.concatenate([problem.fixed.required, problem.fixed.forbidden])
    assert np.isnan(found.pmax[tuple(fixed.T)]).all()
    assert np.isnan(found.pmax[tuple(fixed.T[::-1])]).all()
    others = np.triu(np.ones_like(found.adjacency), 1)
    others[tuple(fixed.T)] = False
    assert np.isfinite(found.pmax[others]).all()


def test_first_come_keeps_to_them_too(any_setting):
    problem, _ = make_problem(any_setting[0].family, 4)
    found = run(problem, any_setting, separating_sets="first-come")
    assert not len(problem.fixed.broken_by(found.adjacency))
    if not any_setting[0].random:
        assert np.array_equal(found.adjacency, run(problem, any_setting).adjacency)


@pytest.mark.parametrize("kind", ["required_edges", "forbidden_edges"])
def test_every_pair_fixed(any_setting, kind):
    _, free = make_problem(any_setting[0].family, 5, p=3)
    pairs = list(itertools.combinations(range(3), 2))
    found = run(with_knowledge(free, BackgroundKnowledge(**{kind: pairs})), any_setting)
    assert found.n_edges == (len(pairs) if kind == "required_edges" else 0)
    assert (found.levels_run, found.tests_per_level, found.edges_per_level) == (1, (0,), (found.n_edges,))
    assert len(found.sepsets) == 0


def test_no_level_at_all(any_setting):
    """Where no test can be made, forbidden edges are gone all the same."""
    if any_setting[0].family != "gaussian":
        pytest.skip("these tests can be made with any number of samples")
    data = np.random.default_rng(0).standard_normal((3, 4))
    found = skeleton(data, method=any_setting[0].name, knowledge=BackgroundKnowledge(forbidden_edges=[(0, 1)]))
    assert found.levels_run == 0
    assert found.n_edges == 5
    assert not found.adjacency[0, 1]


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("out-of-core-block", {"layout": "blocks", "block_size": 8}),
        ("out-of-core-um", {"level_one": "pairs"}),
        ("pair-scan", {"fused_levels": "always"}),
    ],
)
@pytest.mark.parametrize("pmax", [False, True])
def test_ways_of_a_method_that_need_a_choice(name, params, pmax):
    method = methods()[name]
    problem, _ = make_problem("gaussian", 0, p=16)
    expected = run(problem, (methods()["cupc-s"], "host"), pmax=pmax)
    found = solve(problem, method, open_method_backend(method, "host"), params, pmax=pmax)
    assert found == expected
    assert found.stopped_because == expected.stopped_because
    if pmax:
        assert np.allclose(found.pmax, expected.pmax, rtol=1e-9, equal_nan=True)


def test_out_of_core_in_small_budgets():
    """Each refusal names the budget in which the search comes further."""
    problem, _ = make_problem("gaussian", 1, p=40)
    expected = run(problem, (methods()["cupc-s"], "host"))
    method, budget, found = methods()["out-of-core-block"], 1000, None
    while found is None and budget < 200_000:
        try:
            found = solve(problem, method, open_method_backend(method, "host", budget))
        except DeviceMemoryError as refused:
            budget = max(refused.requested, budget + 1)
    assert found == expected


@pytest.mark.parametrize("family", sorted(families().keys() & P.keys()))
def test_they_are_part_of_the_problem(family, tmp_path):
    problem, free = make_problem(family, 6)
    other, _ = make_problem(family, 7)
    assert len({problem.fingerprint, free.fingerprint, other.fingerprint}) == 3
    problem.save(tmp_path / "problem.npz")
    loaded = load_problem(tmp_path / "problem.npz")
    assert loaded.fixed == problem.fixed
    assert loaded.fingerprint == problem.fingerprint
    assert "required_edges" not in free.facts()


@pytest.mark.parametrize("name", [name for name, method in methods().items() if not method.knowledge])
def test_programs_that_know_of_no_fixed_edges_refuse_them(name):
    method = methods()[name]
    problem, _ = make_problem(method.family, 8)
    with pytest.raises(InvalidProblem, match=f"{name}.* knows nothing of required and forbidden edges.*take one of"):
        solve(problem, method, None)
