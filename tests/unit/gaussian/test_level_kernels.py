"""Which kernels make the tests of a level: the same bits from those of a level and from general ones."""

from types import SimpleNamespace

import numpy as np
import pytest

from gpupc_impl.core.registry import get_method
from gpupc_impl.gaussian.cupc_s import KERNEL
from gpupc_impl.gaussian.problem import GaussianProblem
from tests.launches import solve
from tests.prepared import Prepared

RNG = np.random.default_rng(0)
GENERAL = "UpTo<8>", "UpTo<8>", "UpTo<16>"


@pytest.mark.parametrize(
    ("method", "params"), [("pair-scan", {}), ("cupc-s", {}), ("out-of-core-block", {"layout": "blocks"})]
)
def test_general_kernels_find_what_those_of_a_level_find(method, params):
    mixed = RNG.standard_normal((4000, 12)) @ (np.eye(12) + 0.5 * RNG.standard_normal((12, 12)))
    problem = GaussianProblem.from_data(mixed, alpha=0.05, max_level=4)
    results = {}
    for ready, size in ((False, "UpTo<8>"), (True, "Exactly<4>")):
        backend = Prepared(ready)
        results[size] = solve(problem, get_method(method), backend, params)
        deepest = {name for name in backend.taken if "UpTo" in name or "<Exactly<4>" in name}
        assert len(deepest) == 1
        assert size in deepest.pop()
    general, own = results.values()
    assert general.levels_run == 5
    assert general.sha256 == own.sha256
    for field in ("pairs", "offsets", "members"):
        np.testing.assert_array_equal(getattr(general.sepsets, field), getattr(own.sepsets, field))


def test_a_search_of_any_depth_waits_for_few_kernels():
    sizes = [kernel.expression.removeprefix("cupc_s<") for kernel in KERNEL.of_levels.needed(21)]
    assert sizes == ["Exactly<1>>", "Exactly<2>>", "Exactly<3>>", "UpTo<8>>", "UpTo<16>>", "UpTo<24>>"]


def test_the_kernel_of_a_level_replaces_the_general_one():
    ready: set[str] = set()
    backend = SimpleNamespace(is_ready=lambda kernel: kernel.expression in ready)

    def chosen(level: int) -> str:
        return KERNEL.of_levels.choose(backend, level).expression

    assert [chosen(level) for level in (3, 4, 8, 9)] == [f"cupc_s<{size}>" for size in ("Exactly<3>", *GENERAL)]
    ready.update(f"cupc_s<Exactly<{level}>>" for level in range(1, 18))
    assert [chosen(level) for level in (3, 4, 8)] == [f"cupc_s<Exactly<{level}>>" for level in (3, 4, 8)]
    assert chosen(17) == "cupc_s<UpTo<24>>"
