"""The kernel of time series is clean under the sanitizers."""

from gpupc_impl.time_series.par_corr import all_kernels
from tests import sanitized

SEARCH = """
from gpupc_impl import pcmci
from tests.time_series_systems import random_series

values = random_series(0, 6, 2, 150)
values[:, 5] = values[:, 4] + 1e-3 * values[:, 5]  # nearly collinear
for options in ({}, {"contemporaneous": True}, {"max_conds_px": 1, "pc_alpha": 0.5}):
    pcmci(values, tau_max=2, alpha=0.05, backend="host", **options)
pcmci(random_series(4, 8, 3, 120), tau_max=3, pc_alpha=0.9, backend="host")
"""


@sanitized.NEEDS_ONE
def test_the_kernel_is_clean(tmp_path):
    sanitized.check(SEARCH, tmp_path / "launches", all_kernels(3), room="time_series")
