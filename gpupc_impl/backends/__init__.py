"""Backends run kernels on a GPU (``cuda``) or on this machine's cores (``host``)."""

import functools
import importlib.util
import os
import sys
import warnings

from gpupc_impl.backends.arguments import Filled, Pointer, Struct
from gpupc_impl.backends.base import Backend, KernelSource
from gpupc_impl.backends.errors import BackendUnavailable, DeviceMemoryError, KernelCompilationError, KernelLaunchError
from gpupc_impl.backends.launch import Event, Kernel
from gpupc_impl.backends.machine import has_nvidia_driver

BACKENDS = ("cuda", "host")

__all__ = [
    "BACKENDS",
    "Backend",
    "BackendUnavailable",
    "DeviceMemoryError",
    "Event",
    "Filled",
    "Kernel",
    "KernelCompilationError",
    "KernelLaunchError",
    "KernelSource",
    "Pointer",
    "Struct",
    "backend_class",
    "open_backend",
    "resolve_backend",
]


def backend_class(name: str) -> type[Backend]:
    """Return the class of the backend ``"cuda"`` or ``"host"``, without importing CuPy."""
    if name == "cuda":
        from gpupc_impl.backends.cuda import CudaBackend

        return CudaBackend
    if name == "host":
        from gpupc_impl.backends.host import HostBackend

        return HostBackend
    raise ValueError(f"backend {name!r} is not known; choose one of: auto, {', '.join(BACKENDS)}")


def resolve_backend(name: str = "auto") -> str:
    """Return the name of a backend; ``"auto"`` becomes ``"cuda"`` if a device is visible and ``"host"`` otherwise, with
    a warning if the machine has an NVIDIA driver and CUDA_VISIBLE_DEVICES hides no GPU."""
    if name != "auto":
        backend_class(name)
        return name
    if not has_nvidia_driver() and "cupy" not in sys.modules and _lacks_cupy():
        return "host"
    reason = backend_class("cuda").unavailable()
    if reason is None:
        return "cuda"
    if has_nvidia_driver() and os.environ.get("CUDA_VISIBLE_DEVICES") not in ("", "-1"):
        warnings.warn(
            "this machine has an NVIDIA driver, but kernels will run on its CPU cores (backend 'host'), since the GPU "
            f"cannot be used: {reason}. To silence this warning, ask for backend 'host'",
            RuntimeWarning,
            stacklevel=2,
        )
    return "host"


@functools.cache
def _lacks_cupy() -> bool:
    """Return whether CuPy is not installed, so that the backend for GPUs need not be imported to say so."""
    return importlib.util.find_spec("cupy") is None


def open_backend(name: str = "auto", device_memory_limit: int | None = None) -> Backend:
    """Return a backend ready for use; ValueError for an unknown name, BackendUnavailable if it cannot run here."""
    return backend_class(resolve_backend(name))(device_memory_limit)
