"""The calls of the library: `skeleton`, `pc` and `fci` turn a table into a graph."""

from collections.abc import Callable, Sequence
from typing import Any

from gpupc_impl.core.colliders import AUTO, V_STRUCTURES
from gpupc_impl.core.family import get_family
from gpupc_impl.core.orientation import CPDAG, check_choices, orient
from gpupc_impl.core.pag import PAG
from gpupc_impl.core.pc_stable import Progress
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.core.result import Skeleton
from gpupc_impl.search import SearchRequest, warn


def skeleton(
    data: Any,
    alpha: float = 0.05,
    *,
    family: str = "auto",
    method: str = "auto",
    backend: str = "auto",
    n_samples: int | None = None,
    names: Sequence[str] | None = None,
    max_level: int | None = None,
    knowledge: Any = None,
    missing: str = "error",
    transpose: bool | None = None,
    separating_sets: str = "canonical",
    pmax: bool = False,
    device_memory_limit: int | None = None,
    progress: Callable[[Progress], None] | bool | None = None,
    header: bool | None = None,
    row_names: bool = False,
    decimal: str | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    missing_values: Sequence[str] | None = None,
    sheet: str | None = None,
    **options: Any,
) -> Skeleton:
    """Find the skeleton of the causal graph behind the data by PC-stable (Colombo and Maathuis 2014).

    Args:
        data: samples in rows and variables in columns, as an array, a DataFrame (whose column names are kept), an
            AnnData object or the path of a file, of which a large one is read some rows at a time (docs/input.md); a
            correlation matrix if ``n_samples`` is given; or a ready `Problem`, which has its own alpha, n_samples,
            names, max_level and test.
        alpha: significance level of each test; an edge is removed when the p-value of one of its tests is >= alpha.
        family: the kind of data and test: ``"gaussian"`` (Fisher's z), ``"discrete"`` (Pearson's chi-square),
            ``"nonlinear"`` (CMIknn), ``"kernel"`` (RCIT, RCoT or KCI), or for numbers and categories
            ``"mixed"`` (CMIknn) or ``"regression"`` (likelihood ratios). ``"auto"`` selects the family of the method if
            one is named, else ``"discrete"`` for a DataFrame of text, and ``"gaussian"`` for numbers.
        method: a name from ``methods()``; ``"auto"`` selects the family's fastest method on this machine. All methods
            of a family find the same edges.
        backend: where kernels run: ``"auto"`` (a GPU if one is visible, else this machine's cores), ``"cuda"`` or
            ``"host"``.
        n_samples: the number of samples from which a correlation matrix given as ``data`` was computed.
        names: the variables' names, if ``data`` has none.
        max_level: size of the largest conditioning sets to test; None sets no limit.
        knowledge: a `BackgroundKnowledge` of this package or of causal-learn. Required edges are kept, forbidden edges
            are removed before the first test, and neither are tested. Its tiers limit separating sets if it says so
            (`BackgroundKnowledge.tiers_in_search`).
        missing: ``"error"`` refuses missing values; ``"drop-rows"`` drops each sample that has one; and, for Gaussian
            tests, ``"pairwise"`` computes each correlation from the samples that hold both variables, and ``"imputed"``
            takes a list of completed tables as ``data`` and pools their tests (docs/input.md).
        transpose: whether variables are in rows; None means that they are not, with a warning if the shape suggests
            otherwise.
        separating_sets: the rule that chooses among several separating sets. ``"canonical"`` gives the same sets on
            every run; ``"first-come"``, the rule of the papers, makes fewer tests and gives sets that vary from run to
            run.
        pmax: whether to record the largest p-value of every pair.
        device_memory_limit: upper bound on the device memory to use, in bytes.
        progress: a function that is called with a `Progress` after each level, or True for a progress bar (extra
            ``progress``).
        header: whether a file's first line names the variables; None infers it.
        row_names: whether a file's first column names the rows, and is left out.
        decimal: the decimal mark of numbers that are text, ``"."`` or ``","``; None infers it from the whole table.
        delimiter: the character between the cells of a text file; None infers it.
        encoding: a text file's encoding, such as ``"latin-1"``; None means UTF-8, or UTF-16 with a byte order mark.
        missing_values: the cells of text, beside empty ones, that stand for missing values; None means the usual words
            (those of `pandas.read_csv`, ``?`` and ``.``).
        sheet: the name of an Excel file's sheet; None means the first.
        options: parameters of the family's test (see ``from_data`` of `GaussianProblem` and the other problems) and of
            the method (such as ``theta=64``).

    Raises:
        InvalidProblem: the data, alpha, max_level, a parameter of the test or the knowledge cannot be used, or the
            method belongs to another family.
        gpupc_impl.tables.DataError, OSError: the file, or a column of text, cannot be read.
        UnknownMethod, InvalidParameter: the method or the parameter does not exist, or a value is out of range.
        BackendUnavailable: the backend cannot be used on this machine.
        DeviceMemoryError: the problem does not fit in device memory.
    """
    arguments = locals().copy()  # Only the parameters are local variables so far.
    del arguments["data"]
    with SearchRequest.of(**arguments.pop("options"), **arguments).open(data) as search:
        return search.solve(search.problem())


def pc(
    data: Any,
    alpha: float = 0.05,
    *,
    knowledge: Any = None,
    conflicts: str = "relaxed",
    v_structures: str = "auto",
    **options: Any,
) -> CPDAG:
    """Find the CPDAG behind the data by the PC algorithm: `skeleton`, then `orient`.

    Args:
        knowledge, conflicts: as for `orient`.
        v_structures: as for `orient`, or ``"auto"``: ``"majority"``, whose directions do not depend on the order
            of the variables, or ``"standard"`` for the nonlinear and the mixed test, whose random numbers depend on
            that order.
        data, alpha, options: the arguments of `skeleton`. Leave ``separating_sets`` at ``"canonical"`` for
            directions that are the same on every run.

    Raises:
        The errors that `skeleton` and `orient` raise.
    """
    check_choices(conflicts, v_structures, (AUTO, *V_STRUCTURES))
    return oriented(skeleton(data, alpha, knowledge=knowledge, **options), knowledge, conflicts, v_structures)


def oriented(graph: Skeleton, knowledge: Any, conflicts: str, v_structures: str) -> CPDAG:
    """Orient the edges of a skeleton that has its problem; arguments are those of `pc`."""
    rule = get_family(graph.problem.family).v_structures if v_structures == AUTO else v_structures
    cpdag = orient(graph, problem=graph.problem, knowledge=knowledge, conflicts=conflicts, v_structures=rule)
    if cpdag.has_directed_cycle:
        warn("the v-structures contradict each other: the arrows have a cycle")
    return cpdag


def fci(
    data: Any,
    alpha: float = 0.01,
    *,
    algorithm: str = "rfci",
    max_possible_d_sep: int | None = None,
    max_path_length: int | None = None,
    knowledge: Any = None,
    **options: Any,
) -> PAG:
    """Find the PAG behind the data, in which pairs of variables may have common causes that were not measured.

    The graph does not depend on the order of the variables (docs/latent.md).

    Args:
        data: as for `skeleton`, or an `IndependenceOracle` in place of data.
        algorithm: ``"rfci"`` (Colombo, Maathuis, Kalisch and Richardson 2012), or ``"fci"`` (Spirtes, Glymour and
            Scheines 2000; Zhang 2008), which makes further tests and may remove further edges.
        max_possible_d_sep: for ``"fci"``, the largest set of members of Possible-D-SEP to test; None sets no limit.
        max_path_length: the most edges of a discriminating path, and of a walk by which a variable is in
            Possible-D-SEP; None sets no limit.
        knowledge: as for `skeleton`. A required direction is a tail and an arrow; a forbidden direction, and a later
            tier, is an arrow at the variable that is no cause. A forbidden edge has no separating set, so no mark is
            inferred from it.
        alpha, options: the arguments of `skeleton`. Limits of the search, such as ``max_level``, hold for all tests.

    Raises:
        The errors that `skeleton` raises, and those of
        InvalidParameter: the algorithm is unknown, or a limit is below 1 or not used by the algorithm.
        InvalidProblem: there are fewer than three variables, or FCI would test too many sets.
    """
    from gpupc_impl.latent.inference import Inference, find_pag
    from gpupc_impl.latent.oracle import IndependenceOracle

    inference = Inference(algorithm, max_possible_d_sep, max_path_length)
    if isinstance(data, IndependenceOracle):
        if knowledge is not None or options:
            named = ", ".join([*options, *(["knowledge"] if knowledge is not None else [])])
            raise InvalidProblem(f"data is an oracle, which is asked instead of tests; leave {named} out")
        return find_pag(data.skeleton(), data, inference, tests=data.tests())
    graph = skeleton(data, alpha, knowledge=knowledge, **options)
    backend = options.get("backend", "auto")
    return find_pag(graph, graph.problem, inference, knowledge=knowledge, backend=backend)
