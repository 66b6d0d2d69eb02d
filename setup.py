"""What pyproject.toml cannot say: a wheel carries the kernels that ``make wheel`` compiled ahead. Their archives come
from the folder that GPUPC_SHIPPED_DIR names. Without it the wheel is pure Python, and kernels are compiled on first
use."""

import os
import re
import shutil
import zipfile
from pathlib import Path
from platform import machine

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

FOLDER = os.environ.get("GPUPC_SHIPPED_DIR")
ARCHIVES = sorted(Path(FOLDER).glob("*.zip")) if FOLDER else []
LIBSTDCXX = {19: 17, 22: 24, 24: 28, 28: 31, 29: 34, 30: 35, 33: 39}
"""N of manylinux_2_N (PEP 600) by the newest GLIBCXX_3.4.x that its systems have, as auditwheel's policies say."""


class BuildWithArchives(build_py):
    """Puts the archives into the package."""

    def run(self):
        super().run()
        if self.editable_mode:
            return
        shipped = Path(self.build_lib, "gpupc_impl", "shipped")
        shutil.rmtree(shipped, ignore_errors=True)  # an earlier build may have left others
        shipped.mkdir(parents=True)
        for archive in ARCHIVES:
            shutil.copy(archive, shipped)


def glibc_version() -> int:
    """Return N of the glibc 2.N from which on systems have every symbol that the archives' libraries ask for."""
    needed = [17]
    for archive in ARCHIVES:
        with zipfile.ZipFile(archive) as file:
            content = b"".join(map(file.read, file.namelist()))
        needed += map(int, re.findall(rb"GLIBC_2\.(\d+)", content))
        for version in set(map(int, re.findall(rb"GLIBCXX_3\.4\.(\d+)", content))):
            needed.append(min((n for newest, n in LIBSTDCXX.items() if newest >= version), default=99))
    return max(needed)


class PlatformWheel(bdist_wheel):
    """Tags a wheel with archives for the systems that can load their libraries; it serves every Python, since no binary
    links to it."""

    def get_tag(self):
        python, abi, platform = super().get_tag()
        if ARCHIVES and platform == "any":
            platform = f"manylinux_2_{glibc_version()}_{machine()}"
        return python, abi, platform


setup(cmdclass={"build_py": BuildWithArchives, "bdist_wheel": PlatformWheel})
