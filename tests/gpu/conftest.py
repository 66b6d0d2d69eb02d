"""Tests of this folder need a CUDA device, and are skipped with the reason where there is none."""

import pytest

from gpupc_impl.backends.cuda import CudaBackend


@pytest.fixture(autouse=True)
def device():
    reason = CudaBackend.unavailable()
    if reason is not None:
        pytest.skip(reason)
