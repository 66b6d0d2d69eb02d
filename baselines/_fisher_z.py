"""Fisher's z test on partial correlations, compiled with numba, which `stable-serial` and `stable-parallel` share. The
test is the canonical evaluation of docs/ci-tests.md. This code performs the operations of the kernels in the same order
and gives the same bits, but shares no code with the kernels. The members of S are eliminated one at a time in ascending
order, so that sets which follow each other lexicographically share the work for their common prefix. ``limits`` is
(critical_r_squared, residual_tolerance, pivot_tolerance, PSEUDO_INVERSE_TOLERANCE). The first three come from the
problem. The last one is an argument because numba's cache would not notice if a constant of another module changed."""

import collections

import numpy as np
from numba import types
from numba.extending import intrinsic

from baselines._compile import compiled, inlined
from baselines._levels import Graph, Tested, Tests, may_be_member, neighbours_without, next_combination, search
from gpupc_impl.core.registry import Run
from gpupc_impl.core.result import Skeleton
from gpupc_impl.gaussian.problem import PSEUDO_INVERSE_TOLERANCE, GaussianProblem


@intrinsic
def fma(typing_context, a, b, c):
    """Return a b + c in float64, rounded once."""

    def generate(context, builder, signature, arguments):
        return builder.fma(*arguments)

    return types.float64(types.float64, types.float64, types.float64), generate


@inlined
def is_undefined(h11, h22, no_variance):
    """Return whether an endpoint has no variance left, up to a tolerance."""
    if no_variance == 0.0:
        return h11 == 0.0 or h22 == 0.0
    return h11 <= no_variance or h22 <= no_variance


@inlined
def is_independent(h11, h12, h22, critical, no_variance):
    """Return whether |Z| is at most its critical value; with a tolerance of zero, a |r| above one counts as 1 / |r|."""
    if no_variance == 0.0:
        size = abs(h11 * h22)
        return h12 * h12 <= critical * size or size <= critical * (h12 * h12)
    return h12 * h12 <= critical * (h11 * h22)


@inlined
def r_squared(h11, h12, h22, no_variance):
    """Return r^2; with a tolerance of zero, the inverse of an r^2 above one."""
    square = h12 * h12 / (h11 * h22)
    if no_variance == 0.0:
        square = abs(square)
        if square > 1.0:
            square = 1.0 / square
    return square


@compiled
def separate_pairs(correlation, critical, adjacent):
    """Level 0: keep the pairs whose squared correlation is above the critical value; returns the number of edges."""
    p = len(correlation)
    edges = 0
    for i in range(p):
        for j in range(i + 1, p):
            keep = correlation[i, j] * correlation[i, j] > critical
            adjacent[i, j] = adjacent[j, i] = keep
            edges += keep
    return edges


@compiled
def separate_edges_level_one(correlation, starts, neighbours, edges, tiers, limits, smallest):
    """Test edges given one variable, as `separate_edges`; nearly all tests of wide data are these."""
    critical, no_variance, _, _ = limits
    record = len(smallest) > 0
    removed = np.empty(len(edges), np.int64)
    sets = np.empty((len(edges), 1), np.int32)
    n_removed = tests = undefined = 0
    for e in range(len(edges)):
        i, j = edges[e]
        r_ij = correlation[i, j]
        of_i, of_j = correlation[i], correlation[j]
        separated = False
        for row, other in ((i, j), (j, i)):
            for at in range(starts[row], starts[row + 1]):
                k = neighbours[at]
                if k == other or not may_be_member(tiers, i, j, k):
                    continue
                tests += 1
                h11 = fma(-of_i[k], of_i[k], 1.0)
                h22 = fma(-of_j[k], of_j[k], 1.0)
                if is_undefined(h11, h22, no_variance):
                    undefined += 1
                    continue
                h12 = fma(-of_i[k], of_j[k], r_ij)
                if record:
                    smallest[e] = min(smallest[e], r_squared(h11, h12, h22, no_variance))
                if is_independent(h11, h12, h22, critical, no_variance):
                    removed[n_removed] = e
                    sets[n_removed, 0] = k
                    n_removed += 1
                    separated = True
                    break
            if separated:
                break
    return removed[:n_removed], sets[:n_removed], tests, undefined, 0


@compiled
def separate_edges(correlation, starts, neighbours, edges, tiers, level, limits, smallest):
    """Test edges one after the other given sets of ``level`` >= 2 variables, each until a set separates it. The order
    is that of a serial PC-stable: sets from the neighbours of i, then from those of j, in lexicographic order.
    ``smallest``, unless it is empty, receives the smallest r^2 of each edge. Returns indexes of the removed edges,
    their sets, and the numbers of tests, of undefined tests, and of near-singular conditioning matrices."""
    removed = np.empty(len(edges), np.int64)
    sets = np.empty((len(edges), level), np.int32)
    n_removed = tests = undefined = singular = 0
    candidates = np.empty(len(correlation), np.int32)
    members = np.empty(level, np.int32)
    for e in range(len(edges)):
        i, j = edges[e]
        for row, other in ((i, j), (j, i)):
            n = neighbours_without(starts, neighbours, row, other, tiers, candidates)
            if n < level:
                continue
            separated, least, counts = first_separating_set(
                correlation, i, j, candidates[:n], members, limits, len(smallest) > 0
            )
            tests += counts[0]
            undefined += counts[1]
            singular += counts[2]
            if len(smallest) > 0:
                smallest[e] = min(smallest[e], least)
            if separated:
                removed[n_removed] = e
                for t in range(level):
                    sets[n_removed, t] = members[t]
                n_removed += 1
                break
    return removed[:n_removed], sets[:n_removed], tests, undefined, singular


@compiled
def first_separating_set(correlation, i, j, candidates, members, limits, record):
    """Test i and j given the sets of candidates, in lexicographic order, up to the first that separates them. Returns
    whether there is one, which is then in ``members``; the smallest r^2 (``record``); and the numbers of tests, of
    undefined tests and of near-singular conditioning matrices."""
    critical, no_variance, near_pivot, no_pivot = limits
    level = len(members)
    factor = new_factor(level)
    chosen = np.arange(level)  # the positions of the set's members among the candidates
    tests = undefined = singular_sets = 0
    least = np.inf
    # The index of the first member without residual variance given the members before it; `level` if there is none.
    singular = level
    changed = 0  # the index of the first member that differs from that of the previous set
    while changed >= 0:
        for t in range(changed, level):
            members[t] = candidates[chosen[t]]
        if singular >= changed:
            singular = level
            for t in range(changed, level):
                if not add_member(correlation, i, j, members, t, factor, near_pivot):
                    singular = t
                    break
        tests += 1
        if singular < level:
            singular_sets += 1
            h11, h12, h22 = residuals_by_pseudo_inverse(correlation, i, j, members, no_pivot)
        else:
            h11, h12, h22 = factor.h[level, 0], factor.h[level, 1], factor.h[level, 2]
        if is_undefined(h11, h22, no_variance):
            undefined += 1
        else:
            if record:
                least = min(least, r_squared(h11, h12, h22, no_variance))
            if is_independent(h11, h12, h22, critical, no_variance):
                return True, least, (tests, undefined, singular_sets)
        changed = next_combination(chosen, len(candidates))
    return False, least, (tests, undefined, singular_sets)


Factor = collections.namedtuple("Factor", ["rows", "scale", "of_i", "of_j", "h"])
"""The Cholesky factor of M2 for a set's first members: its entries ``rows[t, u]`` below the diagonal, the reciprocals
``scale[t]`` of the diagonal, the roots of the pivots (residual variances given the predecessors); the solutions x of
factor x = C[S, i] and factor x = C[S, j]; and in ``h[t]`` H11, H12 and H22 given the first t members."""


@inlined
def new_factor(level):
    return Factor(np.empty((level, level)), np.empty(level), np.empty(level), np.empty(level), np.empty((level + 1, 3)))


@inlined
def add_member(correlation, i, j, members, t, factor, near_pivot):
    """Add member t to the factor; if its predecessors determine it, add nothing and return False."""
    rows, scale, of_i, of_j, h = factor
    s = members[t]
    pivot, cov_i, cov_j = 1.0, correlation[i, s], correlation[j, s]
    for u in range(t):
        # The row of the earlier member is read, since it changes less often and stays in the cache.
        cov = correlation[members[u], s]
        for v in range(u):
            cov = fma(-rows[t, v], rows[u, v], cov)
        along = cov * scale[u]
        pivot = fma(-along, along, pivot)
        cov_i = fma(-along, of_i[u], cov_i)
        cov_j = fma(-along, of_j[u], cov_j)
        rows[t, u] = along
    if t == 0:  # The first pivot is one.
        h[0, 0], h[0, 1], h[0, 2] = 1.0, correlation[i, j], 1.0
    elif pivot <= near_pivot:
        return False
    inverse = 1.0 / np.sqrt(pivot)
    x_i, x_j = cov_i * inverse, cov_j * inverse
    scale[t], of_i[t], of_j[t] = inverse, x_i, x_j
    h[t + 1, 0] = fma(-x_i, x_i, h[t, 0])
    h[t + 1, 1] = fma(-x_i, x_j, h[t, 1])
    h[t + 1, 2] = fma(-x_j, x_j, h[t, 2])
    return True


@compiled
def residuals_by_pseudo_inverse(correlation, i, j, members, no_pivot):
    """Compute H11, H12, H22 with the Moore-Penrose inverse of M2 by cuPC's Algorithm 7 (Courrieu 2008). With M2^T M2 =
    L L^T of full rank and R = (L^T L)^-1, the inverse is L R R L^T M2^T, and R L^T is the pseudo-inverse of L. So M1
    M2^+ M1^T is the product of two least-squares solutions, which lose half as many digits as R would."""
    size = len(members)
    m2, m1 = np.empty((size, size)), np.empty((size, 2))
    for t in range(size):
        m1[t, 0] = correlation[i, members[t]]
        m1[t, 1] = correlation[j, members[t]]
        for u in range(size):
            m2[t, u] = correlation[members[t], members[u]]
    factor = full_rank_cholesky(product(m2, m2), no_pivot)
    left = least_squares(factor, m1)
    right = least_squares(factor, product(m2, m1))
    h11, h12, h22 = 1.0, correlation[i, j], 1.0
    for t in range(len(left)):
        h11 = fma(-left[t, 0], right[t, 0], h11)
        h12 = fma(-left[t, 0], right[t, 1], h12)
        h22 = fma(-left[t, 1], right[t, 1], h22)
    return h11, h12, h22


@compiled
def product(a, b):
    """Return the matrix product with sums in a fixed order, which a BLAS does not guarantee."""
    out = np.zeros((len(a), b.shape[1]))
    for t in range(len(a)):
        for u in range(b.shape[1]):
            for v in range(len(b)):
                out[t, u] = fma(a[t, v], b[v, u], out[t, u])
    return out


@compiled
def full_rank_cholesky(a, no_pivot):
    """Return L (size x rank) with L L^T = a; a pivot within the tolerance adds no column (Courrieu 2008)."""
    size = len(a)
    smallest = a[0, 0]
    for t in range(1, size):
        smallest = min(smallest, a[t, t])
    factor = np.zeros((size, size))
    rank = 0
    for k in range(size):
        for t in range(k, size):
            entry = a[t, k]
            for u in range(rank):
                entry = fma(-factor[t, u], factor[k, u], entry)
            factor[t, rank] = entry
        pivot = factor[k, rank]
        keep = pivot > smallest * no_pivot
        for t in range(k, size):
            factor[t, rank] = factor[t, rank] / np.sqrt(pivot) if keep else 0.0
        rank += keep
    return factor[:, :rank].copy()


@compiled
def least_squares(a, b):
    """Return the x that minimises |a x - b| for each column of b, by modified Gram-Schmidt; a has full column rank."""
    size, rank = a.shape
    q, rest = a.copy(), b.copy()
    r = np.zeros((rank, rank))
    x = np.empty((rank, b.shape[1]))
    for k in range(rank):
        length = 0.0
        for t in range(size):
            length = fma(q[t, k], q[t, k], length)
        r[k, k] = np.sqrt(length)
        for t in range(size):
            q[t, k] /= r[k, k]
        for u in range(k + 1, rank):
            for t in range(size):
                r[k, u] = fma(q[t, k], q[t, u], r[k, u])
            for t in range(size):
                q[t, u] = fma(-r[k, u], q[t, k], q[t, u])
        for u in range(b.shape[1]):
            along = 0.0
            for t in range(size):
                along = fma(q[t, k], rest[t, u], along)
            for t in range(size):
                rest[t, u] = fma(-along, q[t, k], rest[t, u])
            x[k, u] = along
    for u in range(b.shape[1]):
        for k in range(rank - 1, -1, -1):
            for v in range(k + 1, rank):
                x[k, u] = fma(-r[k, v], x[v, u], x[k, u])
            x[k, u] /= r[k, k]
    return x


def stable_skeleton(problem: GaussianProblem, run: Run, threads: int) -> Skeleton:
    return search(problem, run, _FisherZTests(problem, run.pmax), threads)


class _FisherZTests(Tests):
    def __init__(self, problem: GaussianProblem, pmax: bool):
        self._problem, self._record = problem, pmax

    def separate_pairs(self, adjacent: np.ndarray, pmax: np.ndarray | None, map_tasks) -> int:
        problem = self._problem
        if pmax is not None:
            pmax[:] = problem.p_value(problem.correlation**2, 0)
            np.fill_diagonal(pmax, np.nan)
        return separate_pairs(problem.correlation, problem.critical_r_squared(0), adjacent)

    def separate_edges(self, graph: Graph, task: slice, level: int) -> Tested:
        problem, edges = self._problem, graph.edges[task]
        tolerances = problem.residual_tolerance, problem.pivot_tolerance, PSEUDO_INVERSE_TOLERANCE
        limits = problem.critical_r_squared(level), *tolerances
        smallest = np.full(len(edges) if self._record else 0, np.inf)
        data = (problem.correlation, graph.starts, graph.neighbours, edges, graph.tiers)
        if level == 1:
            removed, sets, *counts = separate_edges_level_one(*data, limits, smallest)
        else:
            removed, sets, *counts = separate_edges(*data, level, limits, smallest)
        p_values = None
        if self._record:  # an edge has no p-value if all its tests are undefined
            defined = np.isfinite(smallest)
            p_values = np.full(len(edges), np.nan)
            p_values[defined] = problem.p_value(smallest[defined], level)
        return Tested(removed, sets.copy(), *counts, p_values)  # a view would keep the unused rows alive
