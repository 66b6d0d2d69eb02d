"""``python -m gpupc_impl``: see `gpupc_impl.cli`."""

from gpupc_impl.cli import run

run()
