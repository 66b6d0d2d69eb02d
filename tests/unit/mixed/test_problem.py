"""The mixed family's problem: from tables to codes and numbers, and its fingerprint."""

import numpy as np
import pandas as pd
import pytest

from gpupc_impl import InvalidProblem, MixedProblem, NonlinearProblem
from gpupc_impl.core.family import load_problem
from gpupc_impl.mixed.problem import ranks_scale


def table(n=40, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"height": rng.normal(size=n), "sex": rng.choice(["f", "m"], n)})
    cities = pd.Categorical(rng.choice(["Rome", "Oslo", "Bonn"], n))
    return frame.assign(city=cities, smokes=rng.random(n) < 0.3, code=rng.integers(3, 6, n))


def test_columns_are_numbers_or_categories_by_their_kind():
    problem = MixedProblem.from_data(table())
    assert problem.names == ("height", "sex", "city", "smokes", "code")
    assert problem.categories.tolist() == [0, 2, 3, 2, 0]
    assert problem.facts()["categorical_variables"] == 3
    assert problem.facts()["max_categories"] == 3
    assert MixedProblem.from_data(table(), categories=["code"]).categories.tolist() == [0, 2, 3, 2, 3]
    assert MixedProblem.from_data(table(), categories="sex, code").categories.tolist() == [0, 2, 3, 2, 3]


def test_arrays_name_their_categories():
    data = table()[["height", "code"]].to_numpy()
    labels = {"V0": (), "V1": ("a", "b", "c", "d", "e", "f")}
    for categories in (["V1"], labels):
        assert MixedProblem.from_data(data, categories=categories).categories.tolist() == [0, 3]
    assert MixedProblem.from_data(data).categories.tolist() == [0, 0]
    mixed = MixedProblem.from_data(table().to_numpy(dtype=object))
    assert mixed.categories.tolist() == [0, 2, 3, 2, 0]


@pytest.mark.parametrize("transform", ["ranks", "standardize", "none"])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_values_are_those_of_the_table_in_another_order(transform, precision):
    """Rows are permuted as a whole, by the seed, and numbers are those of the nonlinear family."""
    data = table(37)
    problem = MixedProblem.from_data(data, transform=transform, precision=precision)
    plain = NonlinearProblem.from_data(data[["height"]], transform=transform, precision=precision)
    height = plain.values[0] / (ranks_scale(37) if transform == "ranks" else 1)
    codes = {name: pd.factorize(data[name])[0] for name in ("sex", "city", "smokes")}
    expected = sorted(zip(height, *codes.values(), strict=True))
    assert sorted(zip(*problem.values[:4], strict=True)) == expected
    assert not np.array_equal(problem.values[0], height)
    other = MixedProblem.from_data(data, transform=transform, precision=precision, seed=1)
    assert not np.array_equal(problem.values[0], other.values[0])


@pytest.mark.parametrize(("n", "scale"), [(2, 2), (3, 4), (64, 64), (65, 128)])
def test_ranks_lie_below_the_distance_of_categories(n, scale):
    assert ranks_scale(n) == scale
    options = {"k_cmi": 1, "k_perm": 1}
    values = MixedProblem.from_data(np.arange(n)[:, None], **options).values
    assert np.array_equal(np.sort(values[0]) * scale, np.arange(n))


def test_labels_change_nothing_and_the_rest_does():
    data = table()
    problem = MixedProblem.from_data(data)
    renamed = data.assign(sex=data["sex"].map({"f": "z", "m": "a"}))
    assert MixedProblem.from_data(renamed).fingerprint == problem.fingerprint
    others = [MixedProblem.from_data(data, **{name: value}) for name, value in (("alpha", 0.01), ("k_cmi", 5))]
    others.append(MixedProblem.from_data(data, categories=["code"]))
    others.append(MixedProblem.from_data(data.assign(height=data["height"] ** 3 + data["code"])))
    assert len({problem.fingerprint, *(other.fingerprint for other in others)}) == 5


def test_saved_and_loaded(tmp_path):
    problem = MixedProblem.from_data(table(), k_cmi=0.2)
    problem.save(tmp_path / "problem.npz")
    loaded = load_problem(tmp_path / "problem.npz")
    assert isinstance(loaded, MixedProblem)
    assert loaded.fingerprint == problem.fingerprint
    assert loaded.k_cmi == 8
    assert np.array_equal(loaded.values, problem.values)
    assert np.array_equal(loaded.categories, problem.categories)


def test_constants_are_named():
    data = table().assign(sex="f", height=1.5)
    with pytest.warns(UserWarning, match="height, sex"):
        assert MixedProblem.from_data(data).constant == ("height", "sex")


def test_coordinates_have_the_distances_of_categories():
    problem = MixedProblem.from_data(table())
    rows = problem.coordinates([2, 0])
    apart = np.abs(rows[:, :, None] - rows[:, None]).max(axis=0)
    different = problem.values[2][:, None] != problem.values[2][None]
    numbers = np.abs(problem.values[0][:, None] - problem.values[0][None])
    assert np.array_equal(apart, np.maximum(different, numbers))


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"sex": None}, {}, r"40 missing value\(s\) in column 'sex', the first in row 0"),
        ({"height": np.inf}, {}, "infinite.*'height'"),
        ({"height": pd.Timestamp(0)}, {}, "'height' holds datetime64"),
        ({"height": 1j}, {}, "'height' holds complex128"),
        ({"height": np.linspace(0, 1e38, 40)}, {"transform": "none"}, "'height' reaches 1e.38"),
        ({}, {"categories": ["age"]}, "'age', which is no variable"),
        ({}, {"k_cmi": 40}, "k_cmi is 40.*at most 39"),
        ({}, {"transform": "scale"}, "transform is 'scale'"),
    ],
)
def test_what_cannot_be_used_is_an_error(change, options, message):
    with pytest.raises(InvalidProblem, match=message):
        MixedProblem.from_data(table().assign(**change), **options)


def test_too_many_categories_are_an_error():
    data = pd.DataFrame({"key": [str(k) for k in range(65_537)]})
    with pytest.raises(InvalidProblem, match="'key' has 65,537 categories; the most are 65,536"):
        MixedProblem.from_data(data)
