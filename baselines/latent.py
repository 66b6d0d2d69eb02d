"""The reference for PAGs: RFCI and FCI as docs/design/latent.md defines them, one test and one path at a time. It
shares no code with `gpupc_impl.latent`, and is slow: paths are searched one by one, in depth."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from gpupc_impl.core.registry import Run, method, needs_package
from gpupc_impl.core.result import Skeleton
from gpupc_impl.gaussian import canonical
from gpupc_impl.latent.problem import LatentProblem, pag_answer

CIRCLE, ARROW, TAIL = 1, 2, 3

Test = Callable[[int, int, tuple[int, ...]], float]
"""The `IndependenceTests.dependence` of i, j and a set's members, infinite if the set does not separate them."""


@method(
    "fci-serial",
    family="latent",
    backends=("cpu",),
    reference=True,
    source="RFCI and FCI as docs/design/latent.md defines them",
    summary="RFCI and FCI, written plainly, after PC-stable on one core (numba)",
    unavailable=needs_package("numba", "numba"),
)
def fci_serial(problem: LatentProblem, run: Run) -> Skeleton:
    from baselines._fisher_z import stable_skeleton  # imports numba

    gaussian = problem.gaussian
    skeleton = stable_skeleton(gaussian, run, threads=1)

    @functools.cache
    def dependence(i: int, j: int, members: tuple[int, ...]) -> float:
        pair, given = np.array([[i, j]]), np.array([members], np.int64).reshape(1, -1)
        if gaussian.obstacle(len(members)) is not None or not canonical.separates(gaussian, pair, given)[0]:
            return math.inf
        left = canonical.residuals(gaussian.correlation, pair, given, gaussian.pivot_tolerance)
        return float(np.abs(left.ij * left.ij / (left.ii * left.jj))[0])

    return pag_answer(problem, run, reference_pag(skeleton, dependence, problem.algorithm, problem.max_possible_d_sep))


def reference_pag(
    skeleton: Skeleton, test: Test, algorithm: str, max_possible_d_sep: int | None = None, longest: int | None = None
) -> np.ndarray:
    """Return the (p, p) marks of the PAG of a skeleton that was found without background knowledge."""
    search = _Search(skeleton, test, longest)
    search.prune_triples()
    while search.orient(with_tests=True):
        search.prune_triples()
    if algorithm == "fci":
        search.scan(max_possible_d_sep)
        search.orient(with_tests=False)
    return search.marks


class _Search:
    """The state of a search: marks, with 0 for no edge, and separating sets."""

    def __init__(self, skeleton: Skeleton, test: Test, longest: int | None):
        self.skeleton, self.test = skeleton, test
        self.p, self.longest = len(skeleton.names), math.inf if longest is None else longest
        self.marks = np.where(skeleton.adjacency, CIRCLE, 0).astype(np.uint8)
        self.sets: dict[tuple[int, int], tuple[int, ...]] = {}
        self.unions: dict[tuple[int, int], set[int]] = {}

    def neighbours(self, i: int) -> list[int]:
        return np.flatnonzero(self.marks[i]).tolist()

    def best(self, i: int, j: int, sets: Iterator[Sequence[int]]) -> tuple[int, ...] | None:
        """Return the first separating set of least dependence, and note the union of all; None if there is none."""
        values = {members: self.test(i, j, members) for members in map(tuple, map(sorted, sets))}
        separating = [(value, members) for members, value in values.items() if value < math.inf]
        if not separating:
            return None
        self.unions[i, j] = set(itertools.chain.from_iterable(members for _, members in separating))
        return min(separating)[1]

    def smallest(self, i: int, j: int, lists: Sequence[Sequence[int]], most: float) -> tuple[int, ...] | None:
        """Return the best of the smallest separating sets among the subsets of some lists."""
        for size in range(int(min(most, max(map(len, lists), default=0))) + 1):
            subsets = itertools.chain.from_iterable(itertools.combinations(each, size) for each in lists)
            if (found := self.best(i, j, subsets)) is not None:
                return found
        return None

    def separating(self, i: int, j: int) -> tuple[int, ...]:
        key = (min(i, j), max(i, j))
        if key not in self.sets:
            level = len(self.skeleton.sepsets[key])
            graph = self.skeleton.adjacency_at(level)
            rows = [np.setdiff1d(np.flatnonzero(graph[end]), key).tolist() for end in key]
            found = self.best(*key, itertools.chain.from_iterable(itertools.combinations(row, level) for row in rows))
            assert found is not None
            self.sets[key] = found
        return self.sets[key]

    def is_in_any_set(self, i: int, j: int, k: int) -> bool:
        self.separating(i, j)
        return k in self.unions[min(i, j), max(i, j)]

    def triples(self) -> Iterator[tuple[int, int, int]]:
        """Yield unshielded triples x, y, z, x < z."""
        for y in range(self.p):
            for x, z in itertools.combinations(self.neighbours(y), 2):
                if not self.marks[x, z]:
                    yield x, y, z

    def remove(self, lists: dict[tuple[int, int], list[list[int]]], most: float = math.inf) -> bool:
        """Remove all edges that subsets of up to `most` members of their lists separate; returns whether any was."""
        found = {edge: self.smallest(*edge, of_edge, most) for edge, of_edge in lists.items()}
        for (i, j), members in found.items():
            if members is not None:
                self.sets[i, j] = members
                self.marks[i, j] = self.marks[j, i] = 0
        return any(members is not None for members in found.values())

    def prune_triples(self) -> None:
        again = True
        while again:
            lists: dict[tuple[int, int], list[list[int]]] = {}
            for x, y, z in self.triples():
                members = [k for k in self.separating(x, z) if k != y]
                for end in (x, z):
                    if end not in members and self.test(min(end, y), max(end, y), tuple(members)) < math.inf:
                        lists.setdefault((min(end, y), max(end, y)), []).append(members)
            again = self.remove(lists)

    # --- orientation ---------------------------------------------------------------------------------------------
    def orient(self, with_tests: bool) -> bool:
        """Orient all edges anew; returns whether edges of discriminating paths were removed instead."""
        self.marks[self.marks > 0] = CIRCLE
        self.disputed = np.zeros_like(self.marks, dtype=bool)
        for x, y, z in self.triples():
            if not self.is_in_any_set(x, z, y):
                self.marks[x, y] = self.marks[z, y] = ARROW
        while True:
            self.repeat(self.rule_1, self.rule_2, self.rule_3)
            paths = list(self.discriminating_paths())
            if with_tests:
                lists: dict[tuple[int, int], list[list[int]]] = {}
                for path in paths:
                    members = self.separating(path[0], path[-1])
                    for a, b in itertools.pairwise(path):
                        own = [k for k in members if k not in (a, b)]
                        lists.setdefault((min(a, b), max(a, b)), []).append(own)
                if self.remove(lists):
                    return True
            if not self.apply(functools.partial(self.rule_4, paths)):
                break
        for rules in ([self.rule_5], [self.rule_6, self.rule_7], [self.rule_8, self.rule_9, self.rule_10]):
            self.repeat(*rules)
        return False

    def repeat(self, *rules: Callable[[], Iterator[tuple[int, int, int]]]) -> None:
        """Apply rules in turn until none changes anything."""
        while sum([self.apply(rule) for rule in rules]):
            pass

    def apply(self, rule: Callable[[], Iterator[tuple[int, int, int]]]) -> bool:
        """Set the marks (i, j, mark at j) that a rule claims, all together; returns whether anything changed."""
        claims = [(i, j, mark) for i, j, mark in rule() if self.open(i, j)]
        for i, j, mark in claims:
            if (i, j, ARROW + TAIL - mark) in claims:
                self.disputed[i, j] = True
            else:
                self.marks[i, j] = mark
        return bool(claims)

    def open(self, i: int, j: int) -> bool:
        return bool(self.marks[i, j] == CIRCLE and not self.disputed[i, j])

    def paths_of_three(self) -> Iterator[tuple[int, int, int]]:
        for y in range(self.p):
            yield from ((x, y, z) for x, z in itertools.permutations(self.neighbours(y), 2))

    def rule_1(self) -> Iterator[tuple[int, int, int]]:
        m = self.marks
        for x, y, z in self.paths_of_three():
            if not m[x, z] and m[x, y] == ARROW and self.open(z, y):
                yield from ((z, y, TAIL), (y, z, ARROW))

    def rule_2(self) -> Iterator[tuple[int, int, int]]:
        m = self.marks
        for x, y, z in self.paths_of_three():
            if m[x, z] and m[x, y] == ARROW and m[y, z] == ARROW and TAIL in (m[y, x], m[z, y]):
                yield x, z, ARROW

    def rule_3(self) -> Iterator[tuple[int, int, int]]:
        m = self.marks
        for x, y, z in self.triples():
            if m[x, y] == ARROW and m[z, y] == ARROW:
                for w in range(self.p):
                    if m[w, y] and m[x, w] == CIRCLE and m[z, w] == CIRCLE:
                        yield w, y, ARROW

    def is_parent(self, a: int, b: int) -> bool:
        return bool(self.marks[a, b] == ARROW and self.marks[b, a] == TAIL)

    def discriminating_paths(self) -> Iterator[tuple[int, ...]]:
        """Yield t, ..., a, b, c, of each b and c the shortest ones."""
        m = self.marks
        for c in range(self.p):
            for b in self.neighbours(c):
                if self.open(c, b):
                    layer, found = [(b, c)], []
                    while layer and not found and len(layer[0]) < self.longest + 1:
                        wider = []
                        for path in layer:
                            v = path[0]
                            for w in self.neighbours(v):
                                if w in path:
                                    continue
                                if v != b and m[w, v] == ARROW and not m[w, c]:
                                    found.append((w, *path))
                                if self.is_parent(w, c) and m[v, w] == ARROW and (v == b or m[w, v] == ARROW):
                                    wider.append((w, *path))
                        layer = wider
                    yield from found

    def rule_4(self, paths: Sequence[tuple[int, ...]]) -> Iterator[tuple[int, int, int]]:
        for t, *_, a, b, c in paths:
            yield b, c, ARROW
            if self.is_in_any_set(t, c, b):
                yield c, b, TAIL
            else:
                yield from ((c, b, ARROW), (a, b, ARROW))

    def uncovered(self, path: tuple[int, ...], usable: Callable[[int, int], bool]) -> Iterator[tuple[int, ...]]:
        """Yield all uncovered paths that begin with the given one."""
        yield path
        for after in self.neighbours(path[-1]):
            if after not in path and usable(path[-1], after) and (len(path) < 2 or not self.marks[path[-2], after]):
                yield from self.uncovered((*path, after), usable)

    def possibly_directed(self, a: int, b: int) -> bool:
        return bool(self.marks[b, a] != ARROW and self.marks[a, b] != TAIL)

    def rule_5(self) -> Iterator[tuple[int, int, int]]:
        m = self.marks
        for x, y in np.argwhere(m == CIRCLE).tolist():
            both = lambda a, b: self.open(a, b) and self.open(b, a)  # noqa: E731
            if both(x, y):
                for path in self.uncovered((x,), both):
                    if len(path) > 3 and path[-1] == y and not m[path[1], y] and not m[path[-2], x]:
                        yield from ((x, y, TAIL), (y, x, TAIL))
                        break

    def rule_6(self) -> Iterator[tuple[int, int, int]]:
        for x, y, z in self.paths_of_three():
            if self.marks[x, y] == TAIL and self.marks[y, x] == TAIL:
                yield z, y, TAIL

    def rule_7(self) -> Iterator[tuple[int, int, int]]:
        m = self.marks
        for x, y, z in self.paths_of_three():
            if not m[x, z] and m[y, x] == TAIL and m[x, y] == CIRCLE:
                yield z, y, TAIL

    def rule_8(self) -> Iterator[tuple[int, int, int]]:
        m = self.marks
        for x, y, z in self.paths_of_three():
            if m[x, z] == ARROW and m[y, x] == TAIL and m[x, y] in (ARROW, CIRCLE) and self.is_parent(y, z):
                yield z, x, TAIL

    def circle_arrows(self) -> Iterator[tuple[int, int]]:
        yield from ((x, z) for x, z in np.argwhere(self.marks == ARROW).tolist() if self.open(z, x))

    def rule_9(self) -> Iterator[tuple[int, int, int]]:
        for x, z in self.circle_arrows():
            for path in self.uncovered((x,), self.possibly_directed):
                if len(path) > 3 and path[-1] == z and not self.marks[path[1], z]:
                    yield z, x, TAIL
                    break

    def rule_10(self) -> Iterator[tuple[int, int, int]]:
        for x, z in self.circle_arrows():
            ends = {
                (path[1], path[-1])
                for path in self.uncovered((x,), self.possibly_directed)
                if len(path) > 1 and z not in path and self.is_parent(path[-1], z)
            }
            if any(
                first != second and not self.marks[first, second] and y != w
                for (first, y), (second, w) in itertools.combinations(ends, 2)
            ):
                yield z, x, TAIL

    # --- Possible-D-SEP --------------------------------------------------------------------------------------------
    def scan(self, most: int | None) -> None:
        edges = map(tuple, np.argwhere(np.triu(self.marks)).tolist())
        lists = {(i, j): [self.possible_d_sep(i, j), self.possible_d_sep(j, i)] for i, j in edges}
        self.remove(lists, math.inf if most is None else most)

    def possible_d_sep(self, i: int, j: int) -> list[int]:
        """Return Possible-D-SEP of i and j, unless all of it are neighbours of i, whose subsets the search tested."""
        m, causes = self.marks, self.possible_causes(i) | self.possible_causes(j)
        reached = {(i, b) for b in self.neighbours(i) if b in causes}
        frontier, length = reached, 1
        while frontier and length < self.longest:
            frontier = {
                (b, c)
                for a, b in frontier
                for c in self.neighbours(b)
                if c not in (a, i) and c in causes and self.may_collide(a, b, c)
            } - reached
            reached, length = reached | frontier, length + 1
        found = {b for _, b in reached} - {j}
        inside = [k for k in sorted(found) if self.is_between(i, j, k)]
        return inside if any(not m[i, k] for k in inside) else []

    def may_collide(self, a: int, b: int, c: int) -> bool:
        left, right = self.marks[a, b], self.marks[c, b]
        return bool((left == ARROW and right == ARROW) or (self.marks[a, c] and TAIL not in (left, right)))

    def possible_causes(self, i: int) -> set[int]:
        causes, pending = {i}, [i]
        while pending:
            b = pending.pop()
            new = [a for a in self.neighbours(b) if a not in causes and self.possibly_directed(a, b)]
            causes.update(new)
            pending += new
        return causes

    def is_between(self, i: int, j: int, k: int) -> bool:
        """Return whether a path from i to j visits k: whether k lies on a cycle with the edge i - j."""
        import networkx

        graph = networkx.Graph(np.argwhere(np.triu(self.marks)).tolist())
        graph.remove_edge(i, j)
        graph.add_edges_from([(i, "ends"), (j, "ends")])
        return bool(networkx.node_connectivity(graph, k, "ends") == 2)
