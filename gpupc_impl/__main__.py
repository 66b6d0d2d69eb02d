"""``python -m gpupc_impl``: see `gpupc_impl.cli`."""

import sys

from gpupc_impl.cli import main

sys.exit(main())
