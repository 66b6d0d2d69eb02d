"""Makes one table or figure of published runs without a workflow:
``python -m workflow.pages.draw cupc_table2 table2.md results/recorded/nvidia-h200``."""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from gpupc_impl.reporting.catalogue import entries
from workflow.lib.plan import recorded_plans


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m workflow.pages.draw", description=__doc__)
    parser.add_argument("name", choices=entries(), metavar="NAME", help="of the table or figure (docs/experiments.md)")
    parser.add_argument("path", type=Path, metavar="FILE", help="where it goes; its suffix says as what")
    parser.add_argument("folders", nargs="*", metavar="FOLDER", help="recorded runs (default: results/recorded/*)")
    options = parser.parse_args(argv)
    entry = entries()[options.name]
    kind = options.path.suffix.removeprefix(".")
    if kind not in entry.outputs():
        parser.error(f"{options.path}: {options.name} is written as {', '.join(entry.outputs())}")
    try:
        plans = recorded_plans({"recorded": options.folders or None})
    except ValueError as error:
        parser.error(str(error))
    sources = list(filter(None, (plan.recorded_source(entry) for plan in plans)))
    if not sources:
        where = ", ".join(plan.folder for plan in plans) or "the project"
        parser.error(f"no run of {options.name} is recorded in {where}")
    with tempfile.TemporaryDirectory() as folder:
        outputs = {each: f"{folder}/{options.name}.{each}" for each in entry.outputs()}
        entry.write(sources, outputs)
        options.path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(outputs[kind], options.path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
