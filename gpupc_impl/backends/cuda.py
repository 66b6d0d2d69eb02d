"""The CUDA backend: kernels compiled by NVRTC and run on a GPU through CuPy.

CuPy is imported when a backend is opened, never by this module, so the package works without it. The class is built in
layers: the device (cuda_device.py), its memory (cuda_memory.py), copies (cuda_copies.py), and kernels in this file.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import logging
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpupc_impl.backends import nvrtc
from gpupc_impl.backends.arguments import ASSERTIONS, KernelParameter, Struct, Unfit
from gpupc_impl.backends.base import NO_CONSTANTS, PACKAGE_ROOT, KernelSource
from gpupc_impl.backends.cuda_copies import CudaCopies
from gpupc_impl.backends.cuda_device import CudaStream
from gpupc_impl.backends.errors import KernelCompilationError
from gpupc_impl.backends.launch import MAX_REMEMBERED, MAX_THREADS, Dimensions, Kernel
from gpupc_impl.backends.simt.build import cache_folder
from gpupc_impl.backends.sources import SourceCache

logger = logging.getLogger("gpupc_impl.cuda")


class CudaBackend(CudaCopies):
    """Kernels on one GPU, in one stream unless the caller names another.

    The device has the number in the environment variable ``GPUPC_CUDA_DEVICE`` among those that
    ``CUDA_VISIBLE_DEVICES`` leaves visible; without the variable it is CuPy's current device.
    """

    def __init__(self, device_memory_limit: int | None = None):
        super().__init__(device_memory_limit)
        self.compile_seconds = 0.0
        self._kernels: dict[tuple[str, str], CudaKernel] = {}
        runtime = self._cupy.cuda.runtime
        self._has_cooperative_launches = bool(self._attribute(runtime.cudaDevAttrCooperativeLaunch))
        architecture = nvrtc.target_architecture(self._cupy.cuda.nvrtc, self._device.compute_capability)
        assert architecture is not None  # `unavailable` reports this error.
        self._architecture = architecture

    def kernel(
        self,
        source: str | Path,
        expression: str,
        structs: Sequence[Struct] = (),
        constants: Mapping[str, int] = NO_CONSTANTS,
    ) -> CudaKernel:
        key = str(source), expression
        if key not in self._kernels:
            start = time.perf_counter()
            kernel = KernelSource(str(source), expression, tuple(structs), constants)
            function = _functions.get(*self._compilation(kernel), functools.partial(self._load, kernel))
            self.compile_seconds += time.perf_counter() - start
            self._kernels[key] = CudaKernel(self, expression, function)
        return self._kernels[key]

    def _is_compiled(self, kernel: KernelSource) -> bool:
        key, sources, _ = self._compilation(kernel)
        return _functions.is_ready(key, sources)

    def finish_prefetched(self) -> None:
        _functions.compilations.finish()

    def _cancel_compilations(self) -> bool:
        return _functions.compilations.cancel()

    def _prefetch(self, kernel: KernelSource) -> None:
        _functions.prefetch(*self._compilation(kernel))

    def _target(self) -> Hashable:
        return self._device_id, self._architecture, cache_folder()

    def _compilation(self, kernel: KernelSource) -> tuple[Hashable, tuple[Path, ...], Callable[[], nvrtc.Image]]:
        """Return a kernel's key (unique in the process), its sources, and the function that compiles it or reads it
        from the cache."""
        path, structs, constants = PACKAGE_ROOT / kernel.source, kernel.structs, kernel.constants
        key = path, kernel.expression, *structs, tuple(constants.items()), self._target()
        compile_it = functools.partial(
            nvrtc.compile_image,
            self._cupy.cuda.nvrtc,
            path,
            {kernel.expression: structs},
            self._architecture,
            constants,
        )
        return key, (path, PACKAGE_ROOT / ASSERTIONS), compile_it

    def gram(self, matrix: Any) -> Any:
        out = self.empty((matrix.shape[1], matrix.shape[1]), matrix.dtype)
        with self._in_stream():
            return self._cupy.matmul(matrix.T, matrix, out=out)

    @contextlib.contextmanager
    def array_library(self) -> Iterator[Any]:
        with self._in_stream(), self._cupy.cuda.using_allocator(self._allocate):
            yield self._cupy

    def address(self, array: Any) -> int:
        """Return the address of a C-contiguous array on this backend's device.

        Raises:
            Unfit: the value is no such array.
        """
        if not isinstance(array, self._cupy.ndarray):
            raise Unfit("a device array", "a NumPy array in host memory (use upload)")
        if array.data.device_id != self._device_id and array.size:
            raise Unfit(f"an array on {self._device}", f"one on {array.device}")
        if not array.flags.c_contiguous:
            raise Unfit("a C-contiguous array", f"one with strides {array.strides}")
        return int(array.data.ptr)

    def _load(self, kernel: KernelSource, image: nvrtc.Image) -> LoadedFunction:
        """Load a compiled kernel on the device."""
        name, expression = Path(kernel.source).name, kernel.expression
        compiled = image.kernels[expression]
        with self._in_stream():
            try:
                module = self._cupy.RawModule(path=str(image.path))
                function = module.get_function(compiled.name)
            except self._cupy.cuda.driver.CUDADriverError as error:
                raise KernelCompilationError(
                    f"{expression} in {name}, compiled for {self._architecture}, cannot be loaded: {error}"
                ) from error
            logger.info(
                "%s %s: %d registers, %d bytes local, %d bytes static shared (%s)",
                name,
                expression,
                function.num_regs,
                function.local_size_bytes,
                function.shared_size_bytes,
                "from the cache" if image.cached else "compiled",
            )
            return LoadedFunction(function, nvrtc.parameters(compiled, kernel.structs))


class LoadedFunction:
    """A kernel loaded on a device. All backends of the process on that device share this object."""

    def __init__(self, function: Any, parameters: Sequence[KernelParameter]):
        self.parameters, self.pointer, self.registers = parameters, function.kernel.ptr, function.num_regs
        self.max_threads, self.static_shared_bytes = function.max_threads_per_block, function.shared_size_bytes
        self._function, self._granted_bytes = function, function.max_dynamic_shared_size_bytes
        self._lock = threading.Lock()

    def allow_shared(self, shared_bytes: int) -> None:
        """Request this much dynamic shared memory, because CUDA grants more than 48 KB only on request."""
        if shared_bytes > self._granted_bytes:
            with self._lock:
                granted = max(shared_bytes, self._granted_bytes)
                self._function.max_dynamic_shared_size_bytes = self._granted_bytes = granted


_functions: SourceCache[LoadedFunction] = SourceCache()


class CudaKernel(Kernel):
    """A kernel of a CUDA backend."""

    def __init__(self, backend: CudaBackend, expression: str, function: LoadedFunction):
        parameters, threads = function.parameters, min(MAX_THREADS, function.max_threads)
        shared_bytes = backend.max_shared_bytes - function.static_shared_bytes
        super().__init__(expression, parameters, threads, shared_bytes, backend.address, function.registers)
        self._backend, self._function = backend, function
        self._driver, self._pointer = backend._cupy.cuda.driver, function.pointer
        self._resident: dict[tuple[int, int], int] = {}
        self._padding: list[bytes] = []  # the padding before each argument
        offsets, end = [], 0
        for parameter in parameters:
            self._padding.append(bytes(-end % parameter.storage.alignment))
            offsets.append(end + len(self._padding[-1]))
            end = offsets[-1] + parameter.storage.itemsize
        # The driver reads the arguments from a buffer in the layout that the kernel expects.
        self._buffer = (ctypes.c_char * end)()
        self._size = ctypes.c_size_t(end)
        self._extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(self._buffer), 2, ctypes.addressof(self._size), 0)
        self._extra_address = ctypes.addressof(self._extra)
        # For a cooperative launch the driver reads the address of each argument instead.
        start = ctypes.addressof(self._buffer)
        self._arguments = (ctypes.c_void_p * len(offsets))(*(start + offset for offset in offsets))
        self._lock = threading.Lock()  # The lock lets one launch at a time use the buffer.

    def _launch(
        self,
        grid: Dimensions,
        block: Dimensions,
        args: Sequence[Any],
        encoded: Sequence[bytes],
        shared_bytes: int,
        stream: CudaStream | None,
        cooperative: bool,
    ) -> None:
        # The driver is called directly, because a launch through CuPy's `RawKernel` takes several times as long.
        content = b"".join(itertools.chain.from_iterable(zip(self._padding, encoded, strict=True)))
        handle = (self._backend._stream if stream is None else stream.handle).ptr
        self._backend._running[self.name] = None
        with self._backend._on_device(), self._lock:
            self._function.allow_shared(shared_bytes)
            self._buffer.raw = content
            if cooperative:
                addresses = ctypes.addressof(self._arguments)
                self._driver.launchCooperativeKernel(self._pointer, *grid, *block, shared_bytes, handle, addresses)
            else:
                self._driver.launchKernel(self._pointer, *grid, *block, shared_bytes, handle, 0, self._extra_address)

    def resident_blocks(self, threads: int, shared_bytes: int) -> int:
        if not self._backend._has_cooperative_launches:
            return 0
        blocks = self._resident.get((threads, shared_bytes))
        if blocks is None:
            with self._backend._on_device():
                self._function.allow_shared(shared_bytes)
                blocks = self._driver.occupancyMaxActiveBlocksPerMultiprocessor(self._pointer, threads, shared_bytes)
            blocks *= self._backend.multiprocessors
            if len(self._resident) == MAX_REMEMBERED:
                self._resident.clear()
            self._resident[threads, shared_bytes] = blocks
        return blocks
