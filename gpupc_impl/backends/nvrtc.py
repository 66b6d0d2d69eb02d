"""Compiles ``.cu`` files to device images with NVRTC, NVIDIA's runtime compiler. No device is needed. The argument
``nvrtc`` of functions is CuPy's binding, ``cupy.cuda.nvrtc``, or an object with the same functions.
``cupy.RawModule(code=...)`` is not used. CuPy appends ``-ftz=true`` to every compilation, and the last option wins
(CuPy issue 9576), so float32 kernels would round differently from the host backend; and its kernel cache does not
notice changes in included files. CuPy is used only to bind NVRTC and to load the images."""

import ctypes
import dataclasses
import hashlib
import importlib.util
import json
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpupc_impl.backends import shipped
from gpupc_impl.backends.arguments import KernelParameter, Struct, Word
from gpupc_impl.backends.base import PACKAGE_ROOT
from gpupc_impl.backends.compilations import compiling
from gpupc_impl.backends.errors import KernelCompilationError
from gpupc_impl.backends.simt.build import open_cache
from gpupc_impl.backends.sources import ASSERTIONS, KernelSource, declaration_checks, sources_of

NVRTC_OPTIONS = (
    "-std=c++17",
    # They give the host backend's bits: fused multiply-adds only where the source writes fma, and IEEE float32.
    "-fmad=false",
    "-ftz=false",
    "-prec-div=true",
    "-prec-sqrt=true",
)

_PARAMETER = re.compile(r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+\w+(\[\d+\])?")


@dataclasses.dataclass(frozen=True)
class CompiledKernel:
    """A kernel's mangled name and parameters in PTX: "u64" (pointers too), "u32", "f64", "b8[56]" (a struct)."""

    name: str
    parameters: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Image:
    """The compiled kernels of one source, by expression. `path` is the cubin, or PTX for a device that is newer than
    this NVRTC; `cached` says whether it was read from the cache, or from an archive of images compiled ahead."""

    path: Path
    kernels: dict[str, CompiledKernel]
    cached: bool


def target_architecture(nvrtc: Any, compute_capability: str) -> str | None:
    """Return a device's target: its machine code, or the newest PTX; None if NVRTC does not support the device."""
    capability = int(compute_capability)
    supported = [arch for arch in nvrtc.getSupportedArchs() if arch <= capability]
    if not supported:
        return None
    return f"sm_{capability}" if capability in supported else f"compute_{max(supported)}"


def parameters(kernel: CompiledKernel, structs: Sequence[Struct]) -> list[KernelParameter]:
    remaining = iter(structs)
    return [next(remaining) if "[" in kind else Word(kind[0], int(kind[1:])) for kind in kernel.parameters]


@compiling()
def compile_source(
    nvrtc: Any, kernels: Sequence[KernelSource], architecture: str
) -> tuple[bytes, dict[str, CompiledKernel], str]:
    """Compile some kernels of one source; returns the image, the kernels by expression and the PTX of the image."""
    source, expressions = kernels[0].path, [kernel.expression for kernel in kernels]
    options = (*NVRTC_OPTIONS, f"-I{PACKAGE_ROOT}", f"-arch={architecture}")
    checks = declaration_checks(kernels)
    program = nvrtc.createProgram(f"{source.read_text()}\n{checks}", str(source), (), ())
    try:
        for expression in expressions:
            nvrtc.addNameExpression(program, expression)
        nvrtc.compileProgram(program, options)
        names = {expression: nvrtc.getLoweredName(program, expression) for expression in expressions}
        ptx = nvrtc.getPTX(program)
        image = nvrtc.getCUBIN(program) if architecture.startswith("sm_") else ptx
    except nvrtc.NVRTCError as error:
        major, minor = nvrtc.getVersion()
        raise KernelCompilationError(
            f"{', '.join(expressions)} in {source.name} does not compile: {error}\n"
            f"NVRTC {major}.{minor} {' '.join(options)}\n{nvrtc.getProgramLog(program).strip()}"
        ) from error
    finally:
        nvrtc.destroyProgram(program)
    ptx = ptx.decode()
    return image, {expression: CompiledKernel(name, _ptx_types(ptx, name)) for expression, name in names.items()}, ptx


def compile_image(nvrtc: Any, kernel: KernelSource, architecture: str) -> Image:
    """An image from the cache on disk or from an archive, by the contents of all files in it, else `compile_source`.
    Two processes may compile the same kernels concurrently. The kernels of a damaged entry are compiled again."""
    if not kernel.path.is_file():
        raise KernelCompilationError(f"kernel source {str(kernel.path)!r} does not exist")
    content = content_digest(kernel, architecture)
    key = shipped.content_digest(nvrtc.getVersion(), content)
    folder = open_cache("cuda")
    image_path, index_path = folder / f"{key}.cubin", folder / f"{key}.json"
    try:
        index = json.loads(index_path.read_text())
        if hashlib.sha256(image_path.read_bytes()).hexdigest() == index["sha256"]:
            return Image(image_path, _kernels(index["kernels"]), cached=True)
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        pass  # the entry is missing or damaged
    unpacked = _from_archive(nvrtc, architecture, content)
    image, compiled = unpacked or compile_source(nvrtc, [kernel], architecture)[:2]
    index = {"sha256": hashlib.sha256(image).hexdigest(), "kernels": described(compiled)}
    try:
        _write_atomically(image_path, image)
        _write_atomically(index_path, json.dumps(index).encode())
    except OSError as error:
        raise KernelCompilationError(
            f"compiled kernels cannot be written to {folder} ({error.strerror}); set GPUPC_CACHE_DIR to a "
            "folder that can be written to"
        ) from error
    return Image(image_path, compiled, cached=unpacked is not None)


def content_digest(kernel: KernelSource, architecture: str) -> str:
    """The digest of everything that determines an image, but for the version of NVRTC."""
    files = sources_of(kernel.path, PACKAGE_ROOT / ASSERTIONS)
    return shipped.content_digest(architecture, NVRTC_OPTIONS, declaration_checks([kernel]), files)


def _from_archive(nvrtc: Any, architecture: str, content: str) -> tuple[bytes, dict[str, CompiledKernel]] | None:
    """An image that was compiled ahead, with its kernels by expression, or None if there is none, or a later major
    version of NVRTC than the installed one made the archive, because the driver may be too old to load its images."""
    archive = shipped.archive_of(architecture)
    if archive is None or content not in archive.entries:
        return None
    if int(archive.compiler.partition(".")[0]) > nvrtc.getVersion()[0]:
        return None
    try:
        return archive.content(content), _kernels(archive.entries[content].kernels)
    except shipped.DamagedArchive:
        return None


def described(kernels: Mapping[str, CompiledKernel]) -> dict[str, dict[str, Any]]:
    return {expression: dataclasses.asdict(kernel) for expression, kernel in kernels.items()}


def _kernels(description: Mapping[str, Mapping[str, Any]]) -> dict[str, CompiledKernel]:
    return {
        expression: CompiledKernel(entry["name"], tuple(entry["parameters"]))
        for expression, entry in description.items()
    }


def _ptx_types(ptx: str, name: str) -> tuple[str, ...]:
    (declaration,) = re.findall(rf"\.entry\s+{re.escape(name)}\s*\((.*?)\)", ptx, re.DOTALL)
    return tuple(map("".join, _PARAMETER.findall(declaration)))


def _write_atomically(path: Path, content: bytes) -> None:
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(content)
    os.replace(file.name, path)


# --- NVRTC without CuPy, for machines that have neither a GPU nor CuPy ------------------------------------------------
def find_library() -> Path | None:
    """The library in NVIDIA's wheel, or None if that is not installed."""
    wheels = importlib.util.find_spec("nvidia")
    folders = (wheels.submodule_search_locations if wheels else None) or ()
    return next((path for folder in folders for path in sorted(Path(folder).glob("*/lib/libnvrtc.so.*"))), None)


class NvrtcLibrary:
    """The functions of ``cupy.cuda.nvrtc`` that are called above."""

    class NVRTCError(RuntimeError):
        """A function of NVRTC failed."""

    def __init__(self, path: Path):
        self._library = ctypes.CDLL(str(path))
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def _call(self, function: str, *args: Any) -> None:
        status = self._library[function](*args)
        if status:
            raise self.NVRTCError(self._library.nvrtcGetErrorString(status).decode())

    def _text(self, what: str, program: int) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"nvrtcGet{what}Size", ctypes.c_void_p(program), ctypes.byref(size))
        content = ctypes.create_string_buffer(size.value)
        self._call(f"nvrtcGet{what}", ctypes.c_void_p(program), content)
        return content.raw

    def getVersion(self) -> tuple[int, int]:
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        return major.value, minor.value

    def getSupportedArchs(self) -> tuple[int, ...]:
        count = ctypes.c_int()
        self._call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
        architectures = (ctypes.c_int * count.value)()
        self._call("nvrtcGetSupportedArchs", architectures)
        return tuple(architectures)

    def createProgram(self, source: str, name: str, headers: Sequence[Any], include_names: Sequence[Any]) -> int:
        assert not headers
        assert not include_names
        program = ctypes.c_void_p()
        self._call(
            "nvrtcCreateProgram", ctypes.byref(program), source.encode(), name.encode(), ctypes.c_int(0), None, None
        )
        assert program.value is not None
        return program.value

    def addNameExpression(self, program: int, expression: str) -> None:
        self._call("nvrtcAddNameExpression", ctypes.c_void_p(program), expression.encode())

    def compileProgram(self, program: int, options: Sequence[str]) -> None:
        encoded = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        self._call("nvrtcCompileProgram", ctypes.c_void_p(program), ctypes.c_int(len(options)), encoded)

    def getLoweredName(self, program: int, expression: str) -> str:
        name = ctypes.c_char_p()
        self._call("nvrtcGetLoweredName", ctypes.c_void_p(program), expression.encode(), ctypes.byref(name))
        assert name.value is not None
        return name.value.decode()

    def getPTX(self, program: int) -> bytes:
        return self._text("PTX", program).rstrip(b"\0")

    def getCUBIN(self, program: int) -> bytes:
        return self._text("CUBIN", program)

    def getProgramLog(self, program: int) -> str:
        return self._text("ProgramLog", program).rstrip(b"\0").decode()

    def destroyProgram(self, program: int) -> None:
        self._call("nvrtcDestroyProgram", ctypes.byref(ctypes.c_void_p(program)))
