"""What the command line takes."""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
from pathlib import Path

import gpupc_impl
from gpupc_impl.backends import BACKENDS
from gpupc_impl.cli import records
from gpupc_impl.cli.output import OUTPUT_SUFFIXES, listed
from gpupc_impl.core.colliders import V_STRUCTURES
from gpupc_impl.core.family import families
from gpupc_impl.core.orientation import CONFLICTS
from gpupc_impl.core.registry import SEPARATING_SETS
from gpupc_impl.intake import MISSING

SIZE_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class Parser(argparse.ArgumentParser):
    """argparse with errors of one line."""

    def error(self, message: str) -> None:
        self.exit(2, f"error: {message} (see {self.prog} --help)\n")


def parser() -> Parser:
    called = Path(sys.argv[0]).name == "gpupc"  # the installed command
    parser = Parser(prog="gpupc" if called else "python -m gpupc_impl", description=gpupc_impl.__doc__.splitlines()[0])
    parser.add_argument("--version", action="version", version=gpupc_impl.__version__)
    commands = parser.add_subparsers(metavar="COMMAND", dest="command", required=True)

    listing = commands.add_parser("methods", help="list the methods, and which can run here")
    listing.add_argument("--family", help="only methods of this family, such as gaussian")

    for name, summary in (
        ("skeleton", "find the skeleton, the undirected graph, and its separating sets"),
        ("pc", "find the skeleton and orient its edges: the CPDAG"),
    ):
        command = commands.add_parser(name, help=summary, description=summary)
        _add_data_arguments(command.add_argument_group("data"))
        _add_search_arguments(command.add_argument_group("search"))
        if name == "pc":
            _add_orientation_arguments(command.add_argument_group("orientation"))
        _add_output_arguments(command.add_argument_group("output"))
    records.add_parser(commands)
    return parser


def _add_data_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "data",
        metavar="DATA",
        type=Path,
        help="samples in rows, variables in columns: a text table (.csv, .tsv, ..., also .gz), .npy, .npz, .parquet, "
        ".xlsx or .h5ad",
    )
    group.add_argument(
        "--header",
        action=argparse.BooleanOptionalAction,
        help="the table's first line names the variables (default: it does when it holds no number)",
    )
    group.add_argument("--row-names", action="store_true", help="the table's first column names the rows: leave it out")
    group.add_argument(
        "--transpose",
        action=argparse.BooleanOptionalAction,
        help="variables are in rows and samples in columns, as genes often are (default: no, with a warning where the "
        "shape suggests it)",
    )
    group.add_argument(
        "--missing",
        choices=MISSING,
        default=MISSING[0],
        help="missing values: refuse them, drop samples that have any, or take for each pair of variables the samples "
        "that hold both (Gaussian test) (default: %(default)s)",
    )
    group.add_argument("--correlation", action="store_true", help="DATA is a correlation matrix; needs --n-samples")
    group.add_argument("--n-samples", metavar="M", type=int, help="samples behind the correlation matrix")


def _add_search_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--family",
        default="auto",
        choices=("auto", *families()),
        help="numbers with Fisher's z (gaussian, the default), categories with chi-square (discrete), numbers with "
        "CMIknn (nonlinear) or both with CMIknn (mixed); where a method is named, it is that one's",
    )
    group.add_argument("--method", default="auto", help="a name that `methods` lists, or auto: the fastest (default)")
    group.add_argument("--alpha", type=float, default=0.05, help="significance level (default: %(default)s)")
    group.add_argument("--max-level", metavar="L", type=int, help="largest conditioning set (default: no limit)")
    group.add_argument(
        "--knowledge",
        metavar="FILE",
        type=Path,
        help="YAML with required_edges, forbidden_edges, required_directions, forbidden_directions and tiers: lists of "
        "lists of variables",
    )
    group.add_argument(
        "--separating-sets",
        choices=SEPARATING_SETS,
        default=SEPARATING_SETS[0],
        help="the same sets on every run, or the papers' rule (default: %(default)s)",
    )
    group.add_argument("--pmax", action="store_true", help="record the largest p-value of every pair (.npz only)")
    group.add_argument(
        "--param",
        metavar="KEY=VALUE",
        type=_key_value,
        action="append",
        default=[],
        help="a parameter of the method (theta=64) or of the test (df_convention=cupc, df_rule=adjusted, k_cmi=20); "
        "repeatable",
    )
    group.add_argument(
        "--backend",
        choices=("auto", *BACKENDS),
        default="auto",
        help="a GPU, this machine's cores, or a GPU where one is visible (default: %(default)s)",
    )
    group.add_argument(
        "--device-memory-limit", metavar="SIZE", type=_size, help="device memory to use at most, such as 2GiB"
    )


def _add_orientation_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--conflicts",
        choices=CONFLICTS,
        default=CONFLICTS[0],
        help="an edge oriented both ways: left undirected, as the first says, or with two heads (default: %(default)s)",
    )
    group.add_argument(
        "--v-structures",
        choices=V_STRUCTURES,
        default=V_STRUCTURES[0],
        help="by the separating sets, or by tests given all subsets of neighbours, of which all or most must agree "
        "(default: %(default)s)",
    )


def _add_output_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--output",
        metavar="OUT",
        type=Path,
        help=f"where to write the graph: a file ending in {listed(OUTPUT_SUFFIXES)}",
    )
    group.add_argument(
        "--report", metavar="PAGE", type=Path, help="where to write an HTML page of the run (needs matplotlib)"
    )
    group.add_argument("--quiet", action="store_true", help="print errors and warnings only")


def _key_value(text: str) -> tuple[str, int | float | str]:
    key, equals, value = (part.strip() for part in text.partition("="))
    if not (key and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form KEY=VALUE, such as theta=64")
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return key, kind(value)
    return key, value


def _size(text: str) -> int:
    """Bytes of a text such as ``2GiB``, ``2GB``, ``2G`` (all binary) or ``2147483648``."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:I?B)?", text.strip().upper())
    if found is None or float(found[1]) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size, such as 512MiB or 2GiB")
    return int(float(found[1]) * SIZE_UNITS[found[2]])
