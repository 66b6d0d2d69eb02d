"""Background knowledge: statements about edges and directions that hold whatever the data say. Required and forbidden
edges are fixed in the search (`gpupc_impl.core.fixed_pairs`; pcalg's ``fixedEdges`` and ``fixedGaps``); directions and
tiers orient edges before the v-structures do (Meek 1995; pcalg's ``addBgKnowledge``)."""

import contextlib
import dataclasses
import difflib
import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from gpupc_impl.core.family import AnyProblem, with_fields
from gpupc_impl.core.files import parse_yaml, read_text
from gpupc_impl.core.fixed_pairs import FixedPairs, sorted_pairs
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.core.tiers import NO_TIER

Variable = str | int
PAIR_FIELDS = ("required_edges", "forbidden_edges", "required_directions", "forbidden_directions")
GROUP_FIELDS = (*PAIR_FIELDS, "tiers")


@dataclasses.dataclass(frozen=True)
class BackgroundKnowledge:
    """Statements about the graph that are known before the search. A variable is named by its name (text) or by its
    index (a whole number from 0); a field may be any iterable, and is stored as tuples.

    Attributes:
        required_edges: pairs that have an edge, of either direction.
        forbidden_edges: pairs that have no edge.
        required_directions: pairs (cause, effect) that have an edge cause -> effect.
        forbidden_directions: pairs (cause, effect) with no edge cause -> effect; both directions mean no edge.
        tiers: groups of variables in causal order: none causes one of an earlier tier. A variable may be in no tier.
        tiers_in_search: whether the tiers limit the search as well as the directions: no separating set has a member of
            a later tier than both ends of its pair (`gpupc_impl.core.tiers`). A variable in no tier may be in any set,
            and a pair with an end in no tier is not limited.

    Raises:
        InvalidProblem: an entry is no pair, an edge joins a variable with itself, a variable is in two tiers, two
            statements contradict each other, or tiers are to limit the search and there are none.
    """

    required_edges: tuple[tuple[Variable, Variable], ...] = ()
    forbidden_edges: tuple[tuple[Variable, Variable], ...] = ()
    required_directions: tuple[tuple[Variable, Variable], ...] = ()
    forbidden_directions: tuple[tuple[Variable, Variable], ...] = ()
    tiers: tuple[tuple[Variable, ...], ...] = ()
    tiers_in_search: bool = False

    def __post_init__(self) -> None:
        for name in GROUP_FIELDS:
            object.__setattr__(self, name, _groups(name, getattr(self, name)))
        if not isinstance(self.tiers_in_search, bool):
            raise InvalidProblem(f"tiers_in_search is {self.tiers_in_search!r}; it must be true or false")
        if self.tiers_in_search and not self.tiers:
            raise InvalidProblem("tiers_in_search is true, but there are no tiers; state tiers, or leave it out")
        for name in PAIR_FIELDS:
            for pair in getattr(self, name):
                if len(pair) != 2:
                    listed = ", ".join(map(str, pair))
                    raise InvalidProblem(f"{name} has [{listed}]; each entry must be two variables")
        mentioned = (variable for name in GROUP_FIELDS for group in getattr(self, name) for variable in group)
        numbers = {variable: number for number, variable in enumerate(dict.fromkeys(mentioned))}
        _constraints(self, numbers.__getitem__, list(map(str, numbers)))

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """From a YAML file whose keys are this class's attributes; InvalidProblem for other content."""
        try:
            import yaml  # type: ignore[import-untyped]
        except ImportError as error:
            raise InvalidProblem(
                "background knowledge in a file needs the package pyyaml; pip install pyyaml"
            ) from error
        name = Path(path).name
        try:
            content = parse_yaml(read_text(path))
        except (yaml.YAMLError, ValueError) as error:
            raise InvalidProblem(f"{name} is not a YAML file: {error}") from error
        known = [field.name for field in dataclasses.fields(cls)]
        if not isinstance(content, dict):
            raise InvalidProblem(f"{name} holds no keys; it may have: {', '.join(known)}")
        for key in content:
            if key not in known:
                raise InvalidProblem(f"{name} has the key {key!r}; it may have: {', '.join(known)}")
        try:
            return cls(**{key: value for key, value in content.items() if value is not None})
        except InvalidProblem as error:
            raise InvalidProblem(f"{name}: {error}") from error

    @classmethod
    def from_causallearn(cls, knowledge: Any, names: Sequence[str] = ()) -> Self:
        """From causal-learn's ``BackgroundKnowledge``, whose required edges become required directions, and forbidden
        edges forbidden directions; `names` of variables are matched against its patterns."""

        def pairs(kind: str) -> list[tuple[str, str]]:
            rules = {(i.get_name(), j.get_name()) for i, j in getattr(knowledge, f"{kind}_rules_specs")}
            for patterns in getattr(knowledge, f"{kind}_pattern_rules_specs"):
                causes, effects = ([name for name in names if re.match(pattern, name)] for pattern in patterns)
                rules |= {(i, j) for i, j in itertools.product(causes, effects) if i != j}
            return sorted(rules)

        members = (knowledge.tier_map[tier] for tier in range(len(knowledge.tier_map)))
        tiers = [sorted(node.get_name() for node in tier) for tier in members]
        within = sorted(getattr(knowledge, "forbidden_within_tiers", ()))
        return cls(
            forbidden_edges=tuple(pair for tier in within for pair in itertools.combinations(tiers[tier], 2)),
            required_directions=tuple(pairs("required")),
            forbidden_directions=tuple(pairs("forbidden")),
            tiers=tuple(map(tuple, tiers)),
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Constraints:
    """Background knowledge about p variables, by index: the edges that are `fixed`; as `arrows`, (k, 2) int64, the
    direction of each edge for which a statement determines it; the tier of each variable, (p,) int64, -1 for none; and
    whether the tiers limit separating sets."""

    fixed: FixedPairs
    arrows: np.ndarray
    tiers: np.ndarray
    tiers_in_search: bool

    @property
    def limits(self) -> np.ndarray | None:
        """The (p,) int32 tiers, numbered without gaps, if they limit separating sets; else None."""
        numbers = np.unique(self.tiers[self.tiers != NO_TIER])
        if not self.tiers_in_search or len(numbers) < 2:  # One tier limits nothing.
            return None
        return np.where(self.tiers == NO_TIER, NO_TIER, np.searchsorted(numbers, self.tiers)).astype(np.int32)

    def directed(self, adjacency: np.ndarray) -> np.ndarray:
        """Return the arrows, (k, 2), of those edges of an adjacency matrix for which only one direction is allowed."""
        edges = np.argwhere(adjacency)
        before, after = self.tiers[edges].T
        of_tiers = edges[(before >= 0) & (before < after)]
        stated = self.arrows[adjacency[tuple(self.arrows.T)]]
        return np.unique(np.concatenate([of_tiers, stated]), axis=0)


def constraints(knowledge: Any, names: Sequence[str]) -> Constraints:
    """Convert background knowledge, of this package or causal-learn's, to indexes of the variables with these names."""
    if hasattr(knowledge, "required_rules_specs"):
        knowledge = BackgroundKnowledge.from_causallearn(knowledge, names)
    if not isinstance(knowledge, BackgroundKnowledge):
        raise InvalidProblem(
            f"knowledge is a {type(knowledge).__name__}; it must be a BackgroundKnowledge, of this package or of "
            "causal-learn"
        )
    by_name = {name: k for k, name in enumerate(names)}
    return _constraints(knowledge, lambda variable: _index(variable, by_name), names)


def with_knowledge(problem: AnyProblem, knowledge: Any) -> AnyProblem:
    """Return the problem with the fixed edges and the limiting tiers of background knowledge. InvalidProblem is raised
    if the knowledge is invalid, or the problem has other knowledge already, or is a workload."""
    stated = constraints(knowledge, problem.names)
    fixed, tiers = stated.fixed, stated.limits
    if problem.fixed is not None and problem.fixed != fixed:
        raise InvalidProblem("the problem has other required or forbidden edges already; give it knowledge once")
    if problem.tiers is not None and (tiers is None or not np.array_equal(problem.tiers, tiers)):
        raise InvalidProblem("the problem has other tiers in its search already; give it knowledge once")
    if not len(fixed) and tiers is None:
        return problem
    if not problem.decided_by_tests:
        raise InvalidProblem(
            "background knowledge cannot be used in a workload of a fixed number of tests an edge, which is no search; "
            "leave one of them out"
        )
    return with_fields(problem, fixed=fixed if len(fixed) else None, tiers=tiers)


def _groups(name: str, value: Any) -> tuple[tuple[Variable, ...], ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidProblem(f"{name} is {value!r}; it must be a list of lists of variables")
    groups = []
    for group in value.tolist() if isinstance(value, np.ndarray) else value:
        if isinstance(group, str) or not isinstance(group, Iterable):
            raise InvalidProblem(f"{name} has {group!r}; each entry must be a list of variables")
        groups.append(tuple(_variable(name, variable) for variable in group))
    return tuple(groups)


def _variable(name: str, variable: Any) -> Variable:
    if isinstance(variable, np.integer):
        variable = int(variable)
    if isinstance(variable, bool) or not isinstance(variable, (str, int)):
        raise InvalidProblem(
            f"{name} has {variable!r}; a variable is its name (in quotes, where YAML reads something else) or its index"
        )
    if isinstance(variable, int) and variable.bit_length() > 63:  # Python refuses to write thousands of digits.
        raise InvalidProblem(f"{name} has an index of {variable.bit_length():,} bits; the limit is 63; give the name")
    return variable


def _index(variable: Variable, by_name: dict[str, int]) -> int:
    p = len(by_name)
    if isinstance(variable, int):
        if not 0 <= variable < p:
            raise InvalidProblem(f"background knowledge has the variable {variable}; indexes go from 0 to {p - 1}")
        if by_name.get(str(variable), variable) != variable:
            raise InvalidProblem(
                f"background knowledge has the variable {variable}, which is an index and the name of another one; "
                "give the name as text"
            )
        return variable
    if variable not in by_name:
        near = difflib.get_close_matches(variable, by_name, n=3)
        shown = near or list(by_name)[:3]
        raise InvalidProblem(
            f"background knowledge has the variable {variable!r}, which the data do not have; "
            f"{'near it' if near else f'the first of {p}'}: {', '.join(shown)}"
        )
    return by_name[variable]


def _constraints(
    knowledge: BackgroundKnowledge, index_of: Callable[[Variable], int], names: Sequence[str]
) -> Constraints:
    p = len(names)

    def pairs(field: str) -> np.ndarray:
        stated = [(index_of(i), index_of(j)) for i, j in getattr(knowledge, field)]
        indexes = np.array(stated, np.int64).reshape(-1, 2)
        for i, _ in indexes[indexes[:, 0] == indexes[:, 1]]:
            raise InvalidProblem(f"{field} has an edge from {names[i]} to itself")
        return indexes

    edges, gaps, required, forbidden = map(pairs, PAIR_FIELDS)
    tiers = np.full(p, NO_TIER)
    for number, tier in enumerate(knowledge.tiers):
        for k in map(index_of, tier):
            if tiers[k] not in (-1, number):
                raise _contradiction(f"{names[k]} is in tier {tiers[k] + 1} and in tier {number + 1}")
            tiers[k] = number

    def among(some: np.ndarray, others: np.ndarray) -> np.ndarray:
        return np.asarray(np.isin(some @ [p, 1], others @ [p, 1]))

    def backwards(arrows: np.ndarray) -> np.ndarray:
        """Return for each arrow whether the tiers forbid it."""
        cause, effect = tiers[arrows].T
        return np.asarray((effect >= 0) & (cause > effect))

    for i, j in required[among(required, required[:, ::-1])]:
        raise _contradiction(f"{names[i]} -> {names[j]} and {names[j]} -> {names[i]} are both required")
    for i, j in required[among(required, forbidden)]:
        raise _contradiction(f"{names[i]} -> {names[j]} is required and forbidden")
    for i, j in required[backwards(required)]:
        raise _contradiction(
            f"{names[i]} -> {names[j]} is required, but {names[j]} is in tier {tiers[j] + 1}, before {names[i]} in "
            f"tier {tiers[i] + 1}"
        )
    neither = sorted_pairs(forbidden[among(forbidden, forbidden[:, ::-1]) | backwards(forbidden[:, ::-1])])
    all_edges, gaps = sorted_pairs(np.concatenate([edges, required])), sorted_pairs(gaps)
    for i, j in all_edges[among(all_edges, gaps)]:
        raise _contradiction(f"the edge between {names[i]} and {names[j]} is required and forbidden")
    for i, j in all_edges[among(all_edges, neither)]:
        raise _contradiction(
            f"the edge between {names[i]} and {names[j]} is required, but both its directions are forbidden"
        )
    fixed = FixedPairs(all_edges, sorted_pairs(np.concatenate([gaps, neither])))
    arrows = np.unique(np.concatenate([required, forbidden[:, ::-1]]), axis=0)
    arrows = arrows[~among(np.sort(arrows, axis=1), fixed.forbidden)]
    both = np.stack([all_edges, all_edges[:, ::-1]], axis=1).reshape(-1, 2)  # both directions of each required edge
    certain = [arrows[among(np.sort(arrows, axis=1), all_edges)], both[backwards(both[:, ::-1])]]
    _refuse_cycle(np.concatenate(certain).tolist(), names)
    return Constraints(fixed, arrows, tiers, knowledge.tiers_in_search)


def _refuse_cycle(arrows: list[list[int]], names: Sequence[str]) -> None:
    if arrows:
        import networkx

        with contextlib.suppress(networkx.NetworkXNoCycle):
            cycle = networkx.find_cycle(networkx.DiGraph(arrows))
            path = " -> ".join(names[k] for k in [*(tail for tail, _ in cycle), cycle[0][0]])
            raise _contradiction(f"the required directions go round in a circle, {path}")


def _contradiction(what: str) -> InvalidProblem:
    return InvalidProblem(f"the background knowledge contradicts itself: {what}; take one of these statements back")
