"""Verification: certificates, comparison, and the explanation of differences."""

import dataclasses
import math
import types

import mpmath
import numpy as np
import pytest

from gpupc_impl import BackgroundKnowledge, GaussianProblem, skeleton
from gpupc_impl.core.knowledge import with_knowledge
from gpupc_impl.core.result import SeparatingSets, complete_graph
from gpupc_impl.gaussian.retest import NEAR, NEAR_LIMIT, Retest
from gpupc_impl.measurement.record import Times
from gpupc_impl.verification import compare, verify
from gpupc_impl.verification.answer import Answer
from gpupc_impl.verification.known_differences import KNOWN_DIFFERENCES
from gpupc_impl.verification.verify import certificates
from tests import records


def linear_data(p=15, m=60, seed=0):
    rng = np.random.default_rng(seed)
    weights = np.tril(rng.uniform(0.3, 1, (p, p)) * (rng.random((p, p)) < 0.2), -1)
    return np.linalg.solve(np.eye(p) - weights, rng.standard_normal((p, m))).T


def record_of(problem, found, setting="candidate", *, reference=False, canonical=True, random=False, status="ok"):
    what = {"setting": setting, "method": setting, "reference": reference, "canonical": canonical, "random": random}
    ended = {} if status == "ok" else {"status": status, "why": "it was not run", "time_s": Times()}
    return records.record_of(problem, found, dataset="made-up", **what, **ended)


def compared(problem, reference, candidate, *, made_from=None, **facts):
    """The row of a candidate beside a reference."""
    outcomes = [
        (record_of(problem, reference, "reference", reference=True), reference),
        (record_of(made_from or problem, candidate, **facts), candidate),
    ]
    return verify.verify(problem, outcomes)[1]


def changed(found, edges=None, sets=None):
    """A skeleton with other edges and sets: ``sets`` maps pairs to members, the rest went at level 0."""
    adjacency = found.adjacency.copy()
    for i, j, present in edges or ():
        adjacency[i, j] = adjacency[j, i] = present
    kept = {tuple(map(int, pair)): found.sepsets[tuple(pair)] for pair in found.sepsets.pairs}
    kept = {pair: members for pair, members in (kept | (sets or {})).items() if not adjacency[pair] and members}
    sizes = sorted(set(map(len, kept.values())))
    levels = [([pair for pair, members in kept.items() if len(members) == size], size) for size in sizes]
    removed = [(np.array(pairs), np.array([kept[pair] for pair in pairs])) for pairs, _ in levels]
    sepsets = SeparatingSets.from_levels(adjacency, removed)
    gone = [sum(len(members) > level for members in kept.values()) for level in range(found.levels_run)]
    left = [int(adjacency.sum()) // 2 + number for number in gone]
    return dataclasses.replace(found, adjacency=adjacency, sepsets=sepsets, edges_per_level=tuple(left))


@pytest.fixture(scope="module")
def problem():
    return GaussianProblem.from_data(linear_data())


@pytest.fixture(scope="module")
def right(problem):
    return skeleton(problem, method="stable-serial")


@pytest.mark.parametrize("size", [0, 1, 2, 5])
def test_statistics_agree_with_arbitrary_precision(problem, size):
    rng = np.random.default_rng(size)
    chosen = np.array([rng.permutation(problem.n_variables)[: size + 2] for _ in range(20)])
    squares, tolerances, _ = Retest(problem).statistics(chosen[:, :2], chosen[:, 2:])
    with mpmath.workdps(50):
        for variables, square in zip(chosen, squares, strict=True):
            inverse = mpmath.matrix(problem.correlation[np.ix_(variables, variables)].tolist()) ** -1
            exact = inverse[0, 1] ** 2 / (inverse[0, 0] * inverse[1, 1])
            assert abs(mpmath.mpf(str(square)) / exact - 1) < 1e-14
    assert (tolerances >= NEAR).all()
    assert (tolerances <= NEAR_LIMIT).all()


def test_a_vanishing_residual_is_undefined_and_a_singular_set_takes_the_pseudo_inverse():
    data = linear_data(p=6)
    data = np.column_stack([data, data[:, 0]])  # the last variable copies the first
    retest = Retest(GaussianProblem.from_data(data))
    squares, *_ = retest.statistics(np.array([[0, 1], [2, 3], [2, 3]]), np.array([[6, 4], [0, 6], [0, 6]]))
    assert squares[0] == np.inf
    alone, *_ = retest.statistics(np.array([[2, 3]]), np.array([[0]]))
    assert float(squares[1]) == pytest.approx(float(alone[0]), rel=1e-12)


def test_a_test_that_rounding_errors_decide_is_near_its_threshold_whatever_it_gives():
    data = linear_data(p=6)
    data = np.column_stack([data, data[:, 0] + 1e-6 * data[:, 0].std() * linear_data(p=1, seed=1)[:, 0]])  # a near copy
    pairs, sets = np.array([[0, 1], [2, 3], [2, 3]]), np.array([[6, 4], [0, 6], [0, 4]])
    for tolerance, by_rounding in ((1e-10, [False, False, False]), (0.0, [True, True, False])):
        retest = Retest(GaussianProblem.from_data(data, residual_tolerance=tolerance))
        ratios, tolerances = retest.ratios(pairs, sets)
        assert np.isinf(tolerances).tolist() == by_rounding
        assert (ratios[by_rounding] == 1).all()
        assert np.isinf(ratios[0]) == (tolerance > 0)


def test_where_testing_all_takes_too_long_some_are_tested(problem, right, monkeypatch):
    removed = math.comb(problem.n_variables, 2) - right.n_edges
    monkeypatch.setattr(Retest, "affordable", 10)
    checked, failures = certificates(Answer(problem, record_of(problem, right), right))
    assert removed // 20 < checked <= 10 < removed
    assert failures == []


def test_random_numbers_of_its_own_explain_a_difference_and_have_no_certificates(problem, right):
    i, j = map(int, right.edges[0])
    other = changed(right, [(i, j, False)])
    row = compared(problem, right, other, random=True, canonical=False)
    assert (row["status"], row["differing_edges"], row["certificates_checked"]) == ("random", 1, 0)
    assert verify.complaints([row]) == []
    assert compared(problem, right, right, random=True, canonical=False)["status"] == "equal"


def test_a_random_answer_is_no_reference_where_there_is_another(problem, right):
    outcomes = [
        (record_of(problem, right, "luck", reference=True, random=True, canonical=False), right),
        (record_of(problem, right, "steady"), right),
    ]
    assert [row["compared_with"] for row in verify.verify(problem, outcomes)] == ["steady", "steady"]


def test_every_removed_edge_has_a_certificate(problem, right):
    checked, failures = certificates(Answer(problem, record_of(problem, right), right))
    assert checked == math.comb(problem.n_variables, 2) - right.n_edges
    assert failures == []


def test_an_edge_wrongly_removed_at_level_zero_has_none(problem, right):
    i, j = right.edges[np.argmax(np.abs(problem.correlation[tuple(right.edges.T)]))]
    row = compared(problem, right, changed(right, [(i, j, False)]))
    assert row["status"] == "unexplained"
    assert f"V{i} - V{j} given {{}}" in row["detail"]


def test_a_set_that_does_not_separate_is_found(problem, right):
    i, j = map(int, right.edges[0])
    given = int(np.flatnonzero(right.adjacency[i] | right.adjacency[j])[-1])
    wrong = changed(right, [(i, j, False)], {(i, j): (given,)})
    assert compared(problem, right, wrong)["certificates_failed"] >= 1


def test_a_set_from_outside_the_neighbourhoods_is_found(problem, right):
    at_level_one = right.sepsets.sizes() == 1
    i, j = map(int, right.sepsets.pairs[at_level_one][0])
    answer = Answer(problem, record_of(problem, right), right)
    stranger = next(k for k in range(problem.n_variables) if answer.absent(i, (k,)) and answer.absent(j, (k,)))
    row = compared(problem, right, changed(right, sets={(i, j): (stranger,)}))
    assert f"V{i} - V{j} given {{V{stranger}}}: the set is not of one end's neighbours" in row["detail"]


def test_canonical_sets_must_agree_and_others_need_not(problem, right):
    answer = Answer(problem, record_of(problem, right), right)
    retest = Retest(problem)
    for i, j in right.sepsets.pairs[right.sepsets.sizes() == 1].tolist():
        for k in range(right.sepsets[i, j][0] + 1, problem.n_variables):
            square = retest.statistics(np.array([[i, j]]), np.array([[k]]))[0][0]
            if k != j and not answer.absent(i, (k,)) and square < problem.critical_r_squared(1):
                other = changed(right, sets={(i, j): (k,)})
                row = compared(problem, right, other)
                assert (row["status"], row["differing_sets"], row["certificates_failed"]) == ("unexplained", 1, 0)
                row = compared(problem, right, other, canonical=False)
                assert (row["status"], row["differing_sets"]) == ("equal", "not compared")
                return
    pytest.fail("no pair has a second set")


def three_variables(at_threshold):
    """0-2 stands just beside the threshold of level 0; 0-1 goes at level 1 given 2, if 0-2 is there."""
    m = 50
    limit = math.tanh(1.959963984540054 / math.sqrt(m - 3))
    correlation = np.array([[1, 0.30, limit * at_threshold], [0.30, 1, 0.27], [limit * at_threshold, 0.27, 1]])
    return GaussianProblem.from_correlation(correlation, n_samples=m)


def test_a_difference_near_the_threshold_explains_itself_and_what_follows_from_it():
    above, below = three_variables(1 + 1e-13), three_variables(1 - 1e-13)
    with_link, without = skeleton(above, method="stable-serial"), skeleton(below, method="stable-serial")
    assert (with_link.n_edges, without.n_edges) == (0, 1)
    for reference, candidate in ((with_link, without), (without, with_link)):
        row = compared(above, reference, candidate)
        assert row["status"] == "near-threshold"
        assert row["detail"].startswith("edges differ: V0 - V1 (near-threshold)")
        assert verify.complaints([row]) == []


def test_another_df_convention_explains_a_difference_only_where_the_record_names_it():
    for seed in range(20):
        data = linear_data(p=20, m=20, seed=seed)
        pcalg = GaussianProblem.from_data(data)
        cupc = GaussianProblem.from_data(data, df_convention="cupc")
        ours, theirs = skeleton(pcalg, method="stable-serial"), skeleton(cupc, method="stable-serial")
        if ours.sha256 != theirs.sha256:
            assert compared(pcalg, ours, theirs, made_from=cupc)["status"] == "convention"
            assert compared(pcalg, ours, theirs)["status"] == "unexplained"
            return
    pytest.fail("the conventions never differ")


def test_many_differences_are_counted_and_not_silently_cut(problem, right, monkeypatch):
    monkeypatch.setattr(compare, "EXPLAINED_AT_MOST", 3)
    monkeypatch.setattr(verify, "NAMED_AT_MOST", 2)
    edges = [(*pair, True) for pair in right.sepsets.pairs[:5].tolist()]
    row = compared(problem, right, changed(right, edges))
    assert row["differing_edges"] == 5
    assert "and 1 more" in row["detail"]
    assert "further differences not examined" in row["detail"]


def test_the_first_reference_that_finished_is_compared_with(problem, right):
    outcomes = [
        (record_of(problem, right, "a-method"), right),
        (record_of(problem, None, "dead-reference", reference=True, status="timeout"), None),
        (record_of(problem, right, "reference", reference=True), right),
    ]
    rows = verify.verify(problem, outcomes)
    assert [row["status"] for row in rows] == ["equal", "not-run", "equal"]
    assert [row["compared_with"] for row in rows] == ["reference", "", "reference"]
    assert rows[1]["detail"] == "it was not run"
    others = [(record_of(problem, right, name), right) for name in ("a-method", "another")]
    assert [row["compared_with"] for row in verify.verify(problem, others)] == ["a-method", "a-method"]


def test_an_answer_without_another_is_alone_and_still_tested_again(problem, right):
    timeout = (record_of(problem, None, "dead-reference", reference=True, status="timeout"), None)
    row, _ = verify.verify(problem, [(record_of(problem, right), right), timeout])
    assert (row["status"], row["compared_with"], row["differing_edges"]) == ("alone", "", "")
    assert row["certificates_checked"] > 0
    wrong = changed(right, sets={tuple(map(int, right.sepsets.pairs[0])): (int(right.sepsets.pairs[0][0]),)})
    row, _ = verify.verify(problem, [(record_of(problem, wrong), wrong), timeout])
    assert row["status"] == "unexplained"
    assert verify.complaints([row])[0].startswith("candidate on made-up (compared with none): certificates failed")


def test_only_a_known_difference_of_another_program_is_explained(problem, right, monkeypatch):
    other = changed(right, [(*map(int, right.sepsets.pairs[0]), True)])
    monkeypatch.setitem(KNOWN_DIFFERENCES, ("their-program", "made-up", other.n_edges), "the page explains it")
    outcomes = [(record_of(problem, other, name), other) for name in ("their-program", "ours")]
    outcomes.insert(0, (record_of(problem, right, "reference", reference=True), right))
    rows = verify.verify(problem, outcomes)
    assert [row["status"] for row in rows] == ["equal", "explained", "unexplained"]
    assert rows[1]["detail"].startswith("the page explains it; edges differ")
    assert [complaint.split()[0] for complaint in verify.complaints(rows)] == ["ours"]


def test_a_record_of_another_problem_is_refused(problem, right):
    record = record_of(GaussianProblem.from_data(linear_data(seed=9)), right)
    with pytest.raises(ValueError, match="another problem"):
        verify.verify(problem, [(record, right)])


def test_files(problem, right, tmp_path):
    problem.save(tmp_path / "problem.npz")
    record_of(problem, right).save(tmp_path / "candidate.json")
    paths = tmp_path / "problem.npz", [tmp_path / "candidate.json"]
    with pytest.raises(ValueError, match=r"candidate\.npz is missing"):
        verify.verify_files(*paths)
    right.save(tmp_path / "candidate.npz")
    assert verify.verify_files(*paths)[0]["status"] == "alone"
    changed(right, [(*right.edges[0], False)]).save(tmp_path / "candidate.npz")
    with pytest.raises(ValueError, match="is not the skeleton"):
        verify.verify_files(*paths)


def test_without_results_no_problem_is_needed(problem, tmp_path):
    record_of(problem, None, status="skipped").save(tmp_path / "record.json")
    assert verify.verify_files(tmp_path / "absent.npz", [tmp_path / "record.json"])[0]["status"] == "not-run"


def test_fixed_edges_are_verified(problem, right):
    gap, edge = (tuple(map(int, pair)) for pair in (right.edges[0], right.sepsets.pairs[0]))
    fixed = with_knowledge(problem, BackgroundKnowledge(forbidden_edges=[gap], required_edges=[edge]))
    found = skeleton(fixed, method="stable-serial")
    row = compared(fixed, found, skeleton(fixed, method="cupc-s"))
    assert row["status"] == "equal"
    p = fixed.n_variables
    assert row["certificates_checked"] == p * (p - 1) // 2 - found.n_edges - 1
    without = compared(fixed, found, changed(found, edges=[(*gap, True), (*edge, False)]))
    assert without["status"] == "unexplained"
    assert without["certificates_failed"] >= 2
    assert "background knowledge requires or forbids it" in without["detail"]
    with pytest.raises(ValueError, match="another problem"):
        compared(fixed, found, found, made_from=problem)


def test_sets_are_verified_against_tiers(problem, right):
    """The answer of the problem without tiers, in which one set has members that are later than both ends."""
    pair = tuple(map(int, right.sepsets.pairs[0]))
    tiers = [pair, list(right.sepsets[pair])]
    limited = with_knowledge(problem, BackgroundKnowledge(tiers=tiers, tiers_in_search=True))
    found = skeleton(limited, method="stable-serial")
    assert compared(limited, found, skeleton(limited, method="cupc-s"))["status"] == "equal"
    row = compared(limited, found, right)
    assert row["status"] == "unexplained"
    assert row["certificates_failed"] == 1
    assert "has a member that is later than both ends" in row["detail"]


GAPS = [(0, 14), (4, 5), (8, 9)]
"""Forbidden pairs: in rows that come in different pieces, their other ends not in order."""


@pytest.fixture(scope="module")
def gapped():
    return with_knowledge(GaussianProblem.from_data(linear_data(16)), BackgroundKnowledge(forbidden_edges=GAPS))


@pytest.fixture(scope="module")
def right_with_gaps(gapped):
    return skeleton(gapped, method="stable-serial")


def test_where_nothing_was_removed_or_tests_decide_nothing(gapped, right_with_gaps, monkeypatch):
    monkeypatch.setattr(Retest, "affordable", 10)
    whole = complete_graph(16)
    whole = dataclasses.replace(right_with_gaps, adjacency=whole, sepsets=SeparatingSets.from_levels(whole, []))
    free = GaussianProblem.from_data(linear_data(16))
    assert certificates(Answer(free, record_of(free, whole), whole)) == (0, [])
    workload = types.SimpleNamespace(problem=types.SimpleNamespace(decided_by_tests=False))
    assert certificates(workload) == (0, [])


def test_what_knowledge_fixes_is_kept_and_has_no_set(gapped, right_with_gaps):
    i, j = GAPS[1]
    there, with_set = changed(right_with_gaps, [(i, j, True)]), changed(right_with_gaps, sets={(i, j): (1,)})
    sentences = "background knowledge requires or forbids it", "it is forbidden, and has a set"
    for wrong, sentence in zip((there, with_set), sentences, strict=True):
        _, failures = certificates(Answer(gapped, record_of(gapped, wrong), wrong))
        own = [failure for failure in failures if "{" not in failure]  # others are of sets
        assert own == [f"V{i} - V{j}: {sentence}"]


def test_sizes_and_edges_left_say_the_same(gapped, right_with_gaps):
    answer = Answer(gapped, record_of(gapped, right_with_gaps), right_with_gaps)
    assert verify.wrong_sizes(answer) == []
    for level, left in enumerate(right_with_gaps.edges_per_level):
        for off in (-1, 1):
            counts = list(right_with_gaps.edges_per_level)
            counts[level] += off
            answer.skeleton = dataclasses.replace(right_with_gaps, edges_per_level=tuple(counts))
            said = f"{left + off} edges were left after level {level}, but by the sets' sizes {left}"
            assert verify.wrong_sizes(answer) == [said]
    many = types.SimpleNamespace(n_edges=9_999, edges_per_level=(10_001, 9_999))
    assert verify.wrong_sizes(types.SimpleNamespace(skeleton=many, sizes=np.array([1, 1]))) == []
