"""Views show results to users: as text, pictures, pages and files of other programs. Some need optional packages."""

import importlib
from typing import Any


class MissingPackage(ImportError):
    """A view needs a package that is not installed; the message names the package and the extra that installs it."""


def require(module: str, what: str, extra: str) -> Any:
    """Import a module that `what` (a plural) need and an `extra` installs, or raise `MissingPackage`."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingPackage(
            f"{what} need {package}, which is not installed; pip install {package} (the extra {extra})"
        ) from error
