"""Packages that only some views need."""

from __future__ import annotations

import importlib
from typing import Any


class MissingPackage(ImportError):
    """A view needs a package that is not installed; the message names it and the extra that brings it."""


def require(module: str, what: str, extra: str) -> Any:
    """The module.

    Args:
        what: what needs it.
        extra: of this project, which brings it.

    Raises:
        MissingPackage: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingPackage(
            f"{what} need {package}, which is not installed; pip install {package}, or the extra: "
            f"pip install 'gpupc[{extra}]'"
        ) from error
