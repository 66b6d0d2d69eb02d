"""The commands: each takes parsed arguments, writes the files that they name, and returns what is to be printed."""

import argparse
import contextlib
import dataclasses
import importlib.util
import os
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gpupc_impl.examples as examples
from gpupc_impl.api import oriented
from gpupc_impl.backends import BackendUnavailable, KernelSource, compilations, nvrtc, open_backend
from gpupc_impl.backends.machine import available_cores
from gpupc_impl.backends.simt.build import cache_folder
from gpupc_impl.cli import output
from gpupc_impl.core.family import families, get_family
from gpupc_impl.core.knowledge import BackgroundKnowledge
from gpupc_impl.core.registry import Method, get_method, listed_kernels, methods
from gpupc_impl.core.solve import unavailable
from gpupc_impl.latent.inference import Inference, find_pag
from gpupc_impl.search import ARGUMENTS, SearchRequest
from gpupc_impl.time_series.parameters import SUFFIXES as SERIES_SUFFIXES
from gpupc_impl.views.exports import PICTURES, STUDY_SUFFIXES
from gpupc_impl.views.progress import compile_report
from gpupc_impl.views.result import n_edges, skeleton_of
from gpupc_impl.views.text import edge_rows, summary_lines, text_table

PCMCI_ARGUMENTS = ("tau_max", "tau_min", "alpha", "contemporaneous", "test", "collider_rule", "correction", "backend")
RECORDED = Path("results/recorded")
REPORT_SUFFIXES = (".html", ".htm")
COMPILING_NAMED = 0.05  # seconds of compiling from which they are reported; reading the cache takes less
WIDTH = 100  # of the table of methods, in characters


def list_methods(args: argparse.Namespace) -> output.Outcome:
    """Run the command ``methods``: a table, or the description of one method."""
    if args.method is not None:
        return _described(get_method(args.method))
    listed_methods = methods(args.family)
    if not listed_methods:
        known = sorted({method.family for method in methods().values()})
        raise output.UsageError(f"no method is of family {args.family!r}; families: {', '.join(known)}")
    found, reasons, rows = [], {}, [("method", "family", "backends")]
    for name, method in sorted(listed_methods.items(), key=lambda item: (item[1].family, item[1].reference, item[0])):
        why = {each: unavailable(method, "auto" if each == "cpu" else each) for each in method.backends}
        for backend, reason in why.items():
            if reason is not None:
                reasons.setdefault(f"{backend}: {reason}", []).append(name)
        here = [backend for backend, reason in why.items() if reason is None]
        found.append({"method": name, "family": method.family, "available_here": here, **_facts(method)})
        rows.append((name, method.family, ", ".join(each + "*" * (each in here) for each in method.backends)))
    lines = text_table(rows).splitlines()
    at = max(map(len, lines)) + 2
    said = [
        textwrap.fill(summary, WIDTH, initial_indent=f"{line:<{at}}", subsequent_indent=" " * at)
        for line, summary in zip(lines, ["summary", *(each["summary"] for each in found)], strict=True)
    ]
    said += ["", "* can run here. `gpupc methods METHOD` describes a method and its parameters."]
    if reasons:
        why = (f"{reason} ({', '.join(names)})" for reason, names in reasons.items())
        indents = {"initial_indent": "  ", "subsequent_indent": "    ", "break_on_hyphens": False}
        said += ["", "Not available here:", *(textwrap.fill(line, WIDTH, **indents) for line in why)]
    return output.Outcome("\n".join(said), {"methods": found, "not_available_here": reasons})


def _facts(method: Method) -> dict[str, Any]:
    parameters = {name: dataclasses.asdict(parameter) for name, parameter in method.params.items()}
    facts = {"backends": method.backends, "summary": method.summary, "source": method.source}
    return {**facts, "reference": method.reference, "parameters": parameters}


def _described(method: Method) -> output.Outcome:
    rows = [(f"  {name}={each.default}", each.description) for name, each in method.params.items()]
    said = [
        f"{method.name}: {method.summary}",
        f"family: {method.family}; backends: {', '.join(method.backends)}; source: {method.source}",
        *(["parameters (--param NAME=VALUE), with their defaults:", text_table(rows)] if rows else ["no parameters"]),
    ]
    return output.Outcome("\n".join(said), {"method": method.name, "family": method.family, **_facts(method)})


def search(args: argparse.Namespace) -> output.Outcome:
    """Run the command ``skeleton``, ``pc`` or ``fci``."""
    request = SearchRequest.of(**_keywords(args))
    if args.command == "fci":
        inference = Inference(args.algorithm, args.max_possible_d_sep, args.max_path_length)
    _check_outputs(args, output.OUTPUT_SUFFIXES)
    with _readable(args.data[0]):
        ready = request.open(_data(args))
    start = time.perf_counter()
    with ready:
        result = ready.solve(ready.problem())
    if args.command == "pc":
        result = oriented(result, request.knowledge, args.conflicts, args.v_structures)
    if args.command == "fci":
        result = find_pag(result, result.problem, inference, knowledge=request.knowledge, backend=args.backend)
    seconds = time.perf_counter() - start - ready.compile_seconds
    written = _write(result, args)
    skeleton, names = skeleton_of(result), result.names
    unnamed = "" if ready.source.names is not None else f" (no names in the file: {names[0]} to {names[-1]})"
    said = [f"read: {ready.reading['table']}; {ready.reading['test']}"]
    if ready.compile_seconds >= COMPILING_NAMED:
        said.append(f"compiling kernels, once: {ready.compile_seconds:.2f} s, beside the time below")
    said += summary_lines(result, unnamed, seconds)
    if n_edges(result):
        said += ["", output.first_rows(edge_rows(result, output.ROWS_SHOWN), n_edges(result))]
    levels = ("edges_per_level", "tests_per_level", "seconds_per_level", "stopped_because")
    data = {
        "read": ready.reading,
        "variables": names,
        "edges": result.to_frame(),
        **{name: getattr(skeleton, name) for name in levels},
        "seconds": seconds,
        "facts": skeleton.facts,
    }
    return output.Outcome("\n".join(said), data, written)


def resample(args: argparse.Namespace) -> output.Outcome:
    """Run the command ``bootstrap``."""
    from gpupc_impl.studies.bootstrap import bootstrap

    _check_outputs(args, STUDY_SUFFIXES)
    subsamples = {"replace": False, "fraction": 0.5} if args.subsamples or args.errors is not None else {}
    options = {**_keywords(args), "conflicts": args.conflicts, "v_structures": args.v_structures, **subsamples}
    options |= {"seed": args.seed, "folder": args.folder, "processes": args.processes}
    with _readable(args.data[0]):
        found = bootstrap(_data(args), args.resamples, **options)
    written = _write(found, args)
    at_least = args.at_least if args.errors is None else found.threshold(args.errors)
    frame = found.to_frame(at_least)
    chosen = f"edges in at least {at_least:.1%} of the resamples: {len(frame):,}"
    if args.errors is not None:
        chosen += f", of which at most {args.errors:g} false ones are expected"
    lines = [repr(found), chosen, *([output.frame_rows(frame)] if len(frame) else [])]
    return output.Outcome("\n".join(lines), {"resamples": found.n, "at_least": at_least, "edges": frame}, written)


def search_alphas(args: argparse.Namespace) -> output.Outcome:
    """Run the command ``alpha-path``."""
    from gpupc_impl.studies.alpha_path import alpha_path

    _check_outputs(args, STUDY_SUFFIXES)
    with _readable(args.data[0]):
        path = alpha_path(_data(args), args.alphas, **_keywords(args))
    frame = path.to_frame()
    return output.Outcome(output.frame_rows(frame), {"alphas": frame, "edges": path.edges()}, _write(path, args))


def try_methods(args: argparse.Namespace) -> output.Outcome:
    """Run the command ``try``."""
    from gpupc_impl.studies.trial import methods_of, trials

    found = [trial for name in methods_of(args.file) for trial in trials(name, args.backend)]
    rows = [("method", "variables", "samples", "answer", "seconds", "reference", "its seconds", "speedup")]
    for each in found:
        answer = "differs" if each.difference else "equal"
        own = (each.method, str(each.variables), str(each.samples), answer, f"{each.seconds:.4f}")
        speedup = f"{each.reference_seconds / each.seconds:.3g}"
        rows.append((*own, each.reference, f"{each.reference_seconds:.4f}", speedup))
    differences = [f"{each.method}, {each.variables} variables: {each.difference}" for each in found if each.difference]
    data = {"trials": list(map(dataclasses.asdict, found))}
    return output.Outcome("\n".join([text_table(rows), *differences]), data, status=2 if differences else 0)


def time_series(args: argparse.Namespace) -> output.Outcome:
    """Run the command ``pcmci``."""
    from gpupc_impl.time_series.search import pcmci  # imported here, since other commands do not need it

    _check_outputs(args, SERIES_SUFFIXES)
    levels = args.pc_alpha or ["auto"]
    with _readable(args.data[0]):
        graph = pcmci(
            args.data if len(args.data) > 1 else args.data[0],
            pc_alpha=levels if len(levels) > 1 else levels[0],
            **{name: getattr(args, name) for name in PCMCI_ARGUMENTS},
        )
    facts, frame = graph.facts, graph.to_frame()
    said = (
        f"{facts['method']}, {facts['test']}: {facts['tests']:,} tests of {facts['n_samples']:,} samples in "
        f"{facts['seconds']:.2f} s on backend {facts['backend']}"
    )
    data = {"variables": graph.names, "links": frame, "facts": facts}
    return output.Outcome(f"{said}\n{output.frame_rows(frame)}", data, _write(graph, args))


def fill_cache(args: argparse.Namespace) -> output.Outcome:
    """Run the command ``compile``: the kernels of one family or of all, for this machine or for a GPU architecture."""
    chosen = families(None).values() if args.family is None else [get_family(args.family)]
    packages = dict.fromkeys(package for each in chosen for package in each.packages)
    kernels = listed_kernels(filter(importlib.util.find_spec, packages), args.max_level)
    if args.arch is not None:
        target = args.arch
        _compile_for(kernels, args.arch)
    else:
        backend = open_backend(args.backend)
        target = f"backend {backend.name}"
        with compilations.reported(compile_report(True)):
            backend.prefetch(kernels)
            for kernel in kernels:
                backend.kernel(*kernel)
    text = f"{len(kernels)} kernels for {target} are in {cache_folder()}"
    return output.Outcome(text, {"kernels": len(kernels), "target": target, "folder": cache_folder()})


def _compile_for(kernels: list[KernelSource], architecture: str) -> None:
    try:
        compiler = importlib.import_module("cupy.cuda.nvrtc")
    except ImportError as error:
        raise BackendUnavailable(
            f"--arch needs CuPy and NVRTC ({error}); pip install cupy-cuda12x nvidia-cuda-nvrtc-cu12"
        ) from error
    known = [f"sm_{number}" for number in sorted(compiler.getSupportedArchs())]
    if architecture not in known:
        raise BackendUnavailable(
            f"architecture {architecture!r} is not known to this NVRTC; choose one of: {', '.join(known)}"
        )
    with ThreadPoolExecutor(available_cores()) as threads:
        list(threads.map(lambda kernel: nvrtc.compile_image(compiler, kernel, architecture), kernels))


def keep_records(args: argparse.Namespace) -> output.Outcome:
    """Run the command ``records``: publish the runs of a workflow, or check published ones."""
    from gpupc_impl.measurement import publish

    if args.action == "check":
        return _check_records(args.folders or sorted(path.parent for path in RECORDED.glob("*/machines.json")), args)
    try:
        args.into = args.into or publish.own_folder(args.results)
        written = publish.publish(args.results, args.into)
    except publish.InvalidFolder as error:
        raise output.UsageError(str(error)) from error
    lines = [f"not taken over: {sentence}" for sentence in written.left_out]
    lines.append(f"written: {args.into}: {len(written.runs):,} runs")
    data = {"folder": args.into, "runs": len(written.runs), "not_taken_over": list(written.left_out)}
    return output.Outcome("\n".join(lines), data)


def _check_records(folders: Sequence[Path], args: argparse.Namespace) -> output.Outcome:
    """Check folders, each alone and then against the others, and return a line about each."""
    from gpupc_impl.measurement.publish import check, differing_answers, stale_runs, unknown_origins
    from gpupc_impl.measurement.published import PublishedRuns

    if not folders:
        raise output.UsageError(f"{RECORDED} has no folder of published runs; name one")
    faults = [f"{folder}: {fault}" for folder in folders for fault in check(folder) or unknown_origins(folder)]
    faults = faults or differing_answers(folders)
    lines, found = [], {}
    for folder in folders if args.current and not faults else ():
        changed, unknown = stale_runs(folder)
        faults += [f"{folder}: {fault}" for fault in changed]
        lines += [f"{folder}: {sentence}" for sentence in unknown]
    if faults:
        raise output.UsageError("\n".join(faults))
    for published in map(PublishedRuns, folders):
        counts = Counter(published.division(*key) or "without an answer" for key in published)
        divisions = ", ".join(f"{count:,} {division}" for division, count in counts.items())
        lines.append(f"{published.folder} is complete and valid: runs: {divisions}")
        found[str(published.folder)] = dict(counts)
    return output.Outcome("\n".join(lines), {"valid": found})


def _keywords(args: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of `skeleton` that the command line has under the same names, except for the data."""
    if args.correlation != (args.n_samples is not None):
        raise output.UsageError(
            "--correlation and --n-samples go together: a correlation matrix, and its number of samples"
        )
    if len(args.data) > 1 and args.missing != "imputed":
        raise output.UsageError(f"{len(args.data)} tables are given; several are for --missing imputed alone")
    options = dict(args.param)
    if len(options) != len(args.param):
        raise output.UsageError("a --param is given twice")
    for name in options.keys() & vars(args).keys():
        raise output.UsageError(f"{name} is not a parameter of a method; say --{name.replace('_', '-')}")
    given = {name: value for name, value in vars(args).items() if name in ARGUMENTS}
    if args.knowledge is not None:
        with _readable(args.knowledge):
            given["knowledge"] = BackgroundKnowledge.from_file(args.knowledge)
    if args.command in ("bootstrap", "alpha-path"):
        return {**given, **options, "progress": False if args.quiet else None}
    is_told = sys.stderr.isatty() and not args.quiet
    return {**given, **options, "progress": output.show_progress if is_told else False}


def _data(args: argparse.Namespace) -> Any:
    """Return the paths of the data, or the example data that are named instead."""
    tables: list[Any] = list(args.data)
    for k, path in enumerate(map(str, args.data)):
        if path.startswith(output.EXAMPLE):
            if (name := path.removeprefix(output.EXAMPLE)) not in examples.__all__:
                known = ", ".join(examples.__all__)
                raise output.UsageError(f"there are no example data {name!r}; choose one of: {known}")
            tables[k] = getattr(examples, name)()
    return tables if args.missing == "imputed" else tables[0]


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Say which file cannot be read, this one or that of the error, and why."""
    try:
        yield
    except OSError as error:
        raise output.UsageError(f"{error.filename or path} cannot be read: {error.strerror or error}") from error


def _check_outputs(args: argparse.Namespace, suffixes: Sequence[str]) -> None:
    """Check whether the files can be written, before the data are read, which may take long."""
    for name, endings in {"output": suffixes, "plot": PICTURES, "report": REPORT_SUFFIXES}.items():
        path = getattr(args, name, None)
        if path is None:
            continue
        if path.suffix in (*PICTURES, *REPORT_SUFFIXES):
            from gpupc_impl.views import plots  # imports matplotlib

            plots.require()
        if path.suffix not in endings:
            fault = f"its name must end in {output.listed(endings)}"
        elif not path.parent.is_dir():
            fault = f"there is no folder {path.parent}"
        elif path.is_dir():
            fault = "it is a folder"
        elif not os.access(path.parent, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
            fault = "permission denied"
        elif path.exists() and any(table.exists() and path.samefile(table) for table in args.data):
            fault = "it is the data"
        else:
            continue
        raise output.UsageError(f"cannot write {path}: {fault}")


def _write(result: Any, args: argparse.Namespace) -> list[Path]:
    """Write the files that are asked for, and return their paths."""
    written = []
    for name in ("output", "plot", "report"):
        if (path := getattr(args, name, None)) is not None:
            (result.report if name == "report" else result.save)(path)
            written.append(path)
    return written
