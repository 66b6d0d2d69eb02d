"""The program ``python -m gpupc_impl``, which is the command ``gpupc``."""

from gpupc_impl.cli import run

run()
