"""What people have: files and frames of all kinds, missing values, variables in rows, categories in numbers."""

import decimal
import re
import time
import warnings

import numpy as np
import pandas as pd
import pytest

from gpupc_impl import InvalidProblem, pc, skeleton
from gpupc_impl.cli import main
from gpupc_impl.intake import few_values, read_input
from gpupc_impl.tables import FRAMES, DataError, TableFormat
from tests.graphs import collider_chain

METHOD = {"method": "stable-serial"}


@pytest.fixture(scope="module")
def frame():
    return collider_chain(300)


@pytest.fixture(scope="module")
def gaps(frame):
    """The same with values missing in rows 3 and 7."""
    frame = frame.copy()
    frame.loc[3, "a"] = frame.loc[7, "c"] = np.nan
    return frame


def write_h5ad(frame, path):
    anndata = pytest.importorskip("anndata")
    names = [f"s{k}" for k in range(len(frame))], list(frame.columns)
    rows, columns = (pd.DataFrame(index=pd.Index(each, dtype=object)) for each in names)
    anndata.AnnData(frame.to_numpy(), obs=rows, var=columns).write_h5ad(path)


WRITERS = {
    "data.csv": lambda frame, path: frame.to_csv(path, index=False),
    "data.tsv": lambda frame, path: frame.to_csv(path, index=False, sep="\t"),
    "data.txt": lambda frame, path: frame.to_csv(path, index=False, sep=";"),
    "data.csv.gz": lambda frame, path: frame.to_csv(path, index=False),
    "data.parquet": lambda frame, path: frame.to_parquet(path),
    "data.xlsx": lambda frame, path: frame.to_excel(path, index=False),
    "data.h5ad": write_h5ad,
    "data.npz": lambda frame, path: np.savez(path, x=frame.to_numpy(), names=list(frame.columns)),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_goes_where_a_frame_goes(frame, gaps, tmp_path, name, capsys):
    path = tmp_path / name
    if path.suffix in FRAMES:
        pytest.importorskip(FRAMES[path.suffix][0])
    WRITERS[name](frame, path)
    found = skeleton(str(path), **METHOD)
    assert list(found.to_frame().itertuples(index=False, name=None)) == [("a", "c"), ("b", "c"), ("c", "d")]
    assert found == skeleton(frame, **METHOD)
    assert main(["skeleton", str(path), "--method", "stable-serial", "--quiet"]) == 0
    WRITERS[name](gaps, path)
    with pytest.raises((DataError, InvalidProblem), match=r"missing.*--missing drop-rows"):
        skeleton(path, **METHOD)
    with pytest.warns(UserWarning, match="2 of 300 samples have missing values and are dropped; 298 are left"):
        assert skeleton(path, **METHOD, missing="drop-rows") == skeleton(gaps.dropna(), **METHOD)
    assert main(["skeleton", str(path), "--missing", "pairwise", "--quiet"]) == 0


def test_an_anndata_object_is_a_table(frame):
    anndata = pytest.importorskip("anndata")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it makes text of the rows' numbers
        table = anndata.AnnData(frame)
    assert skeleton(table, **METHOD) == skeleton(frame, **METHOD)


def test_a_package_that_is_not_there_is_named_with_its_extra(tmp_path, monkeypatch):
    for suffix, (module, extra) in FRAMES.items():
        monkeypatch.setitem(__import__("sys").modules, module, None)
        (tmp_path / f"x{suffix}").write_text("?")
        said = rf"needs {module}, which is not installed; pip install {module} \(the extra {extra}\)"
        with pytest.raises(DataError, match=said):
            skeleton(tmp_path / f"x{suffix}")


NESTED = {"list": [1, 2], "dict": {"x": 1}, "ndarray": np.ones(2), "tuple": ([1], 2)}
NESTED |= {"Decimal('sNaN')": decimal.Decimal("sNaN")}


@pytest.mark.parametrize("options", [{}, {"family": "gaussian"}, {"family": "discrete"}, {"family": "mixed"}], ids=str)
@pytest.mark.parametrize("name", NESTED)
def test_cells_that_hold_more_than_a_value(frame, name, options):
    cells = pd.Series([1.0, *[NESTED[name]] * (len(frame) - 1)], dtype=object)
    table = frame.assign(c=cells)
    for data, column in ((table, "c"), (table.to_numpy(object), "V2")):
        with pytest.raises(DataError, match=rf"row 1 of column '{column}': the cell holds .*{re.escape(name)}.*leave"):
            skeleton(data, progress=False, **options)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[1, 2], [1]], r"row 1 of data has the shape \(1,\), and row 0 \(2,\); give each row one"),
        ([[1, 2], [1, [2]]], r"row 1 of data holds lists beside other values; give"),
    ],
)
def test_rows_of_different_lengths(rows, message):
    for options in ({}, {"family": "discrete"}, {"transpose": True}):
        with pytest.raises(InvalidProblem, match=message):
            skeleton(rows, progress=False, **options)


@pytest.mark.parametrize("shape", [(10**12, 0), (0, 10**12), (0, 3), (3, 0)])
def test_tables_without_rows_or_columns(tmp_path, shape):
    """A header may declare any number of rows of nothing."""
    path = tmp_path / "data.npy"
    header = {"descr": "<f8", "fortran_order": False, "shape": shape}
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
    message = rf"data has {shape[0]:,} samples \(rows\) and {shape[1]:,} variables \(columns\); give at least one"
    for data in (path, np.empty(shape)):
        for options in ({}, {"family": "discrete"}, {"missing": "drop-rows"}):
            started = time.monotonic()
            with pytest.raises(InvalidProblem, match=message):
                skeleton(data, progress=False, **options)
            assert time.monotonic() - started < 5
    with pytest.raises(InvalidProblem, match=message):
        skeleton(path, n_samples=10, progress=False)


@pytest.mark.parametrize("suffix", FRAMES)
def test_damaged_and_absent_files(tmp_path, suffix):
    pytest.importorskip(FRAMES[suffix][0])
    path = tmp_path / f"bad{suffix}"
    with pytest.raises(FileNotFoundError):
        skeleton(path)
    path.write_text("no such thing")
    with pytest.raises(DataError, match=rf"bad\{suffix} is not a readable \{suffix} file"):
        skeleton(path)


KINDS = {
    "frame": lambda gaps: gaps,
    "array": lambda gaps: gaps.to_numpy(),
    "masked": lambda gaps: np.ma.masked_invalid(gaps.to_numpy()),
    "lists": lambda gaps: gaps.to_numpy().tolist(),
    "nullable": lambda gaps: gaps.convert_dtypes(),
    "objects": lambda gaps: gaps.astype(object).where(gaps.notna(), None),
}


@pytest.mark.parametrize("kind", KINDS)
def test_missing_values(gaps, kind):
    data = KINDS[kind](gaps)
    with pytest.raises(InvalidProblem, match=r"2 value\(s\) missing in 2 column\(s\) .* row 3 of .* leaves 298 of 300"):
        skeleton(data, **METHOD, family="gaussian")
    with pytest.warns(UserWarning, match="2 of 300 samples"):
        found = skeleton(data, **METHOD, missing="drop-rows")
    assert found.adjacency.tolist() == skeleton(gaps.dropna(), **METHOD).adjacency.tolist()
    pairwise = skeleton(data, missing="pairwise", family="gaussian")
    assert pairwise.facts["problem"]["least_samples_of_a_pair"] == 298
    assert pairwise == skeleton(gaps, missing="pairwise")


def test_labels_with_missing_values(tmp_path):
    rng = np.random.default_rng(0)
    words = pd.DataFrame(rng.choice(["p", "q"], (40, 3)), columns=list("abc"))
    words.loc[5, "b"] = None
    words.to_csv(tmp_path / "words.csv", index=False)
    for data in (words, tmp_path / "words.csv"):
        with pytest.raises((InvalidProblem, DataError), match="missing"):
            skeleton(data, backend="host", max_level=0)
        with pytest.warns(UserWarning, match="1 of 40 samples"):
            found = skeleton(data, backend="host", max_level=0, missing="drop-rows")
        assert found.facts["problem"]["n_samples"] == 39


def test_no_sample_is_complete(gaps):
    empty = gaps.assign(a=np.nan)
    with pytest.raises(InvalidProblem, match=r"no sample is complete, .* the most \('a': 300, 'c': 1\)"):
        skeleton(empty, missing="drop-rows")
    with pytest.raises(InvalidProblem, match=r"'a' have 0 sample\(s\) in common, the first of 4 pair\(s\)"):
        skeleton(empty, missing="pairwise")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"missing": "impute"}, "missing is 'impute'; choose one of: error, drop-rows, pairwise, imputed"),
        (
            {"missing": "pairwise", "method": "cupc-s"},
            "method 'cupc-s' has one critical value for all tests of a level",
        ),
        ({"missing": "pairwise", "family": "nonlinear"}, "tests on correlations, which the nonlinear test is not"),
        ({"missing": "drop-rows", "n_samples": 9}, "a correlation matrix; missing and transpose are for samples"),
    ],
)
def test_what_missing_cannot_mean(gaps, options, message):
    with pytest.raises(InvalidProblem, match=message):
        skeleton(gaps, **options)


def test_variables_in_rows_are_doubted_and_turned(frame, tmp_path, capsys):
    turned = frame.T.add_prefix("s")
    with pytest.warns(UserWarning, match=r"4 samples \(rows\) of 300 variables .*transpose=True \(--transpose\)"):
        skeleton(turned, **METHOD, max_level=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        skeleton(turned, **METHOD, max_level=0, transpose=False)
        assert skeleton(turned, **METHOD, transpose=True) == skeleton(frame, **METHOD)
        assert skeleton(turned.to_numpy(), **METHOD, transpose=True).names == ("V0", "V1", "V2", "V3")
    for name, columns in (("named.csv", turned), ("counted.csv", frame.T)):
        columns.to_csv(tmp_path / name)
        assert skeleton(tmp_path / name, **METHOD, transpose=True).names == tuple("abcd")
        assert main(["skeleton", str(tmp_path / name), "--transpose", "--method", "stable-serial"]) == 0
        assert "samples: 300" in capsys.readouterr().out
        with pytest.raises(DataError, match=r"--row-names if (it|that column) names the rows"):
            skeleton(tmp_path / name)


def test_a_turned_table_of_labels(tmp_path):
    (tmp_path / "words.csv").write_text("name,s1,s2,s3\nx,p,q,p\ny,1,2,1\n")
    table = read_input(tmp_path / "words.csv", kind="labels", form=TableFormat(row_names=True), transpose=True)
    assert (table.values.to_numpy().tolist(), table.names) == ([["p", 1], ["q", 2], ["p", 1]], ["x", "y"])


def test_whole_numbers_with_few_values_are_doubted(frame):
    counts = frame.assign(e=np.arange(300) % 3, f=np.arange(300) % 2 == 0, g=np.arange(300), h=1)
    with pytest.warns(UserWarning, match=r"2 of 8 columns \('e', 'f'\) .* say family='discrete' \(--family discrete\)"):
        pc(counts, **METHOD, max_level=0)
    assert few_values(counts.astype(float)).tolist() == [False] * 4 + [True, True, False, False]
    assert few_values(np.array([[1.0, np.nan], [2, 0.5]] * 8)).tolist() == [True, False]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        skeleton(frame, **METHOD)
        skeleton(counts[["e", "f"]], family="discrete", backend="host")


def test_columns_of_both_kinds(frame, tmp_path):
    mixed = frame.assign(w=np.where(frame.a > 0, "up", "down"))
    mixed.to_csv(tmp_path / "mixed.csv", index=False)
    for data in (mixed, tmp_path / "mixed.csv"):
        said = r"1 column\(s\) \('w'\) hold text or categories and the others"
        with pytest.raises(InvalidProblem, match=said) as told:
            skeleton(data, **METHOD)
        assert "pandas.get_dummies" in str(told.value)
        assert "pandas.qcut) and say family='discrete'" in str(told.value)
        assert "say family='mixed' (--family mixed), which takes both" in str(told.value)
        assert skeleton(data, family="mixed", max_level=0, permutations=20, backend="host").names == (*"abcdw",)
    holes = mixed.assign(a=mixed.a.where(mixed.index != 3))
    with pytest.raises(InvalidProblem, match=r"say family='mixed' \(--family mixed\)"):
        skeleton(holes, missing="pairwise")
    with pytest.raises(InvalidProblem, match=r"no label; .* family='mixed' \(--family mixed\)"):
        skeleton(mixed, family="discrete", backend="host")
    with pytest.raises(InvalidProblem, match="the gaussian test takes numbers: say family='discrete'"):
        skeleton(mixed[["w"]].assign(v=mixed.w), family="gaussian")


def test_a_file_of_words_is_discrete(tmp_path, capsys):
    rng = np.random.default_rng(0)
    words = pd.DataFrame(rng.choice(["p", "q"], (60, 2)), columns=["a", "b"])
    words.to_csv(tmp_path / "words.csv", index=False)
    assert skeleton(tmp_path / "words.csv", max_level=0).facts["problem"]["df_rule"] == "full"
    assert main(["skeleton", str(tmp_path / "words.csv"), "--max-level", "0"]) == 0
    (tmp_path / "typo.csv").write_text("a,b\n1.5,2\n2,3\nx,4\n")
    with pytest.raises(DataError, match=r"line 4, column 1 \('a'\): 'x' is not a number"):
        skeleton(tmp_path / "typo.csv")


def test_text_of_a_parquet_file_that_is_not_utf_8(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    offsets, text = pyarrow.py_buffer(np.array([0, 1, 2], np.int32)), pyarrow.py_buffer(b"a\xd1")
    column = pyarrow.Array.from_buffers(pyarrow.string(), 2, [None, offsets, text])
    path = tmp_path / "data.parquet"
    parquet.write_table(pyarrow.table({"site": column}), path)
    with pytest.raises(DataError, match=r"data\.parquet.*'site'.*cannot be decoded"):
        read_input(str(path))
