"""Where kernels run: a GPU (``cuda``) or this machine's cores (``host``)."""

from __future__ import annotations

import os
import warnings

from gpupc_impl.backends.arguments import Filled, Pointer, Struct
from gpupc_impl.backends.base import (
    Backend,
    BackendUnavailable,
    DeviceMemoryError,
    KernelCompilationError,
    KernelLaunchError,
    KernelSource,
)
from gpupc_impl.backends.launch import Kernel
from gpupc_impl.backends.machine import has_nvidia_driver

BACKENDS = ("cuda", "host")

__all__ = [
    "BACKENDS",
    "Backend",
    "BackendUnavailable",
    "DeviceMemoryError",
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
    """The class behind ``"cuda"`` or ``"host"``; imports CuPy only when used, never here."""
    if name == "cuda":
        from gpupc_impl.backends.cuda import CudaBackend

        return CudaBackend
    if name == "host":
        from gpupc_impl.backends.host import HostBackend

        return HostBackend
    raise ValueError(f"backend {name!r} is not known; choose one of: auto, {', '.join(BACKENDS)}")


def resolve_backend(name: str = "auto") -> str:
    """Turn ``"auto"`` into ``"cuda"`` where a device is visible and into ``"host"`` elsewhere.

    Warns where a machine has an NVIDIA driver and its GPUs, which nobody hid, cannot be used all the same.
    """
    if name != "auto":
        backend_class(name)
        return name
    reason = backend_class("cuda").unavailable()
    if reason is None:
        return "cuda"
    if has_nvidia_driver() and os.environ.get("CUDA_VISIBLE_DEVICES") not in ("", "-1"):
        warnings.warn(
            "this machine has an NVIDIA driver, but kernels will run on its CPU cores (backend 'host'), since the GPU "
            f"cannot be used: {reason}. Backend 'host' instead of 'auto' says that this is meant",
            RuntimeWarning,
            stacklevel=2,
        )
    return "host"


def open_backend(name: str = "auto", device_memory_limit: int | None = None) -> Backend:
    """A backend ready for use.

    Raises:
        ValueError: the name is not a backend.
        BackendUnavailable: the backend cannot run here; the message says why.
    """
    cls = backend_class(resolve_backend(name))
    reason = cls.unavailable()
    if reason is not None:
        raise BackendUnavailable(f"backend {cls.name!r} cannot be used here: {reason}")
    return cls(device_memory_limit=device_memory_limit)
