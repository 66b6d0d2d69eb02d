"""Every kernel of every method is clean under the sanitizers, on a small problem that reaches several levels."""

import re

import pytest

from gpupc_impl import methods
from gpupc_impl.backends.base import PACKAGE_ROOT
from gpupc_impl.core.family import families
from gpupc_impl.core.registry import listed_kernels
from tests import sanitized

GAUSSIAN = """
from math import comb
from gpupc_impl.core.subsets import Subsets
from gpupc_impl.gaussian import pair_block, single_tests
from gpupc_impl.gaussian.single_tests import SampleTests
from tests.graphs import linear_samples
from tests.launches import solve

p = 10
data = linear_samples(p, 60, 0.35, rng)
data = np.column_stack([data, data[:, 0], data[:, 3]])  # singular conditioning matrices
problems = [GaussianProblem.from_data(data, max_level=3)]
factors = rng.normal(size=(200, 3))
deep = np.column_stack([factors, factors @ rng.uniform(0.5, 1, (3, 5)) + rng.normal(size=(200, 5))])
deep = GaussianProblem.from_data(deep, max_level=3)  # sets of three separate some pairs
pair_scan, narrow = methods()["pair-scan"], open_backend("host")
narrow.max_shared_bytes = 128  # rows too long for it
few, later = open_backend("host"), dict(fused_levels="always")
few.max_shared_bytes = 2000  # enough for fused levels, but not for the last of them
for where in (few, open_backend("host")):
    assert all(solve(problem, pair_scan, where, later).levels_run >= 4 for problem in (*problems, deep))
for columns in (2, 33, 130):
    wide = GaussianProblem.from_data(rng.normal(size=(20, columns)), max_level=1, alpha=0.5, correlations="device")
    solve(wide, pair_scan, narrow)
for pmax in (False, True):
    found = [solve(problem, pair_scan, narrow, pmax=pmax) for problem in (*problems, deep)]
    assert found[1].edges_per_level[2] > found[1].edges_per_level[3], found
pair_block.TILED, pair_block.TILED_FROM = ("host",), 0  # level 1 in tiles, where pairs remain
for tolerance in (deep.residual_tolerance, 0.0):
    lasting = GaussianProblem.from_data(data, alpha=1 - 2**-53, max_level=1, residual_tolerance=tolerance)
    separated = GaussianProblem.from_data(data, alpha=0.05, max_level=1, residual_tolerance=tolerance)
    for problem, params in ((lasting, {}), (separated, dict(tiles="always"))):
        assert solve(problem, pair_scan, open_backend("host"), params) == solve(problem, pair_scan, narrow)
single_tests.FEW_TESTS = 0
pairs = np.array([[0, 1], [0, p], [2, 5]], np.int32)  # p is a copy of 0
others = [[v for v in range(p + 2) if v not in pair] for pair in pairs.tolist()]
sampled = SampleTests(GaussianProblem.from_data(data, correlations="device"), open_backend("host"))
starts, candidates = np.arange(4) * p, np.array(others, np.int32).reshape(-1)
for size in (1, 2, 3):
    count = 3 * comb(p, size)
    for tests in (single_tests.GaussianTests(problems[0], "host"), sampled):
        assert len(tests.dependences(Subsets(pairs, starts, candidates, size), 0, count)) == count
        assert tests.count_separating(pairs, starts, candidates, 3)[0].sum() > 0
sampled.best_members(pairs)
"""

NONLINEAR = """
import dataclasses
import itertools
from gpupc_impl.nonlinear import selections
from gpupc_impl.nonlinear.cmi_estimator import CmiEstimator, ci_test
from gpupc_impl.nonlinear.problem import NonlinearProblem
from gpupc_impl.nonlinear.tuning import DEFAULTS, TUNING

TUNING["host"] = dataclasses.replace(TUNING["host"], lists=40, far=64)  # threads that share their work
data = rng.normal(size=(40, 1)) + 0.3 * rng.normal(size=(40, 5))
options = dict(permutations=5, k_perm=4, max_level=3, alpha=0.9)  # keeps most edges
problems = [NonlinearProblem.from_data(data, k_cmi=3, **options)]
kinds = [("ranks", "float32"), ("none", "float64"), ("none", "float32")]
for transform, precision in kinds if every_variant else kinds[:1]:
    for k_cmi in (3, 12, 39):
        problem = NonlinearProblem.from_data(
            data, transform=transform, precision=precision, k_cmi=k_cmi, **options
        )
        for S in ((), (2, 3)):
            gammas = (0, 5) if k_cmi == 3 else (5,)
            for selection, gamma in itertools.product(("registers", "buckets", "counting", "insertion"), gammas):
                ci_test(problem, 0, 1, S, open_backend("host"), selection=selection, beta=gamma, gamma=gamma)
            ci_test(problem, 0, 1, S, open_backend("host"), racing=True)
    of_many = NonlinearProblem.from_data(data, transform=transform, precision=precision, **options | {"k_perm": 17})
    ci_test(of_many, 0, 1, (2, 3), open_backend("host"), beta=5)
def estimate(problem, S, selection, gamma, **choices):
    params = DEFAULTS | dict(selection=selection, gamma=gamma)
    tuning = dataclasses.replace(TUNING["host"], **choices)
    estimator = CmiEstimator(problem, open_backend("host"), params, tuning=tuning)
    estimator.fitting(len(S), 1, 1)
    launch, far = estimator.selection._estimate, []
    estimator.selection._estimate = lambda *structs: far.append(structs[3].values["counters"]) or launch(*structs)
    estimator.partials(len(S), np.array([[0, *S]]), np.array([[0, 1]]))
    return estimator.backend.download(far[0])[0]

for rows in (rows_of_any := selections.REGISTERS_ROWS):
    selections.REGISTERS_ROWS = (rows,)
    for S in ((), (2, 3)):
        ci_test(problems[0], 0, 1, S, open_backend("host"), selection="registers")
selections.REGISTERS_ROWS = rows_of_any
outliers = np.exp(3 * rng.normal(size=(120, 4)))
whole = np.rint(outliers).clip(0, 2000)
for values, selection in ((outliers.clip(0, 30_000), "buckets"), (whole, "buckets"), (whole, "registers")):
    problem = NonlinearProblem.from_data(values, transform="none", precision="float64", k_cmi=3, **options)
    for S in ((), (2, 3)):
        assert estimate(problem, S, selection, 64, reach=3) > 0  # lists end early
small = problems[0] if every_variant else NonlinearProblem.from_data(data[:, :3], k_cmi=3, **options)
for selection in ("registers", "buckets", "counting"):
    solve(small, methods()["gpucmiknn-parallel"], open_backend("host"), dict(selection=selection))
"""

MIXED = """
import dataclasses
import itertools
from gpupc_impl.mixed.gpucmiknn_mixed import mixed_ci_test
from gpupc_impl.mixed.problem import MixedProblem
from gpupc_impl.nonlinear.tuning import TUNING

TUNING["host"] = dataclasses.replace(TUNING["host"], lists=40, far=64)  # threads that share their work
data = rng.normal(size=(40, 1)) + 0.3 * rng.normal(size=(40, 5))
data[:, ::2] = np.round(data[:, ::2])
options = dict(categories=["V0", "V2"], permutations=5, k_perm=4, max_level=3, alpha=0.9)  # keeps most edges
problems = [MixedProblem.from_data(data, k_cmi=3, **options)]
kinds = [("ranks", "float32"), ("none", "float64"), ("none", "float32")]
for transform, precision in kinds if every_variant else kinds[:1]:
    problem = MixedProblem.from_data(data, transform=transform, precision=precision, k_cmi=5, **options)
    for (i, j, S), selection in itertools.product(((0, 1, ()), (1, 0, (2, 3))), ("buckets", "counting")):
        mixed_ci_test(problem, i, j, S, open_backend("host"), selection=selection, beta=5, gamma=5)
TUNING["host"] = dataclasses.replace(TUNING["host"], reach=5)  # lists that end early
for i, j, S in ((0, 1, ()), (1, 0, (2, 3))):
    mixed_ci_test(problem, i, j, S, open_backend("host"), selection="buckets", gamma=5)
"""

DISCRETE = """
import dataclasses
from scipy import stats
from gpupc_impl.discrete import batches, block_tables
from gpupc_impl.discrete.problem import DiscreteProblem
from gpupc_impl.discrete.statistic import statistic

data = rng.integers(0, 3, (300, 8))
for k in range(2, 8):
    copies = rng.random(300) < 0.5
    data[copies, k] = data[copies, rng.integers(0, k)]
numbers = np.arange(400) % (300 if every_variant else 250)
large = np.column_stack([numbers, rng.integers(0, 70, 400), data[:100].repeat(4, axis=0)])
small, large = DiscreteProblem.from_data(data, max_level=3), DiscreteProblem.from_data(large, max_level=1)
near = stats.chi2.sf(*statistic(large, 0, 1, np.array([], int)))
unclear = DiscreteProblem.from_data(large.codes.T, alpha=0.999999 * near, max_level=1)
workload = DiscreteProblem.from_data(data, tests_per_edge=3, decay=0.2, test="g-square", df_rule="adjusted")
problems = [small, unclear, workload]
paper = dict(counting="samples", tables="global")
for problem in problems:
    for params in (dict(delta=5, gamma=3, beta=2), dict(delta=33), paper):
        solve(problem, methods()["gpupc"], open_backend("host"), params)
    for params in (paper, dict(tables="in-kernel")):
        solve(problem, methods()["disc-cupc"], open_backend("host"), params)
sparse = DiscreteProblem.from_data(
    data, max_level=2, df_rule="adjusted", categories={f"V{v}": 120 for v in range(8)}
)
solve(dataclasses.replace(sparse, max_level=0), methods()["gpupc"], open_backend("host"), paper)
def of_each_type(codes):
    return (codes, codes.astype(np.uint16)) if every_variant else (codes,)

for codes in of_each_type(sparse.codes):  # tables of which there are too many cells
    sorting = dataclasses.replace(sparse, codes=codes)
    for params in (dict(delta=5, gamma=3, beta=2), dict(delta=33)):
        solve(sorting, methods()["gpupc"], open_backend("host"), params)
hurried = open_backend("host")  # as on a GPU before the fastest kernels are compiled
hurried.multiprocessors, hurried.is_ready = 2, lambda kernel: False
solve(small, methods()["gpupc"], hurried)
batches.BATCH_RUN = 0  # batches also of short rows
block_tables.BlockTables.blocks_an_edge = lambda *_: 2
for multiprocessors in (1, 1000):  # with 1000 the warps of a block make a batch together
    like_gpu = open_backend("host")
    like_gpu.multiprocessors, like_gpu.waits_for_best = multiprocessors, True
    for codes in of_each_type(small.codes):
        batched = dataclasses.replace(small, codes=codes, df_rule="adjusted")
        solve(batched, methods()["gpupc"], like_gpu)
        solve(batched, methods()["gpupc"], open_backend("host"), dict(delta=5, gamma=3, beta=2))
"""

FAMILIES = {"gaussian": GAUSSIAN, "discrete": DISCRETE, "nonlinear": NONLINEAR, "mixed": MIXED}
"""By family: the lines that make `problems`, at least one of four levels."""

SLOW = re.compile(r"(?!estimate_by_insertion<float)\w+<(float|unsigned short|double)\b")
"""Kernels that only slow tests must launch: of data without ranks, which differ from those with ranks in the type of a
distance, but for the lists that end early, which quick tests launch with float64; and of codes of 16 bits, which differ
from those of 8 bits in the type alone."""

SEARCH = """
import dataclasses
import numpy as np
from gpupc_impl import BackgroundKnowledge, GaussianProblem, methods
from gpupc_impl.backends import open_backend
from gpupc_impl.core.knowledge import with_knowledge
from gpupc_impl.core.solve import solve

rng, every_variant = np.random.default_rng(1), {every_variant}
{problems}
backend = open_backend("host")
known = BackgroundKnowledge(required_edges=[(0, 1)], forbidden_edges=[(2, 3)])
again = problems  # with other sets; CMIknn's kernels are the same for these
if "{family}" in ("nonlinear", "mixed") and not every_variant:
    again = [dataclasses.replace(problem, max_level=1) for problem in problems]
for method in methods("{family}").values():
    if "host" in method.backends and not method.cluster:
        asked = with_knowledge(problems[0], known), *problems[1:]
        found = [solve(problem, method, backend, pmax=True) for problem in asked]
        assert method.random or max(skeleton.levels_run for skeleton in found) >= 4, found
        assert method.family != "gaussian" or all(skeleton.pseudo_inverses for skeleton in found), found
        if method.canonical:
            for problem in again:
                solve(problem, method, backend, separating_sets="first-come")
"""


def program(family, every_variant):
    """A search of the family's problems by all its methods, by the kernels of each type, or without those of SLOW."""
    return SEARCH.format(family=family, every_variant=every_variant, problems=FAMILIES[family])


def test_there_are_kernels_to_check():
    folders = {path.relative_to(PACKAGE_ROOT).parts[0] for path in PACKAGE_ROOT.rglob("*.cu")}
    assert folders & families().keys() == FAMILIES.keys()
    assert sum("host" in method.backends for method in methods("gaussian").values()) >= 4


def test_every_kernel_file_goes_through_them():
    """Here or in the test_sanitized.py of another room; the mirror is CUDA's alone."""
    rooms = [f"gpupc_impl.{room}" for room in (*FAMILIES, "out_of_core", "distributed", "time_series")]
    checked = {kernel.source for kernel in listed_kernels(rooms, 3)}
    files = {path.relative_to(PACKAGE_ROOT).as_posix() for path in PACKAGE_ROOT.rglob("*.cu")}
    assert files - checked == {"backends/kernels/mirror.cu"}


@pytest.mark.parametrize(  # the kernels of mixed data are those of the nonlinear family with other rules for counts
    ("family", "every_variant"),
    [
        pytest.param(family, every, marks=[pytest.mark.slow] * (every or family == "mixed"))
        for every in (False, True)
        for family in FAMILIES
    ],
)
@sanitized.NEEDS_ONE
def test_every_kernel_is_clean(family, every_variant, tmp_path):
    """Of kernels that differ only in types and levels, slow tests look for races in every one."""
    kernels = listed_kernels([f"gpupc_impl.{family}"], 3)
    if not every_variant:
        kernels = [kernel for kernel in kernels if not SLOW.match(kernel.expression)]
    sanitized.check(program(family, every_variant), tmp_path / "launches", kernels, every_variant=every_variant)
