"""Replaces the digests of recorded runs after the rule of which code they cover has changed.

    python -m workflow.pages.digests note build/digests.json      # before the change of exclusions.py
    python -m workflow.pages.digests replace build/digests.json   # after it, with no other change of the code

A digest is replaced if it was that of the code before the change. The others stay: they are of other code, or of a
library of the authors that the environment does not name now.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from gpupc_impl.core.files import read_json, read_text, save_json, write_text
from gpupc_impl.core.registry import get_method
from gpupc_impl.measurement.digest import code_version
from gpupc_impl.measurement.published import PublishedRuns
from gpupc_impl.measurement.record import load_tests
from workflow.lib.plan import ROOT


def measured(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Yield the method, the backend and the digest of each run and single test of a published folder."""
    for record in PublishedRuns(folder).records():
        yield record.method, record.backend, record.code
    for path in folder.glob("tests/*.json"):
        for cell in load_tests(path)["cells"]:
            if "code" in cell:
                yield cell["method"], cell["backend"], cell["code"]


def digests(folders: Sequence[Path]) -> dict[str, str]:
    """Return the digest of the present code of each measured method on each backend."""
    pairs = {(method, backend) for folder in folders for method, backend, _ in measured(folder)}
    return {f"{method} {backend}": code_version(get_method(method), backend) for method, backend in sorted(pairs)}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m workflow.pages.digests", description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=["note", "replace"])
    parser.add_argument("file", type=Path, help="the digests before the change")
    default = sorted(path.parent for path in (ROOT / "results/recorded").glob("*/machines.json"))
    parser.add_argument("folders", type=Path, nargs="*", default=default, help="default: all of results/recorded")
    options = parser.parse_args(argv)
    now = digests(options.folders)
    if options.action == "note":
        save_json(now, options.file)
        return
    new = {digest: now[name] for name, digest in read_json(options.file).items()}
    codes = [code for folder in options.folders for _, _, code in measured(folder)]
    for folder in options.folders:
        for path in (*folder.glob("records/*.jsonl"), *folder.glob("tests/*.json")):
            text = read_text(path)
            for before, after in new.items():
                text = text.replace(before, after)
            write_text(path, text)
    print(f"replaced: {sum(code in new for code in codes):,}, left: {sum(code not in new for code in codes):,}")


if __name__ == "__main__":
    main()
