"""The program ``python -m gpupc_impl``, which runs `gpupc_impl.cli`."""

from gpupc_impl.cli import run

run()
