"""What pyproject.toml cannot say: a wheel carries the kernels that ``make wheel`` compiled ahead.

Their archives come from the folder that GPUPC_SHIPPED_DIR names. Without it the wheel is pure Python, and kernels are
compiled on first use.
"""

import os
import re
import shutil
import sysconfig
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

FOLDER = os.environ.get("GPUPC_SHIPPED_DIR")
ARCHIVES = sorted(Path(FOLDER).glob("*.zip")) if FOLDER else []


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


class PlatformWheel(bdist_wheel):
    """Tags a wheel with archives for this machine's platform; it serves every Python, since no binary links to it."""

    def get_tag(self):
        python, abi, platform = super().get_tag()
        if ARCHIVES and platform == "any":
            platform = re.sub(r"[^0-9A-Za-z]", "_", sysconfig.get_platform())
        return python, abi, platform


setup(cmdclass={"build_py": BuildWithArchives, "bdist_wheel": PlatformWheel})
