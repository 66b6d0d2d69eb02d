"""NVRTC without CuPy: kernels are compiled for GPUs on machines that have neither a GPU nor CuPy."""

import ctypes
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def find_library() -> Path | None:
    """The library in NVIDIA's wheel, or None if that is not installed."""
    wheels = importlib.util.find_spec("nvidia")
    folders = (wheels.submodule_search_locations if wheels else None) or ()
    return next((path for folder in folders for path in sorted(Path(folder).glob("*/lib/libnvrtc.so.*"))), None)


class NvrtcLibrary:
    """The functions of ``cupy.cuda.nvrtc`` that nvrtc.py calls."""

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
