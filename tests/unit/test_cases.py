"""Tables that were once read wrongly: the right answer from every container, or one clear refusal."""

from __future__ import annotations

import warnings
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import datasets
from gpupc_impl import InvalidProblem, pc, skeleton
from gpupc_impl.cli import main
from gpupc_impl.tables import DataError

CASES = Path(__file__).parents[1] / "cases"
NUMBERS = {"method": "stable-serial"}
LABELS = {"family": "discrete", "backend": "host"}
CONTAINERS = ("csv", "excel", "parquet", "frame")


def contained(name, container, folder, **reading):
    """The table of a case, with its cells as text, in a container."""
    path = CASES / name
    if container == "csv":
        return path
    frame = pd.read_csv(path, dtype=str, keep_default_na=False, sep=None, engine="python", **reading)
    if container == "excel":
        pytest.importorskip("openpyxl")
        frame.to_excel(folder / "case.xlsx", index=False)
        return folder / "case.xlsx"
    if container == "parquet":
        pytest.importorskip("pyarrow")
        frame.to_parquet(folder / "case.parquet")
        return folder / "case.parquet"
    return frame


def edges(graph):
    return [tuple(edge) for edge in graph.to_frame()[["source", "target"]].to_numpy().tolist()]


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize(
    ("name", "options", "right"),
    [
        ("decimal-comma.csv", NUMBERS, [("a", "b")]),
        ("thousands.csv", NUMBERS, [("a", "b")]),
        ("numeric-header.csv", NUMBERS, [("7157", "672")]),
        ("code-spellings.csv", LABELS, []),
        ("hash-na.csv", {"missing": "drop-rows", "backend": "host"}, []),
        ("number-and-word-labels.csv", {"backend": "host"}, [("buy", "doors")]),
        (
            "mixed-star.csv",
            {"family": "mixed", "backend": "host", "max_level": 0, "missing": "drop-rows", "missing_values": ["*"]},
            [("a", "b")],
        ),
    ],
)
def test_the_right_edges(tmp_path, container, name, options, right):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "43 of 300 samples|1 of 200 samples")
        assert edges(skeleton(contained(name, container, tmp_path), **options)) == right


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("reals-as-discrete.csv", LABELS, r"column 'a' holds 0.041 in row 0, which is no label"),
        ("mixed-star.csv", {"family": "mixed"}, r"'a'.*: '\*' is not a number, but 199 of .* 200 cells"),
        ("hash-na.csv", {}, r"86 value\(s\) missing in 2 column\(s\) .* leaves 257 of 300"),
    ],
)
def test_refusals(tmp_path, container, name, options, message):
    with pytest.raises((DataError, InvalidProblem), match=message):
        skeleton(contained(name, container, tmp_path), **options)


@pytest.mark.parametrize("name", ["decimal-comma.csv", "thousands.csv", "numeric-header.csv"])
def test_the_command_line_reads_the_same(name, capsys):
    assert main(["skeleton", str(CASES / name), "--method", "stable-serial"]) == 0
    first, rest = capsys.readouterr().out.split("\n", 1)
    assert first.startswith("read: 200 rows, ")
    assert first.endswith("gaussian test (the family of method stable-serial)")
    assert "edges: 1" in rest


def test_how_numbers_are_written_is_shown(capsys):
    main(["skeleton", str(CASES / "decimal-comma.csv"), "--backend", "host"])
    expected = "read: 200 rows, 3 columns (3 of numbers, 0 of categories), numbers with decimal commas; "
    assert capsys.readouterr().out.startswith(expected + "gaussian test (all columns are numbers)")


@pytest.fixture(scope="module")
def numbers():
    a, c = np.random.default_rng(1).normal(size=(2, 200))
    return pd.DataFrame({"a": a, "b": a + c / 2, "c": np.random.default_rng(2).normal(size=200)}).round(3)


@pytest.mark.parametrize(
    "spelled",
    [
        str,
        Decimal,
        "{}%".format,
        "{} %".format,
        lambda value: f"{value * 1e6:,.0f}".replace(",", " "),
        lambda value: f"{value * 1e6:,.1f}",
        lambda value: f"{value * 1e6:,.1f}".translate(str.maketrans(",.", ".,")),
        lambda value: f"{value * 1e6:,.1f}".replace(",", "'"),
        lambda value: f"{value:e}".replace(".", ","),
    ],
)
def test_numbers_in_all_spellings(numbers, spelled, tmp_path):
    frame = numbers.map(lambda value: spelled(Decimal(str(value)) if spelled is Decimal else value))
    right = skeleton(numbers, **NUMBERS)
    assert skeleton(frame, **NUMBERS) == right
    assert skeleton(frame.to_numpy(object), **NUMBERS, names=list("abc")) == right
    frame.to_csv(tmp_path / "data.csv", index=False, sep=";")
    assert skeleton(tmp_path / "data.csv", **NUMBERS) == right


def test_an_ambiguous_comma_is_asked_about(tmp_path):
    text = "a;b\n" + "".join(f"{k},125;{k % 7 + 1},250\n" for k in range(1, 40))
    (tmp_path / "data.csv").write_text(text)
    with pytest.raises(DataError, match=r"line 2, column 1 .*'1,125' may be 1125 or 1.125; say decimal='.' or"):
        skeleton(tmp_path / "data.csv", **NUMBERS)
    assert skeleton(tmp_path / "data.csv", **NUMBERS, decimal=",").n_edges == 0
    assert main(["skeleton", str(tmp_path / "data.csv"), "--decimal", ".", "--quiet", "--method", "stable-serial"]) == 0


def test_labels_with_leading_zeros_stay_apart():
    labels = pd.DataFrame({"zip": ["01", "1", "02"] * 20, "b": ["0", "0.0", "1"] * 20})
    assert skeleton(labels, **LABELS).problem.labels == (("01", "02", "1"), ("0", "1"))


def test_a_category_may_be_called_none(tmp_path):
    frame = pd.DataFrame({"a": ["none", "some"] * 20, "b": ["x", "y", "y", "x"] * 10})
    frame.to_csv(tmp_path / "data.csv", index=False)
    for data in (frame, tmp_path / "data.csv"):
        with pytest.raises(InvalidProblem, match=r"20 value\(s\) missing .*missing_values=\[\]"):
            skeleton(data, backend="host")
        assert skeleton(data, backend="host", missing_values=[]).problem.labels[0] == ("none", "some")
    arguments = ["skeleton", str(tmp_path / "data.csv"), "--backend", "host", "--quiet"]
    assert main([*arguments, "--missing-values", ""]) == 0
    assert main(arguments) == 2


def test_marks_of_missing_values_may_be_named(numbers, tmp_path):
    frame = numbers.astype(object)
    frame.iloc[3, 1], frame.iloc[5, 2] = "-", "*"
    frame.to_csv(tmp_path / "data.csv", index=False)
    for data in (frame, tmp_path / "data.csv"):
        with pytest.raises(DataError, match=r"'-' is not a number, but 199 of .*missing_values=\['-'\]"):
            skeleton(data, **NUMBERS)
        with pytest.warns(UserWarning, match="2 of 200 samples"):
            skeleton(data, **NUMBERS, missing="drop-rows", missing_values=["-", "*"])


def test_dates_are_refused(numbers, tmp_path):
    dates = numbers.assign(day=pd.date_range("2020-01-01", periods=200))
    dates.to_excel(tmp_path / "data.xlsx", index=False)
    for data in (dates, tmp_path / "data.xlsx"):
        with pytest.raises(DataError, match=r"column 'day': the column holds dates; leave it out, or make numbers"):
            skeleton(data)
    for form in ("%Y-%m-%d", "%Y-%m-%d %H:%M:%S", "%d.%m.%Y", "%m/%d/%y"):
        dates.to_csv(tmp_path / "data.csv", index=False, date_format=form)
        with pytest.raises(DataError, match=r"line 2, column 4 \('day'\): the column holds dates"):
            skeleton(tmp_path / "data.csv")
    labels = pd.DataFrame({"day": ["2020-01-01", "2020-01-02"] * 20, "b": ["x", "y"] * 20})
    assert skeleton(labels, **LABELS).n_edges == 1


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_encodings(numbers, tmp_path, encoding):
    named = numbers.rename(columns={"c": "größe"})
    named.to_csv(tmp_path / "data.csv", index=False, encoding=encoding)
    if encoding == "latin-1":
        with pytest.raises(DataError, match="encoding='latin-1'"):
            skeleton(tmp_path / "data.csv", **NUMBERS)
    assert skeleton(tmp_path / "data.csv", **NUMBERS, encoding=encoding).names == ("a", "b", "größe")
    if encoding == "utf-16":
        assert skeleton(tmp_path / "data.csv", **NUMBERS).names == ("a", "b", "größe")


def test_a_delimiter_inside_a_header(numbers, tmp_path):
    numbers.rename(columns={"a": "a;1"}).to_csv(tmp_path / "data.csv", index=False)
    assert skeleton(tmp_path / "data.csv", **NUMBERS).names == ("a;1", "b", "c")
    numbers.to_csv(tmp_path / "bars.csv", index=False, sep="|")
    assert skeleton(tmp_path / "bars.csv", **NUMBERS, delimiter="|").names == ("a", "b", "c")


def test_a_zip_archive(numbers, tmp_path):
    numbers.to_csv(tmp_path / "data.zip", index=False)
    assert skeleton(tmp_path / "data.zip", **NUMBERS) == skeleton(numbers, **NUMBERS)
    (tmp_path / "bad.zip").write_text("no archive")
    with pytest.raises(DataError, match="no readable zip archive"):
        skeleton(tmp_path / "bad.zip")


def test_names_of_rows_that_are_numbers(numbers, tmp_path):
    genes = numbers.rename(columns={"a": "7157", "b": "1956", "c": "672"}).T
    genes.to_csv(tmp_path / "genes.csv", header=[f"s{k}" for k in range(200)], index_label="gene")
    assert skeleton(tmp_path / "genes.csv", **NUMBERS, transpose=True).names == ("7157", "1956", "672")


@pytest.mark.parametrize("first", ["/Covariance\n", ""])
def test_tetrads_covariances_are_named(tmp_path, first):
    (tmp_path / "data.txt").write_text(f"{first}100\na b\n1.0\n 0.5 1.0\n")
    with pytest.raises(DataError, match="a covariance file of Tetrad"):
        skeleton(tmp_path / "data.txt")


# --- what is read rightly and doubted --------------------------------------------------------------------------------


def test_identifiers_are_doubted(numbers, tmp_path):
    words = pd.DataFrame({"id": [f"s{k}" for k in range(60)], "a": ["x", "y"] * 30})
    with pytest.warns(UserWarning, match=r"1 column\(s\) \('id'\) hold a label of their own for nearly every row"):
        skeleton(words, **LABELS)
    mixed = numbers.assign(id=[f"s{k}" for k in range(200)])
    with pytest.warns(UserWarning, match=r"\('id'\) hold a label of their own"):
        skeleton(mixed, family="mixed", max_level=0, permutations=20, backend="host")
    numbers.reset_index(names="rownames").to_csv(tmp_path / "data.csv", index=False)
    with pytest.warns(UserWarning, match=r"the first column \('rownames'\) counts the rows from 0 on"):
        skeleton(tmp_path / "data.csv", **NUMBERS)
    assert skeleton(tmp_path / "data.csv", **NUMBERS, row_names=True).names == ("a", "b", "c")


def test_a_correlation_matrix_is_asked_for_its_samples(numbers, tmp_path):
    matrix = numbers.corr()
    matrix.to_csv(tmp_path / "c.csv", index=False)
    for data in (matrix, matrix.to_numpy(), tmp_path / "c.csv"):
        with pytest.raises(InvalidProblem, match=r"symmetric 3 x 3 matrix with ones .* say n_samples"):
            skeleton(data, **NUMBERS)
        assert skeleton(data, **NUMBERS, n_samples=200).n_edges == 1
    with pytest.raises(InvalidProblem, match="not positive semi-definite"):
        skeleton(np.array([[1, 0.9, -0.9], [0.9, 1, 0.9], [-0.9, 0.9, 1]]), **NUMBERS, n_samples=50)


def test_too_few_samples_are_doubted(numbers):
    with pytest.warns(UserWarning, match=r"3 sample\(s\) are too few to test anything with"):
        skeleton(numbers.iloc[:3, :2], **NUMBERS)


def test_an_alpha_that_permutations_cannot_reach(numbers):
    with pytest.warns(UserWarning, match=r"alpha 0.01 is below 1/permutations = 0.05, .*permutations=100 or more"):
        skeleton(numbers, 0.01, family="nonlinear", permutations=20, max_level=0, backend="host")


def test_arrows_with_a_cycle_are_doubted(monkeypatch, numbers):
    from gpupc_impl.core.orientation import CPDAG

    monkeypatch.setattr(CPDAG, "has_directed_cycle", True)
    with pytest.warns(UserWarning, match="the arrows have a cycle"):
        pc(numbers, **NUMBERS)


# --- the order of columns --------------------------------------------------------------------------------------------


def directions(graph):
    """The edges with their kinds, whatever the order of the variables."""
    edges = graph.to_frame().to_numpy().tolist()
    return {(*((i, j) if kind == "directed" else sorted((i, j))), kind) for i, j, kind in edges}


def assert_any_order(frame, count, **options):
    rng = np.random.default_rng(0)
    right = directions(pc(frame, **options))
    for _ in range(count):
        assert directions(pc(frame[list(rng.permutation(frame.columns))], **options)) == right
    return right


def test_the_order_of_columns_does_not_matter():
    frame = pd.read_csv(CASES / "column-order.csv")
    assert_any_order(frame, 23, **NUMBERS)
    standard = {**NUMBERS, "v_structures": "standard"}
    first, second = (directions(pc(frame[list(order)], **standard)) for order in ("abcd", "acdb"))
    assert first != second, "the standard rule depends on the order"


@pytest.mark.parametrize(
    ("name", "orders", "options"),
    [
        ("sachs-cd3cd28", 8, NUMBERS),
        ("asia-5000", 4, LABELS),
        ("nci-60", 1, {"backend": "host", "transpose": False}),
    ],
)
def test_the_order_of_columns_of_real_sets_does_not_matter(name, orders, options):
    try:
        data = datasets.load(name, offline=True)
    except datasets.DatasetUnavailable as error:
        pytest.skip(f"{error} (GPUPC_MIRRORS may name a folder that holds it)")
    assert assert_any_order(pd.DataFrame(data.values, columns=data.names), orders, alpha=0.01, **options)
