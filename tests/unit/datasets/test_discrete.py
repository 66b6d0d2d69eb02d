"""Discrete networks, against pgmpy's reader and exact inference, and the generator of gpuPC's settings."""

import functools
import gzip

import numpy as np
import pytest
from scipy import stats

import datasets
from datasets import bif, networks, registry
from datasets.dataset import DataError, Dataset, RegistryError, fingerprint
from datasets.discrete import uniform_categories

NETWORKS = sorted({datasets.entry(name)["network"] for name in datasets.names("discrete") if name[0] != "u"})
SLOWLY_READ_BY_PGMPY = ("alarm", "water", "andes")
READ_BY_PGMPY = ("asia", "child", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOWLY_READ_BY_PGMPY))

# Nodes and arcs as the Bayesian network repository states them (bnlearn.com/bnrepository)
SIZES = {
    **{"asia": (8, 8), "cancer": (5, 4), "earthquake": (5, 4), "survey": (6, 6), "sachs": (11, 17)},
    **{"child": (20, 25), "insurance": (27, 52), "water": (32, 66), "mildew": (35, 46), "alarm": (37, 46)},
    **{"barley": (48, 84), "hailfinder": (56, 66), "hepar2": (70, 123), "win95pts": (76, 112)},
    **{"pathfinder": (109, 195), "andes": (223, 338), "diabetes": (413, 602), "pigs": (441, 592)},
    **{"link": (724, 1125), "munin": (1041, 1397)},
}

TOY = """network toy {
}
variable rain {
  type discrete [ 2 ] { no, yes };
}
variable wet {
  type discrete [ 3 ] { dry, damp, <5% };
}
variable sprinkler {
  type discrete [ 2 ] { off, on };
}
probability ( wet | sprinkler, rain ) {
  (on, no) 0.1, 0.2, 0.7;
  (off, no) 1.0, 0.0, 0.0;
  (off, yes) 0.25, 0.75, 0.0;
  (on, yes) 0.0, 0.0, 1.0;
}
probability ( rain ) {
  table 0.75, 0.25;
}
probability ( sprinkler | rain ) {
  (no) 0.5, 0.5;
  (yes) 1, 0e0;
}
"""


@functools.cache
def network(name):
    return bif.read_bif(networks.network_path("discrete", name).read_bytes(), name)


def reader(name):
    from pgmpy.readwrite import BIFReader

    return BIFReader(string=gzip.decompress(networks.network_path("discrete", name).read_bytes()).decode())


def test_a_network_is_read():
    for content in (TOY.encode(), gzip.compress(TOY.encode())):
        found = bif.read_bif(content, "toy")
        assert found.names == ("rain", "wet", "sprinkler")
        assert found.labels == (("no", "yes"), ("dry", "damp", "<5%"), ("off", "on"))
        assert found.parents == ((), (2, 0), (0,))
        assert found.tables[0].tolist() == [[0.75, 0.25]]
        assert found.tables[1].tolist() == [[1, 0, 0], [0.25, 0.75, 0], [0.1, 0.2, 0.7], [0, 0, 1]]
        assert found.order() == (0, 2, 1)
        assert np.argwhere(found.dag()).tolist() == [[0, 1], [0, 2], [2, 1]]


@pytest.mark.parametrize("name", READ_BY_PGMPY)
def test_networks_are_read_as_pgmpy_reads_them(name):
    found, theirs = network(name), reader(name)
    assert list(found.names) == list(theirs.variable_names)
    assert sorted(map(list, np.argwhere(found.dag()))) == sorted(
        [found.names.index(tail), found.names.index(head)] for tail, head in theirs.variable_edges
    )
    for variable, labels, parents, table in zip(*found, strict=True):
        assert list(labels) == theirs.variable_states[variable]
        assert [found.names[parent] for parent in parents] == theirs.variable_parents[variable]
        expected = theirs.variable_cpds[variable].T
        np.testing.assert_allclose(table, expected / expected.sum(axis=1, keepdims=True), rtol=1e-14)


@pytest.mark.parametrize("name", NETWORKS)
def test_registered_networks_have_their_published_sizes(name):
    found = network(name)
    assert (len(found.names), int(found.dag().sum())) == SIZES[name]
    for table in found.tables:
        np.testing.assert_allclose(table.sum(axis=1), 1, rtol=1e-12)
    seen = set()
    for variable in found.order():
        assert seen.issuperset(found.parents[variable])
        seen.add(variable)
    assert seen == set(range(len(found.names)))


def test_the_schema_knows_the_networks_of_the_wheel():
    folder = networks.network_path("discrete", "asia").parent
    for family, ending in networks.ENDINGS.items():
        for path in folder.glob(f"*{ending}"):
            spec = {"kind": "network", "family": family, "network": path.name.removesuffix(ending)}
            assert registry.resolve("mine", spec) == spec
    for family, other in (("discrete", "ecoli70"), ("gaussian", "alarm"), ("nonlinear", "alarm")):
        with pytest.raises(RegistryError, match="is not one of"):
            registry.resolve("mine", {"kind": "network", "family": family, "network": other})


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (TOY, "network toy {\n}\n", "it must declare variables"),
        ("[ 3 ]", "[ 4 ]", "variable 'wet': 4 different states declared, found dry, damp, <5%"),
        ("variable sprinkler", "variable rain", "each of them once"),
        ("| rain )", "| snow )", "probability of 'sprinkler': 'snow' is not declared"),
        ("probability ( sprinkler | rain )", "probability ( rain | sprinkler )", "the probabilities of each once"),
        ("  (on, no) 0.1, 0.2, 0.7;\n", "", "probability of 'wet': each of its 4 rows is needed once"),
        ("(on, no)", "(on)", "'.on. 0.1, 0.2, 0.7;' is no row of 3 probabilities"),
        ("(on, no)", "(on, maybe)", "is no row of 3 probabilities"),
        ("  table 0.75, 0.25;", "  0.75, 0.25;", "'0.75, 0.25;' is no row of 2 probabilities"),
        ("0.1, 0.2, 0.7", "0.1, 0.2, 0.8", "the probabilities of row 3 sum to 1.1, not to 1"),
        ("0.1, 0.2, 0.7", "0.1, 0.2, inf", "the probabilities of row 3 sum to inf"),
        ("0.1, 0.2, 0.7", "0.5, -0.2, 0.7", "without negative numbers"),
        (
            "probability ( rain ) {\n  table 0.75, 0.25;",
            "probability ( rain | wet ) {\n  (dry) 1, 0;\n  (damp) 1, 0;\n  (<5%) 1, 0;",
            "is not acyclic: ",
        ),
    ],
)
def test_what_is_no_network_is_named(old, new, said):
    assert old in TOY
    with pytest.raises(DataError, match=said) as caught:
        bif.read_bif(TOY.replace(old, new, 1).encode(), "toy")
    assert "network 'toy'" in str(caught.value)


@pytest.mark.parametrize("content", [b"\x1f\x8b damaged", b"\xff\xfe", gzip.compress(TOY.encode(), mtime=0)[:40]])
def test_damaged_files(content):
    with pytest.raises(DataError, match="'toy' is not a readable BIF file"):
        bif.read_bif(content, "toy")


def test_a_table_that_would_not_fit_is_refused(monkeypatch):
    monkeypatch.setattr(bif, "LARGEST_TABLE", 11)
    with pytest.raises(DataError, match="of 'wet': 12 probabilities are more than 11"):
        bif.read_bif(TOY.encode(), "toy")


@pytest.mark.parametrize("name", ["asia", "child", pytest.param("alarm", marks=pytest.mark.slow)])
def test_marginals_are_the_exact_ones(name):
    """Against pgmpy's variable elimination: a chi-square bound that all variables together would miss at 1e-6."""
    from pgmpy.inference import VariableElimination

    model = reader(name).get_model()
    exact = VariableElimination(model)
    n = 50_000
    data = datasets.load("drawn", spec={"kind": "network", "family": "discrete", "network": name, "samples": n})
    for variable, labels, codes in zip(data.names, data.labels, data.values.T, strict=True):
        factor = exact.query([variable], show_progress=False)
        expected = np.array([factor.get_value(**{variable: label}) for label in labels]) * n
        observed = np.bincount(codes, minlength=len(labels))
        assert not observed[expected == 0].any()
        occurs = expected > 0
        statistic = ((observed - expected)[occurs] ** 2 / expected[occurs]).sum()
        assert statistic <= stats.chi2.isf(1e-6 / len(data.names), max(1, occurs.sum() - 1)), variable


@pytest.mark.parametrize("name", NETWORKS)
def test_every_row_of_every_table_is_followed(name):
    """Given its parents, each variable is distributed as its table says, and never in a state of probability zero."""
    found, n = network(name), 20_000
    codes = bif.sample(found, n, seed=1).astype(np.int64)
    statistic = freedom = 0.0
    for variable, parents in enumerate(found.parents):
        table = found.tables[variable]
        row = np.zeros(n, dtype=np.int64)
        for parent in parents:
            row = row * len(found.labels[parent]) + codes[:, parent]
        cells = np.bincount(row * table.shape[1] + codes[:, variable], minlength=table.size).reshape(table.shape)
        assert not cells[table == 0].any(), found.names[variable]
        expected = table * cells.sum(axis=1, keepdims=True)
        fit = (expected >= 5) | (table == 0)
        cells, expected = cells[fit.all(axis=1)], expected[fit.all(axis=1)]
        occurs = expected > 0
        statistic += ((cells - expected)[occurs] ** 2 / expected[occurs]).sum()
        freedom += (occurs.sum(axis=1) - 1).sum()
    assert 1e-5 < stats.chi2.sf(statistic, freedom) < 1 - 1e-5


def test_variables_are_drawn_independently_of_one_another():
    """A stream that two variables shared would make roots depend on each other."""
    found = network("munin")
    roots = [k for k, parents in enumerate(found.parents) if not parents and found.tables[k].max() < 0.99]
    codes = bif.sample(found, 20_000, seed=0)[:, roots]
    p_values = [
        stats.chi2_contingency(np.histogram2d(codes[:, i], codes[:, i + 1], bins=(len(set(a)), len(set(b))))[0]).pvalue
        for i, (a, b) in enumerate(zip(codes.T, codes.T[1:], strict=False))
    ]
    assert len(p_values) > 10
    assert stats.kstest(p_values, "uniform").pvalue > 1e-4


def test_fewer_samples_are_the_first_of_more_and_seeds_differ():
    few, more = datasets.load("alarm-5000"), datasets.load("alarm-20000")
    assert np.array_equal(few.values, more.values[:5000])
    found = network("alarm")
    assert np.array_equal(bif.sample(found, 5000, 0), few.values)
    assert not np.array_equal(bif.sample(found, 5000, 1), few.values)


@pytest.mark.parametrize(
    ("name", "sha256"),
    [
        ("asia-5000", "ee94742283755eea6813cc05b3e0727489d1128cc26e2c11097c6d7e9d7a129b"),
        ("alarm-20000", "28fcc9da2040a6c00cb6bf184fd914c6ff640c11c13762d79215656bd20393e6"),
        ("munin-20000", "993f8277650c132022d29720303fef617e702acf021f96f201601729a4f3e052"),
        ("uniform-p1000-c4-n10000", "92dc3b0044b7bf97162570c436bcb0120fe69463923f70b8b822f765aafc8280"),
    ],
)
def test_samples_are_pinned(name, sha256):
    """A change of what is drawn would silently change every recorded result on these data."""
    assert datasets.load(name).facts["sha256"] == sha256


@pytest.mark.parametrize(
    ("name", "shape", "constant"),
    [
        ("alarm-200000", (200_000, 37), 0),
        ("andes-20000", (20_000, 223), 0),
        ("link-20000", (20_000, 724), 26),
        ("munin-20000", (20_000, 1041), 326),
        ("water-5000", (5000, 32), 6),
    ],
)
def test_registered_samples(name, shape, constant):
    data = datasets.load(name)
    assert data.values.shape == shape
    assert data.values.dtype == np.uint8
    assert data.values.flags.f_contiguous
    assert data.family == "discrete"
    assert data.facts["constant_variables"] == constant == (data.values == data.values[0]).all(axis=0).sum()
    assert f"{shape[0]} samples, seed 0" in data.facts["source"]
    assert np.array_equal(data.true_dag, network(datasets.entry(name)["network"]).dag())


def test_labels_are_the_declared_ones_whether_they_occur_or_not():
    data = datasets.load("munin-20000")
    observed = data.values.max(axis=0) + 1
    declared = np.array([len(labels) for labels in data.labels])
    assert (observed <= declared).all()
    assert (observed < declared).any()
    assert declared.max() == 21  # gpuPC, Table 1


@pytest.mark.parametrize("categories", [2, 5, 20, 256, 257])
def test_uniform_categories_are_uniform_and_independent(categories):
    n = 40_000
    data = uniform_categories(6, n, categories, seed=3)
    assert data.values.dtype == (np.uint8 if categories <= 256 else np.uint16)
    assert data.labels == (tuple(map(str, range(categories))),) * 6
    expected = n / categories
    for codes in data.values.T:
        statistic = ((np.bincount(codes, minlength=categories) - expected) ** 2 / expected).sum()
        assert 1e-5 < stats.chi2.sf(statistic, categories - 1) < 1 - 1e-5
    correlation = np.corrcoef(data.values, rowvar=False)[np.triu_indices(6, 1)]
    assert np.abs(correlation).max() < 5 / np.sqrt(n)


def test_a_discrete_dataset_keeps_codes_and_labels():
    codes = np.array([[0, 1], [2, 0]], dtype=np.uint8)
    data = Dataset("x", codes, ("a", "b"), "discrete", labels=(("u", "v", "w"), ("0", "1")))
    assert data.values.dtype == np.uint8
    assert data.values.flags.f_contiguous
    assert data.facts["sha256"] == fingerprint(codes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"values": np.zeros((2, 2), dtype=np.int64)}, "uint8 or uint16, not int64"),
        ({"values": np.zeros((2, 3), dtype=np.uint8)}, r"2 names for values of shape \(2, 3\)"),
        ({"labels": (("u",),)}, "labels for 1 of 2 variables"),
        ({"labels": (("u", "v", "u"), ("0", "1"))}, "variable 'a': two categories have the same label"),
        ({"labels": (("u", "v"), ("0", "1"))}, r"variable 'a': code 2 has no label \(2 labels\)"),
        ({"family": "gaussian"}, "labels belong to discrete or mixed data, not to gaussian data"),
    ],
)
def test_an_inconsistent_discrete_dataset_is_an_error(changes, said):
    good = {"values": np.uint8([[0, 1], [2, 0]]), "family": "discrete", "labels": (("u", "v", "w"), ("0", "1"))}
    with pytest.raises(DataError, match=said):
        Dataset("x", names=("a", "b"), **good | changes)


def test_a_file_of_codes(tmp_path):
    path = tmp_path / "codes.csv"
    entry = {
        **{"kind": "file", "family": "discrete", "file": "codes.csv", "how": "write it", "samples": 2, "variables": 2},
        **{"reader": {"format": "csv", "header": True}, "licence": "none", "citation": "none"},
    }
    for text, dtype in (("a,b\n0,3\n2,1\n", np.uint8), ("a,b\n0,300\n2,1\n", np.uint16)):
        path.write_text(text)
        data = datasets.load("mine", spec=entry, mirrors=[tmp_path])
        assert data.values.dtype == dtype
        assert data.values[1].tolist() == [2, 1]
        assert data.labels is None
    for cell in ("-1", "0.5", "65536"):
        path.write_text(f"a,b\n0,3\n2,{cell}\n")
        with pytest.raises(DataError, match=rf"row 2, column 'b': {cell} is no code of a category"):
            datasets.load("mine", spec=entry, mirrors=[tmp_path])
