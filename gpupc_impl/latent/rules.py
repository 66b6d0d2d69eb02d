"""The orientation rules R1 to R10 of Zhang (2008, On the completeness of orientation rules for causal discovery in the
presence of latent confounders and selection bias, section 3), each applied to all its matches at once. R1 to R4 are
repeated until none changes a mark; then R5 is, then R6 and R7, then R8 to R10."""

from collections.abc import Callable, Sequence

import numpy as np

from gpupc_impl.core.pag import ARROW, CIRCLE, TAIL
from gpupc_impl.latent.mixed_graph import APART, Claims, MixedGraph
from gpupc_impl.latent.paths import DiscriminatingPaths, UncoveredPaths

Rule = Callable[[MixedGraph, Claims], None]
Membership = Callable[[np.ndarray, np.ndarray], np.ndarray]  # whether variables are in pairs' sets


def apply_together(graph: MixedGraph, *rules: Rule) -> bool:
    """Apply rules in turn, each to the graph when it begins, until none changes a mark; returns whether any did."""
    changed, again = False, True
    while again:
        again = False
        for rule in rules:
            claims = Claims(graph)
            rule(graph, claims)
            again |= claims.apply()
        changed |= again
    return changed


def colliders(graph: MixedGraph, member: Membership) -> None:
    """Orient x *-> y <-* z for unshielded triples whose y is not in the separating set of x and z (R0). A triple with a
    tail at y on one of its edges, which background knowledge states, is left as it is."""
    x, y, z = graph.unshielded.T
    left, right = graph.arcs(x, y), graph.arcs(z, y)
    found = ~member(graph.unshielded[:, [0, 2]], y) & ~graph.has(left, TAIL) & ~graph.has(right, TAIL)
    claims = Claims(graph)
    claims.arrows[left[found]] = True
    claims.arrows[right[found]] = True
    claims.apply()


def rule_1(graph: MixedGraph, claims: Claims) -> None:
    """x *-> y o-* z, x and z not adjacent: y -> z."""
    into, out, closing = graph.triples
    back = graph.reverse[out]
    some = (closing == APART) & graph.has(into, ARROW) & graph.open[back]
    claims.tails[back[some]] = True
    claims.arrows[out[some]] = True


def rule_2(graph: MixedGraph, claims: Claims) -> None:
    """x -> y *-> z or x *-> y -> z, and x *-o z: x *-> z."""
    into, out, closing = graph.triples
    directed = graph.has(graph.reverse[into], TAIL) | graph.has(graph.reverse[out], TAIL)
    claims.arrows[closing[(closing >= 0) & graph.has(into, ARROW) & graph.has(out, ARROW) & directed]] = True


def rule_3(graph: MixedGraph, claims: Claims) -> None:
    """x *-> y <-* z, x *-o w o-* z, x and z not adjacent, w *-o y: w *-> y."""
    into, out, closing = graph.triples  # x -> w, w -> y, x -> y
    some = np.flatnonzero((closing >= 0) & graph.has(into, CIRCLE) & graph.has(closing, ARROW) & graph.open[out])
    some = some[np.argsort(out[some], kind="stable")]
    edges, firsts = np.unique(out[some], return_index=True)
    for edge, x in zip(edges.tolist(), np.split(graph.source[into[some]], firsts[1:]), strict=False):
        left, right = np.triu_indices(len(x), 1)
        if (graph.arcs(x[left], x[right]) == APART).any():
            claims.arrows[edge] = True


def rule_4(graph: MixedGraph, claims: Claims, paths: Sequence[DiscriminatingPaths], member: Membership) -> None:
    """A discriminating path for b between t and c, b o-* c: b -> c if b is in the separating set of t and c, otherwise
    a <-> b <-> c for the variable a next to b."""
    t, b, c = np.array([(path.t, path.b, path.c) for path in paths], np.int64).reshape(-1, 3).T
    inside, b_to_c = member(np.stack([t, c], axis=1), b), graph.arcs(b, c)
    claims.arrows[b_to_c] = True
    claims.tails[graph.reverse[b_to_c[inside]]] = True
    claims.arrows[graph.reverse[b_to_c[~inside]]] = True
    for k in np.flatnonzero(~inside).tolist():
        claims.arrows[graph.arcs(np.array(paths[k].colliders), b[k])] = True


def rule_5(graph: MixedGraph, claims: Claims) -> None:
    """x o-o y on an uncovered cycle of at least four edges o-o: x - y, and so for each edge of the cycle."""
    usable = graph.open & graph.open[graph.reverse]
    paths = UncoveredPaths(graph, usable)
    strong = paths.components("strong")
    on_cycles = np.bincount(strong)[strong] > 1
    for arc in np.flatnonzero(usable & on_cycles & (graph.source < graph.target)).tolist():
        after = paths.steps[paths.steps[:, 0] == arc, 1].tolist()
        before = paths.steps[paths.steps[:, 1] == arc, 0].tolist()
        if paths.reached(after, before, one=True):
            claims.tails[[arc, graph.reverse[arc]]] = True


def rule_6(graph: MixedGraph, claims: Claims) -> None:
    """x - y o-* z: y -* z."""
    into, out, _ = graph.triples
    back = graph.reverse[out]
    claims.tails[back[graph.has(into, TAIL) & graph.has(graph.reverse[into], TAIL) & graph.open[back]]] = True


def rule_7(graph: MixedGraph, claims: Claims) -> None:
    """x -o y o-* z, x and z not adjacent: y -* z."""
    into, out, closing = graph.triples
    back = graph.reverse[out]
    some = (closing == APART) & graph.has(into, CIRCLE) & graph.has(graph.reverse[into], TAIL) & graph.open[back]
    claims.tails[back[some]] = True


def rule_8(graph: MixedGraph, claims: Claims) -> None:
    """x -> y -> z or x -o y -> z, and x o-> z: x -> z."""
    into, out, closing = graph.triples
    first = graph.has(graph.reverse[into], TAIL) & ~graph.has(into, TAIL)
    second = graph.has(out, ARROW) & graph.has(graph.reverse[out], TAIL)
    claims.tails[graph.reverse[closing[(closing >= 0) & first & second & graph.has(closing, ARROW)]]] = True


def rule_9(graph: MixedGraph, claims: Claims) -> None:
    """x o-> z, and an uncovered potentially directed path x, y, ..., z with y and z not adjacent: x -> z."""
    paths = _potentially_directed(graph)
    parts = paths.components("weak")
    into, out, closing = graph.triples  # y -> x, x -> z, y -> z
    first = graph.reverse[into]
    some = (closing == APART) & graph.has(out, ARROW) & graph.open[graph.reverse[out]] & paths.usable[first]
    first, out = first[some], out[some]
    # A path ends with another usable arc to z, of the same part as its first arc.
    n, usable = int(parts.max(initial=0)) + 1, np.flatnonzero(paths.usable)
    ends, wanted = np.sort(graph.target[usable] * n + parts[usable]), graph.target[out] * n + parts[first]
    goals_in_part = np.searchsorted(ends, wanted, side="right") - np.searchsorted(ends, wanted)
    some = goals_in_part > (paths.usable[out] & (parts[out] == parts[first]))
    first, out = first[some], out[some]
    order = np.argsort(out, kind="stable")
    arcs, at = np.unique(out[order], return_index=True)
    for arc, starts in zip(arcs.tolist(), np.split(first[order], at[1:]), strict=False):
        z = int(graph.target[arc])
        goals = graph.reverse[graph.starts[z] : graph.starts[z + 1]]
        goals = goals[paths.usable[goals] & (goals != arc) & np.isin(parts[goals], parts[starts])]
        if paths.reached(starts.tolist(), goals.tolist(), one=True):
            claims.tails[graph.reverse[arc]] = True


def rule_10(graph: MixedGraph, claims: Claims) -> None:
    """x o-> z, y -> z <- w, uncovered potentially directed paths from x to y and from x to w that begin with distinct
    variables, not adjacent: x -> z."""
    paths = _potentially_directed(graph)
    directed = (graph.marks == ARROW) & (graph.marks[graph.reverse] == TAIL)
    n_parents = np.bincount(graph.target[directed], minlength=graph.n_variables)
    n_firsts = np.bincount(graph.source[paths.usable], minlength=graph.n_variables)[graph.source] - paths.usable
    possible = (n_parents[graph.target] > 1) & (n_firsts > 1)
    for arc in np.flatnonzero(possible & (graph.marks == ARROW) & graph.open[graph.reverse]).tolist():
        x, z = int(graph.source[arc]), int(graph.target[arc])
        from_z = np.arange(graph.starts[z], graph.starts[z + 1])
        parents = graph.target[from_z[directed[graph.reverse[from_z]]]]
        from_x = np.arange(graph.starts[x], graph.starts[x + 1])
        firsts = from_x[paths.usable[from_x] & (graph.target[from_x] != z)].tolist()
        goals = [arc_in for y in parents for arc_in in graph.reverse[graph.starts[y] : graph.starts[y + 1]].tolist()]
        reached = [{int(graph.target[end]) for end in paths.reached([first], goals, excluded=(z,))} for first in firsts]
        vertices = graph.target[firsts]
        left, right = np.triu_indices(len(firsts), 1)
        apart = graph.arcs(vertices[left], vertices[right]) == APART
        pairs = zip(left[apart].tolist(), right[apart].tolist(), strict=True)
        if any(reached[k] and reached[other] and len(reached[k] | reached[other]) > 1 for k, other in pairs):
            claims.tails[graph.reverse[arc]] = True


def _potentially_directed(graph: MixedGraph) -> UncoveredPaths:
    """Return the uncovered paths whose arcs have no arrow at their source and no tail at their target."""
    return UncoveredPaths(graph, (graph.marks != TAIL) & (graph.marks[graph.reverse] != ARROW))
