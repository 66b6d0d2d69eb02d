"""Tables that are read some rows at a time give what they give when they are read as a whole."""

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpupc_impl import InvalidProblem, bootstrap, skeleton
from gpupc_impl.cli import main
from gpupc_impl.core import mapped_arrays
from gpupc_impl.core.rows import RowStream
from gpupc_impl.gaussian.matrix import correlation_matrix, streamed_correlations
from gpupc_impl.intake import read_input
from gpupc_impl.tables import DataError, binary

METHOD = {"method": "stable-serial"}


def small_pieces(monkeypatch, rows: int = 50) -> None:
    """Let every table be large, and be read in pieces of so many rows of four columns."""
    monkeypatch.setattr(binary, "STREAMED_BYTES", 0)
    monkeypatch.setattr(mapped_arrays, "PIECE_BYTES", rows * 4 * 8)


@pytest.fixture
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(4)
    a, b, c, d = rng.normal(size=(4, 330))
    return pd.DataFrame({"a": a, "b": a + b, "c.1": 1e6 + b + c, "d": (10 * d).astype(int)}, index=rng.permutation(330))


def write(frame: pd.DataFrame, kind: str, folder):
    path = folder / f"data.{kind}"
    if kind == "parquet":
        frame.to_parquet(path, row_group_size=70)
    else:
        np.save(path, np.asarray(frame, float, order="F" if kind == "fortran" else "C"))
        path = path.with_suffix(".npy") if kind == "npy" else folder / "data.fortran.npy"
    return path


@given(st.integers(2, 200), st.integers(1, 7), st.integers(0, 2**32), st.floats(-1e9, 1e9), st.integers(-290, 290))
@settings(deadline=None, max_examples=60)
def test_correlations_are_those_of_a_whole_table(m, p, seed, shift, exponent):
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((m, p)) @ rng.standard_normal((p, p))
    values = (values + shift) * 10.0**exponent
    values[:, 0] = shift  # a constant column
    values[: m // 2, -1] = values[0, -1]  # a column that is constant at first
    read = RowStream((m, p), lambda: (values[k : k + 17] for k in range(0, m, 17)))
    correlation, constant = streamed_correlations(read)
    expected, expected_constant = correlation_matrix(values)
    assert np.array_equal(constant, expected_constant)
    assert np.array_equal(correlation, correlation.T)
    assert (np.diag(correlation) == 1).all()
    np.testing.assert_allclose(correlation, expected, rtol=0, atol=1e-12 * m)


@pytest.mark.parametrize("kind", ["parquet", "npy", "fortran"])
def test_a_large_file(frame, tmp_path, monkeypatch, kind, capsys):
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    names = list(frame.columns) if kind != "parquet" else None
    path = write(frame, kind, tmp_path)
    whole = skeleton(path, names=names, pmax=True, **METHOD)
    small_pieces(monkeypatch)
    table = read_input(path)
    assert isinstance(table.values, RowStream)
    assert len(list(table.values.chunks())) > 5
    assert "330 rows, 4 columns (4 of numbers, 0 of categories), read some rows at a time" in table.summary
    np.testing.assert_array_equal(np.asarray(table.values), frame.to_numpy())
    found = skeleton(path, names=names, pmax=True, **METHOD)
    assert found == whole
    assert found.names == ("a", "b", "c.1", "d")
    np.testing.assert_allclose(found.pmax, whole.pmax, atol=1e-9)
    assert skeleton(path, family="kernel", max_level=0, backend="host").facts["problem"]["n_samples"] == 330
    assert main(["skeleton", str(path), "--method", "stable-serial"]) == 0
    assert "read some rows at a time" in capsys.readouterr().out
    if kind == "npy":
        assert skeleton(np.load(path, mmap_mode="r"), names=names, **METHOD) == whole
        assert bootstrap(path, 2, max_level=0, **METHOD).n == 2


@pytest.mark.parametrize("kind", ["parquet", "npy"])
def test_missing_and_constant_values(frame, tmp_path, monkeypatch, kind):
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    holes = frame.reset_index(drop=True).astype(float).assign(k=2.5)
    holes.loc[[120, 300], "b"] = np.nan
    holes.loc[200, "d"] = np.nan
    path = write(holes, kind, tmp_path)

    def outcomes():
        for missing in ("error", "drop-rows", "pairwise"):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                try:
                    found = skeleton(path, missing=missing, family="gaussian", pmax=True)
                except InvalidProblem as error:
                    yield str(error).split(", the first in")
                else:
                    samples = found.facts["problem"]["n_samples"]
                    yield found.adjacency.tolist(), samples, np.round(found.pmax, 9).tolist()
            yield [str(warning.message) for warning in caught]

    whole = list(outcomes())
    small_pieces(monkeypatch)
    assert repr(list(outcomes())) == repr(whole)
    assert whole[0][0].startswith("data has 3 value(s) missing in 2 column(s)")
    assert whole[3] == [
        "3 of 330 samples have missing values and are dropped; 327 are left",
        f"1 constant variable(s) ({'k' if kind == 'parquet' else 'V4'}) are independent of all others",
    ]
    with pytest.raises(InvalidProblem, match="no sample is complete"):
        skeleton(write(holes.assign(a=np.nan), kind, tmp_path), missing="drop-rows")


def test_an_infinite_value(frame, tmp_path, monkeypatch):
    small_pieces(monkeypatch)
    values = frame.to_numpy().copy()
    values[250, 2] = np.inf
    np.save(tmp_path / "x.npy", values)
    for missing in ("error", "pairwise"):
        with pytest.raises(InvalidProblem, match=r"infinite value.* in row 250, column 'V2'"):
            skeleton(tmp_path / "x.npy", missing=missing)


@pytest.mark.parametrize(("group", "column"), [(0, 0), (0, 3), (4, 1)])
def test_a_streamed_file_with_damaged_pages_is_named(frame, tmp_path, monkeypatch, group, column):
    """Its metadata, at the end, are whole, so that the damage shows where the rows are read."""
    parquet = pytest.importorskip("pyarrow.parquet")
    small_pieces(monkeypatch)
    path = write(frame, "parquet", tmp_path)
    place = parquet.read_metadata(path).row_group(group).column(column).data_page_offset
    content = bytearray(path.read_bytes())
    content[place : place + 40] = b"\xff" * 40
    path.write_bytes(content)
    assert binary.open_stream(path) is not None
    with pytest.raises(DataError, match=r"data\.parquet is not a readable \.parquet file: [A-Za-z]+: "):
        skeleton(path, **METHOD)
    assert main(["skeleton", str(path), "--method", "stable-serial", "--quiet"]) == 2
