"""The project's own name for `gpupc_impl`: ``from gpupc import pc``, and ``python -m gpupc`` for the command line."""

from typing import TYPE_CHECKING

import gpupc_impl
from gpupc_impl import __all__ as __all__
from gpupc_impl import __version__ as __version__

if TYPE_CHECKING:
    from gpupc_impl import *  # noqa: F403


def __getattr__(name: str) -> object:
    """Import the public names on first use, as `gpupc_impl` does."""
    return getattr(gpupc_impl, name)


def __dir__() -> list[str]:
    return dir(gpupc_impl)


if __name__ == "__main__":
    from gpupc_impl.cli import run

    run()
