"""FCI's second step, by Possible-D-SEP (Spirtes et al. 2000, section 6.7; Colombo et al. 2012, Definition 3.3)."""

import itertools

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from gpupc_impl.core.pag import ARROW, TAIL
from gpupc_impl.core.pairs import gathered
from gpupc_impl.core.problem import InvalidProblem, Problem
from gpupc_impl.latent.mixed_graph import MixedGraph
from gpupc_impl.latent.separations import Questions, Separations

MOST_SETS = 2**34  # the upper bound on the sets of a scan
CELLS_AT_ONCE = 2**27  # the upper bound on the cells of the table of visited arcs, which has a row for each variable


def possible_d_sep(graph: MixedGraph, pairs: np.ndarray, longest: int | None) -> Questions:
    """Return Possible-D-SEP of (k, 2) adjacent pairs i, j without i and j: the variables, ascending, that D-SEP(i, j)
    may contain in a maximal ancestral graph with these marks. To each of them a walk of at most `longest` edges (None:
    any number) leads from i whose variables may all be causes of i or j, and whose every three consecutive variables a,
    b, c are a triangle without a tail at b, or a collider a *-> b <-* c."""
    into, out, closing = graph.triples
    collider = graph.has(into, ARROW) & graph.has(graph.reverse[out], ARROW)
    may_collide = ~graph.has(into, TAIL) & ~graph.has(graph.reverse[out], TAIL)
    some = collider | ((closing >= 0) & may_collide)
    step_to, first_step = out[some], np.searchsorted(into[some], np.arange(len(graph.marks) + 1))
    n_arcs, p = len(graph.marks), graph.n_variables
    at_once = max(1, CELLS_AT_ONCE // max(n_arcs, p))
    found = [np.empty(0, np.int64)]
    for begin in range(0, len(pairs), at_once):
        part = pairs[begin : begin + at_once]
        causes = possible_causes(graph, part[:, 0]) | possible_causes(graph, part[:, 1])
        starts, arcs = gathered(graph.starts, np.arange(n_arcs), part[:, 0])
        rows = np.repeat(np.arange(len(part)), np.diff(starts))
        visited, length = np.zeros((len(part), n_arcs), bool), 1
        while len(arcs):
            new = causes[rows, graph.target[arcs]] & (graph.target[arcs] != part[rows, 0]) & ~visited[rows, arcs]
            keys = np.unique(rows[new] * n_arcs + arcs[new])
            visited.reshape(-1)[keys] = True
            if length == longest:
                break
            rows, arcs = np.divmod(keys, n_arcs)
            starts, arcs = gathered(first_step, step_to, arcs)
            rows, length = np.repeat(rows, np.diff(starts)), length + 1
        row, arc = np.nonzero(visited)
        found.append(np.unique((row + begin) * p + graph.target[arc]))
    rows, members = np.divmod(np.concatenate(found), p)
    return Questions(pairs, np.searchsorted(rows, np.arange(len(pairs) + 1)), members).allowed(None)


def possible_causes(graph: MixedGraph, variables: np.ndarray) -> np.ndarray:
    """Return which variables may be causes of some variables, (k, p) bool: those from which a path leads that has no
    arrow at the source and no tail at the target of any of its arcs."""
    p, usable = graph.n_variables, (graph.marks != ARROW) & (graph.marks[graph.reverse] != TAIL)
    arcs = graph.source[usable], graph.target[usable]  # against the direction of the paths
    backwards = sparse.csr_array((np.ones(len(arcs[0])), arcs), shape=(p, p))
    ends, of_end = np.unique(variables, return_inverse=True)
    causes = np.zeros((len(ends), p), bool)
    for row, end in enumerate(ends.tolist()):
        causes[row, csgraph.breadth_first_order(backwards, end, return_predecessors=False)] = True
    return causes[of_end]


def scan(graph: MixedGraph, separations: Separations, largest: int | None, longest: int | None) -> np.ndarray:
    """Test every edge given the subsets of Possible-D-SEP of either end that lie on a path between both (Colombo et al.
    2012, Definition 3.4); returns the (k, 2) edges that were found independent, whose sets are recorded. Subsets of the
    neighbours of an end were tested by the search, so lists that hold nothing else are left out. All marks of the graph
    must hold, as of one that RFCI finds. Sets have at most `largest` members and walks at most `longest` edges, if
    these are not None. InvalidProblem is raised if there are too many sets."""
    problem, edges = separations.problem, graph.edges[separations.may_be_removed(graph.edges)]
    lists = possible_d_sep(graph, np.concatenate([edges, edges[:, ::-1]]), longest).allowed(problem.tiers)
    lists = lists.only(_between(graph, lists.pairs[lists.owners], lists.candidates))
    beyond = graph.arcs(lists.pairs[lists.owners, 0], lists.candidates) < 0
    lists = lists.where(np.bincount(lists.owners[beyond], minlength=len(lists.pairs)) > 0)
    most = min(size for size in (largest, problem.max_level, problem.n_variables) if size is not None)
    _check_size(lists, problem, most)
    return separations.search(lists, most)


def _between(graph: MixedGraph, pairs: np.ndarray, variables: np.ndarray) -> np.ndarray:
    """Return which of (k,) variables lie on a path between the ends of (k, 2) edges: in the same block of the graph."""
    import networkx

    p, block_of = graph.n_variables, np.full(len(graph.marks), -1)
    in_blocks = [np.empty(0, np.int64)]
    for number, block in enumerate(networkx.biconnected_component_edges(networkx.Graph(graph.edges.tolist()))):
        i, j = np.array(block).T
        block_of[graph.arcs(i, j)] = block_of[graph.arcs(j, i)] = number
        in_blocks.append(number * p + np.unique(block))
    return np.isin(block_of[graph.arcs(*pairs.T)] * p + variables, np.concatenate(in_blocks))


def _check_size(lists: Questions, problem: Problem, most: int) -> None:
    """Refuse a scan of too many sets, of up to `most` members, before it begins."""
    lengths = np.diff(lists.starts)
    longest = int(lengths.max(initial=0))
    sizes = itertools.takewhile(lambda size: problem.obstacle(size) is None, range(min(longest, most) + 1))
    totals = list(itertools.accumulate(lists.where(lengths >= size).subsets(size).total for size in sizes))
    if totals and totals[-1] > MOST_SETS:
        widest, affordable = lists.pairs[lengths.argmax(), 0], sum(total <= MOST_SETS for total in totals) - 1
        raise InvalidProblem(
            f"FCI would test {totals[-1]:,} sets, more than {MOST_SETS:,}: Possible-D-SEP of {problem.names[widest]} "
            f"has {longest} candidates; say max_possible_d_sep={max(affordable, 1)}, lower alpha, or take "
            "algorithm='rfci'"
        )
