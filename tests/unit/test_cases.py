"""Tables that were once read wrongly: the right answer from every container, or one clear refusal."""

import contextlib
import datetime
import importlib
import io
import warnings
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gpupc_impl import InvalidProblem, pc, skeleton
from gpupc_impl.cli import main
from gpupc_impl.tables import DataError
from tests.loaded import load

CASES = Path(__file__).parents[1] / "cases"
NUMBERS = {"method": "stable-serial"}
LABELS = {"family": "discrete", "backend": "host"}
STARS = {"missing": "drop-rows", "missing_values": ["*"]}
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
        ("amounts.csv", NUMBERS, [("a", "b"), ("b", "c"), ("c", "d")]),
        ("dollars.csv", NUMBERS, [("a", "b"), ("b", "c"), ("c", "d")]),
        ("number-and-word-labels.csv", {"backend": "host"}, [("buy", "doors")]),
        ("mixed-star.csv", {"family": "mixed", "backend": "host", "max_level": 0, **STARS}, [("a", "b")]),
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
        ("percent.csv", NUMBERS, r"'b'.*: '51.6' is a number, but most others of the column have a '%'"),
        ("states.csv", LABELS, r"'smoke'.*begins a row that has, in every column, a value that no other"),
        ("states.csv", NUMBERS, r"like a second header line of numbers of categories, types or units; delete it"),
        ("cov.csv", NUMBERS, r"data is a symmetric 4 x 4 matrix, which no samples are; divide covariances by"),
        ("hash-na.csv", {}, r"86 value\(s\) missing in 2 column\(s\) .* leaves 257 of 300"),
    ],
)
def test_refusals(tmp_path, container, name, options, message):
    with pytest.raises((DataError, InvalidProblem), match=message):
        skeleton(contained(name, container, tmp_path), **options)


@pytest.mark.parametrize(
    ("name", "names"),
    [("newline.csv", ("my\na", "b", "c", "d")), ("sep.csv", tuple("abcd")), ("comment.csv", tuple("abcd"))],
)
def test_lines_before_the_table_and_in_names(name, names):
    found = skeleton(CASES / name, **NUMBERS)
    assert found.names == names
    lines = (CASES / name).read_text().replace(";", ",").splitlines()[2:]
    plain = pd.DataFrame([line.split(",") for line in lines if "a" not in line], columns=list(names))
    assert edges(found) == edges(skeleton(plain, **NUMBERS))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("trailing.csv", None, "each row ends with a delimiter and so with an empty cell, but the header does not"),
        ("rephdr.csv", None, "line 22 repeats the header; delete it"),
        ("old.xls", "\xd0\xcf", r"\.xls files are not read; write it as .csv or .parquet \(.*pandas.read_excel\)"),
        ("old.dta", "?", r"\.dta files are not read; .* pandas.read_stata"),
        ("genes.gct", "#1.2\n2\t2\nName\tDescription\ta\tb\nx\ty\t1\t2\n", "is a GCT file; delete its first two lines"),
        ("tetrad.txt", "/variables\na: continuous\n/data\n1\n", "is a file of Tetrad with sections"),
        ("tetrad.txt", "/Covariance\n100\na b\n1.0\n 0.5 1.0\n", "a covariance file of Tetrad"),
        ("tetrad.txt", "100\na b\n1.0\n 0.5 1.0\n", "a covariance file of Tetrad"),
        ("page.csv", "<html><body>404</body></html>\n", "no table but JSON, HTML or XML"),
        ("units.csv", "a,b\nkg,cm\n1,2\n2,3\n3,4\n", r"line 2, .*'kg' is not a number.*delete a second header line"),
    ],
)
def test_other_formats_are_named(tmp_path, name, content, message):
    path = CASES / name if content is None else tmp_path / name
    if content is not None:
        path.write_text(content)
    with pytest.raises(DataError, match=message):
        skeleton(path, **NUMBERS)


def test_bars_comments_and_standard_input(numbers, tmp_path, capsys, monkeypatch):
    right = skeleton(numbers, **NUMBERS)
    numbers.to_csv(tmp_path / "bars.txt", index=False, sep="|")
    assert skeleton(tmp_path / "bars.txt", **NUMBERS) == right
    content = numbers.to_csv(index=False)
    (tmp_path / "named.csv").write_text(f"# made, today\n#{content}")
    assert skeleton(tmp_path / "named.csv", **NUMBERS).names == ("#a", "b", "c")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content.encode())))
    assert main(["skeleton", "-", "--method", "stable-serial"]) == 0
    assert "read: 200 rows, 3 columns" in capsys.readouterr().out
    assert main(["skeleton", "https://example.org/data.csv"]) == 2
    assert "is an address or a text; give the path to a file" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["pc", "data.csv", "--aplha", "0.01"])
    assert "--aplha 0.01; did you mean --alpha?" in capsys.readouterr().err


@pytest.mark.parametrize(
    "spelled",
    ["{} kg", "~{}", "{} ± 0.1", "{} m/s", "{}‰", "$-{}", "$({})", "USD {}", "{} °C", "{} kg m-2", "{}×10^3", "={}"],
)
@pytest.mark.parametrize("kind", [None, "mixed"])
def test_numbers_with_units_are_no_labels(numbers, spelled, kind, tmp_path):
    table = numbers.assign(b=numbers.b.abs().map(spelled.format))
    table.to_csv(tmp_path / "data.csv", index=False)
    for data in (table, tmp_path / "data.csv"):
        with pytest.raises(DataError, match="is a number with a unit or a mark; write numbers alone"):
            skeleton(data, family=kind or "auto")


@pytest.mark.parametrize("labels", ["{}-{}9", "C{}.{}", "[0.{}, 1.{})", "0.{}-0.9{}", "A{}-{}", "v1.{}", "rs{}"])
def test_labels_with_digits_are_labels(labels):
    words = [labels.format(k, k) for k in range(15)]
    found = skeleton(pd.DataFrame({"a": words * 30, "b": (words[1:] + words[:1]) * 30}), backend="host")
    assert found.problem.family == "discrete"


def test_truths_and_unused_levels_are_the_same_in_all_containers(numbers, tmp_path):
    pytest.importorskip("pyarrow")
    frame = numbers.assign(truth=numbers.a > 0)
    frame.to_csv(tmp_path / "data.csv", index=False)
    frame.to_parquet(tmp_path / "data.parquet")
    words = pd.DataFrame({"a": ["x", "y"] * 30, "b": ["x", "y", "y"] * 20})
    words.to_csv(tmp_path / "words.csv", index=False)
    levels = words.astype(pd.CategoricalDtype(["x", "y", "z", "w"]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        right = skeleton(frame)
        assert right.problem.names == ("a", "b", "c", "truth")
        assert skeleton(tmp_path / "data.csv") == skeleton(tmp_path / "data.parquet") == right
    assert skeleton(levels, **LABELS) == skeleton(tmp_path / "words.csv", **LABELS)


def test_what_no_test_can_measure(numbers, tmp_path):
    for column, what in (
        (pd.to_timedelta(range(200), unit="s"), "times or durations"),
        (np.array([datetime.time(k % 24) for k in range(200)]), "times or durations"),
        (np.arange(200) * 1j, "complex numbers"),
        (np.array([1j] * 200, object), "complex numbers"),
        (pd.Categorical(pd.date_range("2020-01-01", periods=200)), "dates"),
    ):
        frame = numbers.assign(z=column)
        frame.to_csv(tmp_path / "data.csv", index=False)
        for data in (frame, np.asarray(column).reshape(-1, 2), tmp_path / "data.csv"):
            with pytest.raises(DataError, match=f"the column holds {what}; leave it out, or make numbers of it"):
                skeleton(data)


def other_frames(frame):
    """The same table in the containers of other packages that are installed."""
    import xarray
    from scipy import sparse

    yield {name: frame[name].tolist() for name in frame}
    yield frame.to_dict("records")
    yield xarray.DataArray(frame.to_numpy(), dims=("row", "var"), coords={"var": list(frame)})
    yield xarray.Dataset.from_dataframe(frame)
    for name, make in (
        ("pyarrow", lambda package: package.table(dict(frame))),
        ("polars", lambda package: package.DataFrame(dict(frame)).lazy()),
        ("dask.dataframe", lambda package: package.from_pandas(frame, npartitions=2)),
    ):
        with contextlib.suppress(ImportError):
            yield make(importlib.import_module(name))
    yield sparse.csr_matrix(frame.to_numpy())


def test_tables_of_other_packages(numbers):
    right = skeleton(numbers, **NUMBERS)
    for data in other_frames(numbers):
        found = skeleton(data, **NUMBERS)
        assert edges(found) == (edges(right) if found.names == right.names else [("V0", "V1")])
    for data in (io.StringIO("a,b\n1,2\n"), b"a,b", numbers.to_records()):
        with pytest.raises(InvalidProblem, match="data is a"):
            skeleton(data, **NUMBERS)


def test_codes_and_names_are_doubted(numbers, tmp_path):
    coded = numbers.copy()
    coded.loc[[3, 9, 70], "b"] = [-998.0, -999, -999]
    coded.to_csv(tmp_path / "data.csv", index=False)
    mixed = coded.assign(w=["x", "y"] * 100)
    for data in (coded, tmp_path / "data.csv", coded.to_numpy(), mixed):
        options = {"family": "mixed", "max_level": 0} if data is mixed else NUMBERS
        with pytest.warns(UserWarning, match=r"1 column\(s\) \('(b|V1)'\) repeat .* \(-998, -999\)"):
            skeleton(data, **options)
        with pytest.warns(UserWarning, match="3 of 200 samples"):
            found = skeleton(data, **options, missing_values=["-998", -999], missing="drop-rows")
        assert data is mixed or edges(found) == [found.names[:2]]
    for table, message in (
        (pd.concat([numbers.iloc[:1] * 0 + 200, numbers]), "row 0 .* begins a row far from all others, like a second"),
        (numbers.assign(d=numbers.a, e=1 - 2 * numbers.b), r"2 .* copies of others \('d of a', 'e of b'\)"),
        (numbers[["a"]], "the table has one variable, 'a'"),
        (numbers.iloc[:3, :2], r"3 sample\(s\) are too few to test anything with"),
    ):
        with pytest.warns(UserWarning, match=message):
            skeleton(table, **NUMBERS)
    with pytest.warns(UserWarning, match="has 60 x 50 cells, with 0.067 samples for each; chi-square needs about five"):
        skeleton(pd.DataFrame({"a": [k % 50 for k in range(200)], "b": [k % 60 for k in range(200)]}), **LABELS)
    days = pd.date_range("2020-01-20", periods=200).strftime("%Y%m%d").astype(int)
    with pytest.warns(UserWarning, match="'day' holds dates such as 20200120"):
        skeleton(numbers.assign(day=days), **NUMBERS)
    with pytest.warns(UserWarning, match=r"1 column\(s\) \('Unnamed: 0'\) have no name"):
        skeleton(numbers.assign(**{"Unnamed: 0": numbers.a**2}), **NUMBERS)
    with pytest.warns(UserWarning, match="n_samples is 2, too few"):
        skeleton(numbers.corr(), **NUMBERS, n_samples=2)


def test_the_index_of_a_sheet_has_no_name(numbers, tmp_path):
    pytest.importorskip("openpyxl")
    numbers.to_excel(tmp_path / "data.xlsx")
    with pytest.raises(DataError, match="column 1 has no name; say --row-names if it names the rows"):
        skeleton(tmp_path / "data.xlsx", **NUMBERS)
    assert skeleton(tmp_path / "data.xlsx", **NUMBERS, row_names=True).names == ("a", "b", "c")
    with pytest.raises(DataError, match=r"sep\.csv has no sheets; leave sheet out"):
        skeleton(CASES / "sep.csv", **NUMBERS, sheet="second")


def test_the_command_line_says_how_it_read(capsys):
    assert main(["skeleton", str(CASES / "decimal-comma.csv"), "--method", "stable-serial"]) == 0
    assert "numbers with decimal commas" in capsys.readouterr().out.splitlines()[0]


@pytest.fixture(scope="module")
def numbers():
    a, c = np.random.default_rng(1).normal(size=(2, 200))
    return pd.DataFrame({"a": a, "b": a + c / 2, "c": np.random.default_rng(2).normal(size=200)}).round(3)


def thousands(separators, decimals=1):
    """Writes millions of a number with a separator of thousands and a decimal mark."""
    return lambda value: f"{value * 1e6:,.{decimals}f}".translate(str.maketrans(",.", separators))


@pytest.mark.parametrize(
    "spelled",
    [
        *(str, Decimal, "{}%".format, "{} %".format, "'{}".format, '="{}"'.format, "{} €".format),
        *(thousands(" .", 0), thousands(",."), thousands(".,"), thousands("'.")),
        lambda value: f"{value:e}".replace(".", ","),
        lambda value: f"{value}".replace("-", "\u2212"),
        lambda value: f"({-value})" if value < 0 else f"{value}",
        lambda value: f"{-value}-" if value < 0 else f"{value}",
        lambda value: f"{value:e}".replace("e", "D"),
        lambda value: f"-${-value}" if value < 0 else f"${value}",
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
    for form in ("%Y-%m-%d", "%Y-%m-%d %H:%M:%S", "%d.%m.%Y", "%m/%d/%y", "%d %b %Y"):
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


def test_an_alpha_that_permutations_cannot_reach(numbers):
    with pytest.warns(UserWarning, match=r"alpha 0.01 is below 1/permutations = 0.05, .*permutations=100 or more"):
        skeleton(numbers, 0.01, family="nonlinear", permutations=20, max_level=0, backend="host")


def test_arrows_with_a_cycle_are_doubted(monkeypatch, numbers):
    from gpupc_impl.core.orientation import CPDAG

    monkeypatch.setattr(CPDAG, "has_directed_cycle", True)
    with pytest.warns(UserWarning, match="the arrows have a cycle"):
        pc(numbers, **NUMBERS)


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
    [("sachs-cd3cd28", 8, NUMBERS), ("asia-5000", 4, LABELS), ("nci-60", 1, {"backend": "host", "transpose": False})],
)
def test_the_order_of_columns_of_real_sets_does_not_matter(name, orders, options):
    data = load(name)
    assert assert_any_order(pd.DataFrame(data.values, columns=data.names), orders, alpha=0.01, **options)
