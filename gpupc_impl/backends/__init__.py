"""Where kernels run: a GPU (``cuda``) or this machine's cores (``host``)."""

from __future__ import annotations

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
    """Turn ``"auto"`` into ``"cuda"`` where a device is visible and into ``"host"`` elsewhere."""
    if name != "auto":
        backend_class(name)
        return name
    return "cuda" if backend_class("cuda").unavailable() is None else "host"


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
