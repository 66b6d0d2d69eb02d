"""Defines the arguments of the command line."""

import argparse
import contextlib
import difflib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import gpupc_impl
import gpupc_impl.examples as examples
from gpupc_impl.backends import BACKENDS
from gpupc_impl.cli import commands
from gpupc_impl.cli.output import EXAMPLE, OUTPUT_SUFFIXES, listed
from gpupc_impl.core.colliders import AUTO, V_STRUCTURES
from gpupc_impl.core.family import families
from gpupc_impl.core.files import shortened
from gpupc_impl.core.orientation import CONFLICTS
from gpupc_impl.core.registry import SEPARATING_SETS
from gpupc_impl.intake import MISSING
from gpupc_impl.latent.inference import ALGORITHMS
from gpupc_impl.studies.alpha_path import ALPHAS
from gpupc_impl.time_series.parameters import CORRECTIONS
from gpupc_impl.time_series.parameters import RULES as COLLIDER_RULES
from gpupc_impl.time_series.parameters import SUFFIXES as SERIES_SUFFIXES
from gpupc_impl.time_series.parameters import TESTS as SERIES_TESTS
from gpupc_impl.views.exports import PICTURES, STUDY_SUFFIXES

SIZE_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
MAX_SIZE = 2**60  # upper bound on a size in bytes, which fits into 64 bits


class Parser(argparse.ArgumentParser):
    """A parser whose error messages take one line, and whose command, as every command, has the option ``--json``."""

    def __init__(self, **options: Any):
        super().__init__(**options)
        # A command's parser does not reset what was said before the command's name.
        options = {"action": "store_true", "default": argparse.SUPPRESS}
        self.add_argument("--json", help="print what was found as JSON, for scripts", **options)
        self.commands: Mapping[str, argparse.ArgumentParser] = {}

    def error(self, message: str) -> NoReturn:
        hint = ""
        if wrong := re.match(r"unrecognized arguments: (-[^ =]+)", message):
            options = {name: command._option_string_actions for name, command in self.commands.items()}
            if having := [name for name, its in options.items() if wrong[1] in its]:
                hint = f"; {wrong[1]} is an option of {', '.join(having)}"
            elif near := difflib.get_close_matches(wrong[1], sorted(set().union(*options.values())), n=1):
                hint = f"; did you mean {near[0]}?"
        self.exit(2, f"error: {message}{hint} (see {self.prog} --help)\n")


def parser() -> Parser:
    parser = Parser(prog="gpupc", description=gpupc_impl.__doc__.splitlines()[0])
    parser.add_argument("--version", action="version", version=gpupc_impl.__version__)
    parsers = parser.add_subparsers(metavar="COMMAND", dest="command", required=True)
    parser.commands = parsers.choices
    for name, function, add_arguments, summary in (
        ("methods", commands.list_methods, _add_methods, "list the methods and say which can run here"),
        ("skeleton", commands.search, _add_search, "find the skeleton (the undirected graph) and the separating sets"),
        ("pc", commands.search, _add_pc, "find the skeleton and orient its edges, which gives the CPDAG"),
        ("fci", commands.search, _add_fci, "find the PAG, which allows for common causes that were not measured"),
        ("bootstrap", commands.resample, _add_bootstrap, "repeat `pc` on resampled data, and count each edge"),
        ("alpha-path", commands.search_alphas, _add_alpha_path, "find the skeletons at several significance levels"),
        ("try", commands.try_methods, _add_try, "verify and time the methods of a Python file beside a reference"),
        ("pcmci", commands.time_series, _add_pcmci, "find the causal graph of time series by PCMCI or PCMCI+"),
        ("records", commands.keep_records, _add_records, "publish and check the records of measurements"),
        ("compile", commands.fill_cache, _add_compile, "compile kernels into the cache ahead of the first search"),
    ):
        command = parsers.add_parser(name, help=summary, description=summary)
        command.set_defaults(run=function)
        add_arguments(command)
    return parser


def _option(group: Any, flag: str, text: str, **more: Any) -> None:
    """Add an option such as ``--max-level L``, or an argument; a second word stands for the value in help texts."""
    name, _, metavar = flag.partition(" ")
    group.add_argument(name, help=text, **more, **({"metavar": metavar} if metavar else {}))


def _add_choice(group: Any, name: str, choices: Sequence[str], text: str) -> None:
    """Add an option whose default is the first choice."""
    _option(group, name, f"{text} (default: %(default)s)", choices=choices, default=choices[0])


def _add_methods(command: Parser) -> None:
    command.add_argument("method", metavar="METHOD", nargs="?", help="describe this method and its parameters")
    _option(command, "--family", "only methods of this family, such as gaussian")


def _add_search(command: Parser, alpha: float = 0.05) -> None:
    _add_data_arguments(command.add_argument_group("data"))
    _add_search_arguments(command.add_argument_group("search"), alpha)
    _add_output_arguments(command.add_argument_group("output"), OUTPUT_SUFFIXES)


def _add_pc(command: Parser) -> None:
    _add_search(command)
    _add_orientation_arguments(command.add_argument_group("orientation"))


def _add_fci(command: Parser) -> None:
    _add_search(command, alpha=0.01)
    group = command.add_argument_group("common causes")
    text = "rfci, or fci, which makes further tests and may remove further edges"
    _add_choice(group, "--algorithm", ALGORITHMS, text)
    text = "size of the largest sets of members of Possible-D-SEP that fci tests (default: no limit)"
    _option(group, "--max-possible-d-sep SIZE", text, type=int)
    text = "the most edges of a discriminating path, and of a walk to a member of Possible-D-SEP (default: no limit)"
    _option(group, "--max-path-length EDGES", text, type=int)


def _add_bootstrap(command: Parser) -> None:
    _add_data_arguments(command.add_argument_group("data"))
    group = command.add_argument_group("resamples")
    _option(group, "--resamples N", "how many (default: %(default)s)", type=int, default=100)
    _option(group, "--seed", "seed of the resamples (default: %(default)s)", type=int, default=0)
    text = "draw half of the samples without replacement, as stability selection does"
    _option(group, "--subsamples", text, action="store_true")
    _option(group, "--at-least SHARE", "show edges at least this frequent", type=float, default=0.5)
    text = "show the edges of stability selection instead: at most E false ones are expected; implies --subsamples"
    _option(group, "--errors E", text, type=float)
    _option(group, "--folder", "keep each resample's graph here, so that a run can go on", type=Path)
    _option(group, "--processes N", "processes that share the cores (default: one)", type=int)
    _add_search_arguments(command.add_argument_group("search"))
    _add_orientation_arguments(command.add_argument_group("orientation"))
    _add_output_arguments(command.add_argument_group("output"), STUDY_SUFFIXES)


def _add_alpha_path(command: Parser) -> None:
    _add_data_arguments(command.add_argument_group("data"))
    group = command.add_argument_group("search")
    levels = f"significance levels (default: {' '.join(f'{alpha:g}' for alpha in ALPHAS)})"
    _option(group, "--alphas ALPHA", levels, type=float, nargs="+", default=ALPHAS)
    _add_search_arguments(group, alpha=None)
    _add_output_arguments(command.add_argument_group("output"), STUDY_SUFFIXES)


def _add_try(command: Parser) -> None:
    command.add_argument("file", metavar="FILE.py", type=Path, help="a module that registers methods")
    _add_choice(command, "--backend", ("auto", *BACKENDS), "where kernels run")


def _add_pcmci(command: Parser) -> None:
    text = (
        "time steps in rows, variables in columns; a first column of dates is the index; several tables are "
        "several series of the same variables"
    )
    command.add_argument("data", metavar="DATA", type=Path, nargs="+", help=text)
    _option(command, "--tau-max LAG", "the largest lag, in time steps", type=int, required=True)
    _option(command, "--tau-min LAG", "the smallest lag (default: 0)", type=int, default=0)
    _option(command, "--alpha", "significance level (default: %(default)s)", type=float, default=0.01)
    _option(command, "--contemporaneous", "PCMCI+, which directs contemporaneous links as well", action="store_true")
    _add_choice(command, "--test", SERIES_TESTS, "the test")
    text = "level of the first phase of PCMCI (default: 0.2), or several, from which Akaike's criterion chooses"
    _option(command, "--pc-alpha ALPHA", text, type=float, nargs="+")
    _add_choice(command, "--collider-rule", COLLIDER_RULES, "of PCMCI+")
    text = "fdr_bh corrects the p-values of lagged links by Benjamini and Hochberg's method"
    _add_choice(command, "--correction", CORRECTIONS, text)
    _add_choice(command, "--backend", ("auto", *BACKENDS), "where kernels run")
    _option(command, "--output OUT", f"write the graph to this file: {listed(SERIES_SUFFIXES)}", type=Path)
    _option(command, "--quiet", "print errors and warnings only", action="store_true")


def _add_records(command: Parser) -> None:
    actions = command.add_subparsers(metavar="ACTION", dest="action", required=True)
    publish = actions.add_parser(
        "publish",
        help="bring the results of a workflow into a folder",
        description="Bring the results of a workflow into a folder of published runs, whose tables and figures show "
        "them beside others. A run replaces the published one of the same setting on the same data set; others stay. A "
        "workflow that was cut off can be published too, and a folder of published runs into another one. Names of a "
        "cluster's nodes are left out.",
    )
    _option(publish, "results RESULTS", "the folder results of a workflow, or a folder of published runs", type=Path)
    into = "the folder of published runs (default: RESULTS/recorded/DEVICE, with the device's own name)"
    _option(publish, "into INTO", into, type=Path, nargs="?")
    check = actions.add_parser(
        "check",
        help="check folders of published runs",
        description="Check folders of published runs before they are committed: records fit their schema, their "
        "machines and data sets are there, every run names a commit, no run stands twice, lines are sorted and "
        "compact, and no host name, home folder or e-mail address is told. On the same problem, runs of the closed "
        "division have the same answer in all of the folders (docs/submit.md).",
    )
    _option(check, "folders FOLDER", "a folder of published runs (default: results/recorded/*)", type=Path, nargs="*")
    _option(check, "--current", "every run must be of the present code, as before a release", action="store_true")


def _add_compile(command: Parser) -> None:
    _option(command, "--family", "only kernels of this family, such as gaussian")
    target = command.add_mutually_exclusive_group()
    _add_choice(target, "--backend", ("auto", *BACKENDS), "where the kernels are to run")
    _option(target, "--arch sm_90", "an architecture of GPUs, of which none needs to be here")
    levels = "up to which level kernels that depend on it are compiled (default: %(default)s)"
    _option(command, "--max-level LEVEL", levels, type=int, default=8)


def _add_data_arguments(group: argparse._ArgumentGroup) -> None:
    text = (
        "samples in rows, variables in columns: a text table (.csv, .tsv, ..., also .gz), .npy, .npz, .parquet, "
        ".xlsx, .h5ad or PLINK's .bed; several tables with --missing imputed; or data to try commands on: "
        f"{listed([EXAMPLE + name for name in examples.__all__])}"
    )
    group.add_argument("data", metavar="DATA", type=Path, nargs="+", help=text)
    text = "the table's first line names the variables (default: yes if it holds no number)"
    _option(group, "--header", text, action=argparse.BooleanOptionalAction)
    _option(group, "--row-names", "the table's first column names the rows and is left out", action="store_true")
    text = (
        "variables are in rows and samples in columns, as is usual for genes (default: no, with a warning if the "
        "shape suggests it)"
    )
    _option(group, "--transpose", text, action=argparse.BooleanOptionalAction)
    text = (
        "what to do about missing values: refuse them, drop each sample that has any, compute each correlation "
        "from the samples that hold both variables, or pool the tests of several completed DATA by Rubin's rules (the "
        "last two for the Gaussian test only)"
    )
    _add_choice(group, "--missing", MISSING, text)
    _option(group, "--decimal", "decimal mark (default: inferred from the whole table)", choices=(".", ","))
    _option(group, "--delimiter CHAR", "character between cells (default: inferred)")
    _option(group, "--encoding", "encoding of a text table, such as latin-1 (default: UTF-8, or UTF-16 with its mark)")
    text = (
        "a cell that stands for a missing value, as empty cells do, such as '*'; may be repeated, and '' "
        "alone takes no other (default: NA, NaN, null, ?, ... as for pandas.read_csv)"
    )
    _option(group, "--missing-values CELL", text, action="append")
    _option(group, "--sheet NAME", "the sheet of an Excel file (default: the first)")
    _option(group, "--correlation", "DATA is a correlation matrix; needs --n-samples", action="store_true")
    _option(group, "--n-samples M", "number of samples behind the correlation matrix", type=int)


def _add_search_arguments(group: argparse._ArgumentGroup, alpha: float | None = 0.05) -> None:
    text = (
        "kind of data and test: Fisher's z for numbers (gaussian), chi-square for categories (discrete), CMIknn "
        "or kernel tests for numbers (nonlinear, kernel), CMIknn or regressions for both (mixed, regression); auto "
        "takes the family of --method if one is named, else discrete for a table of text and gaussian for numbers"
    )
    _add_choice(group, "--family", ("auto", *families()), text)
    _option(group, "--method", "a name that `methods` lists, or auto for the fastest (default)", default="auto")
    if alpha is not None:
        _option(group, "--alpha", "significance level of each test (default: %(default)s)", type=float, default=alpha)
    _option(group, "--max-level L", "size of the largest conditioning sets (default: no limit)", type=int)
    text = (
        "background knowledge: a YAML file with required_edges, forbidden_edges, required_directions, "
        "forbidden_directions and tiers, each a list of lists of variables; tiers_in_search: true keeps variables that "
        "are later than both ends of a pair out of its separating sets"
    )
    _option(group, "--knowledge FILE", text, type=Path)
    text = "canonical: the same sets on every run; first-come: the papers' rule, with fewer tests and sets that vary"
    _add_choice(group, "--separating-sets", SEPARATING_SETS, text)
    _option(group, "--pmax", "record the largest p-value of every pair (in .npz only)", action="store_true")
    text = (
        "set a parameter of the method (theta=64) or of the test (df_convention=cupc, df_rule=adjusted, "
        "k_cmi=20); may be repeated"
    )
    _option(group, "--param KEY=VALUE", text, type=_key_value, action="append", default=[])
    text = (
        "where kernels run: cuda (a GPU), host (this machine's cores), or auto (a GPU if one is visible, else the "
        "cores)"
    )
    _add_choice(group, "--backend", ("auto", *BACKENDS), text)
    _option(group, "--device-memory-limit SIZE", "upper bound on device memory, such as 2GiB", type=_size)


def _add_orientation_arguments(group: argparse._ArgumentGroup) -> None:
    text = (
        "what becomes of an edge that is oriented both ways: relaxed leaves it undirected, priority keeps the "
        "first orientation, bidirected gives it two heads"
    )
    _add_choice(group, "--conflicts", CONFLICTS, text)
    text = (
        "how v-structures are found: by the separating sets (standard), or by tests given all subsets of "
        "neighbours, all (conservative) or most (majority) of which must agree; auto is majority, or standard for the "
        "nonlinear and the mixed test"
    )
    _add_choice(group, "--v-structures", (AUTO, *V_STRUCTURES), text)


def _add_output_arguments(group: argparse._ArgumentGroup, suffixes: Sequence[str]) -> None:
    _option(group, "--output OUT", f"write the result to this file, whose name ends in {listed(suffixes)}", type=Path)
    _option(group, "--plot PICTURE", f"draw it in this file, {listed(PICTURES)} (needs matplotlib)", type=Path)
    if suffixes == OUTPUT_SUFFIXES:
        _option(group, "--report PAGE", "write an HTML page of the run to this file (needs matplotlib)", type=Path)
    amount = group.add_mutually_exclusive_group()
    _option(amount, "--quiet", "print errors and warnings only", action="store_true")
    _option(amount, "--verbose", "also print the methods' plans, such as their memory", action="store_true")


def _key_value(text: str) -> tuple[str, int | float | str]:
    key, equals, value = (part.strip() for part in text.partition("="))
    if not (key and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form KEY=VALUE, such as theta=64")
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return key, kind(value)
    return key, value


def _size(text: str) -> int:
    """Return the bytes of a size such as ``2GiB``, ``2GB``, ``2G`` (all binary) or ``2147483648``."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:I?B)?", text.strip().upper())
    if match is None or float(match[1]) == 0:
        raise argparse.ArgumentTypeError(f"{shortened(text, 60)!r} is not a size, such as 512MiB or 2GiB")
    size = float(match[1]) * SIZE_UNITS[match[2]]
    if size > MAX_SIZE:
        raise argparse.ArgumentTypeError(
            f"{shortened(text, 60)!r} is over the limit of {MAX_SIZE >> 40:,}TiB; give a size such as 2GiB"
        )
    return int(size)
