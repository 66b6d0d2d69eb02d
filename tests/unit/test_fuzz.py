"""Readers given damaged and hostile files: what comes out is an answer, or an error of ours with a sentence.

The examples are few and the same every time; ``make fuzz`` draws others.
"""

import io
import json
import math
import random
import resource
import zipfile

import numpy as np
import pandas
import psutil
import pytest

from datasets import readers
from datasets.readers import read_rdata
from gpupc_impl.core.family import load_problem
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.tables import DataError
from tests.fuzz import TARGETS, seeds

MATRIX = np.arange(6.0).reshape(3, 2)


WITHOUT_NUMBERS = {
    "text": np.array([["a", "b"], ["c", "d"]]),
    "complex": np.array([[1 + 2j, 1], [1, 1]]),
    "objects": np.array([[{}, []]], object),
    "mixed": pandas.DataFrame({"a": [1], "b": ["x"]}),
    "no columns": pandas.DataFrame(index=[1, 2]),
    "names repeated": pandas.DataFrame([[1, 2]], columns=["a", "a"]),
    "ragged": [[1, 2], [3]],
}


@pytest.mark.parametrize("table", WITHOUT_NUMBERS.values(), ids=WITHOUT_NUMBERS)
def test_r_workspaces_without_numbers(tmp_path, monkeypatch, table):
    monkeypatch.setattr(readers, "_r_workspace", lambda path: {"table": table})
    with pytest.raises(DataError, match=r"table\.rda"):
        read_rdata(tmp_path / "table.rda")


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_files_are_answered_or_refused(tmp_path, name):
    """Some inputs of each target of `make fuzz`, the same every time; a plain file is read."""
    target, accepted = TARGETS[name], []
    for number, content in enumerate(seeds(target)):
        path = tmp_path / f"right-{number}{target.suffixes[0]}"
        path.write_bytes(content)
        accepted.append(target.accepts(path))
    assert any(accepted)
    for number in range(40):
        content, suffix = target.input(random.Random(number))
        path = tmp_path / f"damaged-{number}{suffix}"
        path.write_bytes(content)
        target.accepts(path)


def with_header(shape, descr="<f8"):
    """An ``.npy`` of 64 bytes that declares to be of another shape."""
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(64)


@pytest.mark.parametrize("name", ["npy", "npz", "problem", "skeleton", "cpdag", "dataset", "checkpoint"])
@pytest.mark.parametrize("shape", [(1 << 20, 1 << 20), (10**9, 10**9, 10**9), (5, 5), (-1, 8)], ids=str)
def test_what_declares_more_than_it_holds(tmp_path, name, shape):
    """Where it asks for 8 TiB, nobody tries to have them: not even the address space is taken."""
    target = TARGETS[name]
    path = tmp_path / f"large{target.suffixes[0]}"
    if name == "npy":
        path.write_bytes(with_header(shape))
    else:
        with zipfile.ZipFile(io.BytesIO(seeds(target)[0])) as archive, zipfile.ZipFile(path, "w") as changed:
            for member in archive.namelist():
                matrix = member.removesuffix(".npy") in ("x", "correlation", "adjacency", "values")
                changed.writestr(member, with_header(shape) if matrix else archive.read(member))
    largest, message = resource.getrlimit(resource.RLIMIT_AS), "declares|shape|negative"
    resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + (1 << 30), largest[1]))
    try:
        with pytest.raises(target.errors, match=message):
            target.read(path)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, largest)


SQUARE, TABLE = (4, 4), (3, 12)
WRONG_ARRAYS = {
    (0, "correlation"): [
        *(np.eye(5), np.eye(4, dtype=np.float32), np.asfortranarray(np.triu(np.ones(SQUARE))), 2 * np.eye(4)),
        *(np.eye(4) + np.eye(4, k=1) / 2, np.eye(4) + 2 * (np.eye(4, k=1) + np.eye(4, k=-1)), np.full(SQUARE, np.nan)),
    ],
    (1, "codes"): [np.zeros((3, 30), np.uint8), np.full((4, 30), 7, np.uint8), np.zeros((4, 30), np.int64)],
    (1, "categories"): [np.ones(3, np.int32), np.full(4, 2**31 - 1, np.int32)],
    (1, "declared"): [np.ones(4, np.int32)],
    (2, "values"): [
        *(np.zeros((2, 12), np.float32), np.zeros(TABLE), np.zeros(3, np.float32)),
        *(np.full(TABLE, np.nan, np.float32), np.full(TABLE, 12, np.float32)),
    ],
    (3, "categories"): [np.zeros(2, np.int32), np.array([0, 2, 0], np.int32), np.array([-1, 0, 0], np.int32)],
    (3, "values"): [np.full(TABLE, 0.5, np.float32), np.full(TABLE, np.inf, np.float32)],
    (4, "values"): [
        *(np.zeros(TABLE, np.float32), np.zeros(TABLE), np.full(TABLE, np.nan), np.full(TABLE, 1e200)),
        *(np.arange(36.0).reshape(TABLE), np.tile([-1.0, 1.0], (3, 3))),
    ],
}


@pytest.mark.parametrize(
    ("seed", "array", "content"), [(*key, content) for key, contents in WRONG_ARRAYS.items() for content in contents]
)
def test_problems_that_do_not_fit_together(tmp_path, seed, array, content):
    """Right archives with another array: kernels would read beyond its end."""
    path = tmp_path / "problem.npz"
    with np.load(io.BytesIO(seeds(TARGETS["problem"])[seed])) as stored:
        arrays = dict(stored)
    assert array in arrays
    np.savez(path, **arrays | {array: content})
    with pytest.raises(InvalidProblem, match=r"problem\.npz"):
        load_problem(path)


NUMBERS = ("k_cmi", "k_perm", "permutations", "seed", "features", "set_features", "landmarks")


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("alpha", value) for value in (0, 1, -1, 1.0, math.nan, "0.05", None, True, [0.05])),
        *(("max_level", value) for value in (-1, 1.5, "2", True)),
        *(("names", value) for value in (["a"], ["a", "a", "a", "a"], "abcd", [1, 2, 3, 4], None)),
        *(("n_samples", value) for value in (0, 7.5, -3, "9", 10**400)),
        *((name, "another") for name in ("df_convention", "pseudo_inverse", "correlations", "test", "df_rule")),
        *((name, "another") for name in ("transform", "precision", "tests_per_edge", "labels", "constant")),
        *((name, "another") for name in ("null", "weights")),
        *((name, value) for name in ("residual_tolerance", "decay") for value in (math.nan, 1, 2.0, -1.0)),
        *((name, value) for name in NUMBERS for value in (-1, 2**64, 0.5, math.inf)),
    ],
)
def test_problems_with_parameters_that_nobody_can_choose(tmp_path, seed, field, value):
    path = tmp_path / "problem.npz"
    with np.load(io.BytesIO(seeds(TARGETS["problem"])[seed])) as stored:
        arrays = dict(stored)
    fields = json.loads(str(arrays["fields"]))
    if field not in fields:
        return
    np.savez(path, **arrays | {"fields": json.dumps({**fields, field: value})})
    with pytest.raises(InvalidProblem, match=r"problem\.npz"):
        load_problem(path)
