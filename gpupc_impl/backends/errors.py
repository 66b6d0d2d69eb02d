"""The errors of backends, whose messages name the fault and the way out."""

from __future__ import annotations


class BackendUnavailable(RuntimeError):
    """The backend cannot run on this machine; the message names the reason and the way out."""


class KernelCompilationError(RuntimeError):
    """A kernel did not compile; the message contains the compiler, its command and its output."""


class KernelLaunchError(RuntimeError):
    """A kernel could not be launched or did not finish; the message names the kernel and the reason."""


class DeviceMemoryError(MemoryError):
    """Device memory is exhausted: the device's own, or the budget ``device_memory_limit``. In bytes, `requested` did
    not fit beside what this backend has `used`, within the `limit`."""

    def __init__(self, requested: int, used: int, limit: int, message: str | None = None):
        self.requested, self.used, self.limit = requested, used, limit
        super().__init__(
            message
            or f"device memory exhausted: {requested:,} bytes asked for with {used:,} of {limit:,} bytes in use; "
            "give the method more device memory (device_memory_limit) or a smaller problem, "
            "or use an out-of-core method"
        )

    def __reduce__(self) -> tuple[type[DeviceMemoryError], tuple[int, int, int, str]]:
        return type(self), (self.requested, self.used, self.limit, str(self))
