"""The registry, the schema's messages, and `load` of what is registered or declared."""

import copy
import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

import datasets
from datasets import registry
from datasets.dataset import Dataset, RegistryError, fingerprint
from datasets.fetch import MIRRORS_VARIABLE
from tests.loaded import load

FILES = [name for name in datasets.names() if datasets.entry(name)["kind"] == "file"]
GENERATED = {"kind": "generated", "family": "gaussian", "generator": "generate.random_dag_gaussian"}
GENERATED |= {"parameters": {"p": 5, "m": 20, "density": 0.5, "seed": 3}}


def test_the_registry_holds_what_it_should():
    families = ("gaussian", "discrete", "nonlinear", "mixed", "kernel", "regression")
    assert sorted(name for family in families for name in datasets.names(family)) == sorted(datasets.names())
    assert {datasets.entry(name)["kind"] for name in datasets.names()} == {"file", "network", "generated"}
    for name in datasets.names():
        assert datasets.entry(name)["licence"]
        assert datasets.entry(name)["citation"]


def test_unknown_names_get_a_hint():
    with pytest.raises(RegistryError, match="no data set is called 'nci60'; did you mean nci-60"):
        datasets.load("nci60")
    with pytest.raises(RegistryError, match="known: nci-60, mcc"):
        datasets.entry("qqqq")
    with pytest.raises(RegistryError, match="no data set is called 0; known: "):
        datasets.entry(0)  # a key of YAML


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "fil"}, r"spec, data set 'mine', key 'kind': 'fil' is not one of"),
        ({"family": "normal"}, r"key 'family': 'normal' is not one of"),
        ({"parameters": {"p": [1]}}, r"key 'parameters.p': \[1\] is not of type"),
        ({"generator": "nowhere.f"}, "key 'generator': No module named 'datasets.nowhere'"),
        (
            {"parameters": GENERATED["parameters"] | {"q": 1}},
            "key 'parameters': got an unexpected keyword argument 'q'",
        ),
    ],
)
def test_wrong_specs_are_named(change, said):
    with pytest.raises(RegistryError, match=said):
        datasets.load("mine", spec=GENERATED | change)


def test_every_fault_is_reported_at_once():
    with pytest.raises(RegistryError) as caught:
        registry.validate({"a": GENERATED | {"x": 1}, "b": {"kind": "file", "file": "../up.csv"}}, "here")
    text = str(caught.value)
    assert "here, data set 'a': " in text
    assert "here, data set 'b', key 'file': " in text
    assert "here, data set 'b': 'samples' is a required property" in text


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://x/y"])
def test_addresses_are_http(url):
    entry = datasets.entry("nci-60") | {"url": url}
    with pytest.raises(RegistryError, match="key 'url'"):
        registry.validate({"mine": entry}, "here")


def test_files_need_exactly_one_checksum():
    entry = datasets.entry("nci-60")
    for wrong in (entry | {"git_blob_sha1": "0" * 40}, {key: entry[key] for key in entry if key != "sha256"}):
        with pytest.raises(RegistryError, match="data set 'mine'"):
            registry.validate({"mine": wrong}, "here")


def test_names_fit_file_names():
    with pytest.raises(RegistryError, match=re.escape("'a/b' does not match")):
        registry.validate({"a/b": GENERATED}, "here")
    with pytest.raises(RegistryError, match=r"here: .* is not of type 'object'"):
        registry.validate([GENERATED], "here")


def test_repeated_keys_are_an_error():
    with pytest.raises(RegistryError, match="line 1: repeated key a"):
        registry.parse("a: {kind: file}\nb: {}\na: {kind: network}\n")


def test_entries_may_build_on_others():
    found = registry.parse("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\n")
    assert found == {"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 3}}
    with pytest.raises(RegistryError, match="repeated key y"):
        registry.parse("a: &a {x: 1}\nb: {<<: *a, y: 3, y: 4}\n")


def test_a_spec_cannot_take_a_registered_name():
    with pytest.raises(RegistryError, match="'nci-60' is already in the registry"):
        datasets.load("nci-60", spec=GENERATED)


def test_declared_sets_load():
    spec = copy.deepcopy(GENERATED)
    data = datasets.load("mine", spec=spec)
    assert spec == GENERATED
    assert (data.name, data.values.shape, data.family) == ("mine", (20, 5), "gaussian")
    assert data.true_dag.shape == (5, 5)
    assert data.facts["sha256"] == fingerprint(data.values)
    assert {"source", "kind", "licence", "citation", "note"} < data.facts.keys()


def test_a_registered_generated_set_loads():
    data = datasets.load("dag-p200-m1000-d0.025")
    assert data.values.shape == (1000, 200)
    assert "Zarebavani" in data.facts["citation"]


def test_fingerprint_tells_arrays_apart():
    values = np.arange(6.0).reshape(2, 3)
    same = np.asfortranarray(values)
    others = [values.reshape(3, 2), values.astype(np.float32), values + 1]
    assert fingerprint(values) == fingerprint(same)
    assert len({fingerprint(array) for array in (values, *others)}) == 4


def test_a_dataset_is_consistent():
    data = Dataset("x", np.asfortranarray([[1, 2], [3, 4]]), ("a", "b"), "gaussian")
    assert data.values.dtype == np.float64
    assert data.values.flags.c_contiguous


@pytest.mark.parametrize("name", FILES)
def test_mirrored_files_load_as_registered(name, tmp_path):
    if not os.environ.get(MIRRORS_VARIABLE):
        pytest.skip(f"{MIRRORS_VARIABLE} is not set: no mirror folder to take the file from")
    data = load(name, cache_dir=tmp_path)
    entry = datasets.entry(name)
    assert data.values.shape == (entry["samples"], entry["variables"])
    assert np.isfinite(data.values).all()
    assert len(set(data.names)) == entry["variables"]
    constant = int((np.ptp(data.values, axis=0) == 0).sum())
    assert constant == (2 if name == "su" else 0)
    if name == "mcc":
        pairs = [(170, 390), (562, 563), (585, 586), (837, 838), (1054, 1319)]
        assert all(np.array_equal(data.values[:, i], data.values[:, j]) for i, j in pairs)


def test_no_pattern_of_a_schema_admits_a_line_end():
    """`$` matches before one at the end."""
    root = Path(__file__).parents[3]
    list_schemas = ["git", "ls-files", "*.schema.json", "*.schema.yaml"]
    schemas = subprocess.run(list_schemas, cwd=root, capture_output=True, text=True, check=True).stdout.split()
    assert len(schemas) == 4
    for path in schemas:
        patterns = re.findall(r'pattern"?: "((?:[^"\\]|\\.)*)"', (root / path).read_text(encoding="utf-8"))
        assert patterns
        assert not [pattern for pattern in patterns if pattern.endswith("$")]


def test_large_specs_have_a_short_message():
    with pytest.raises(RegistryError) as error:
        registry.validate({"name\n": {}, "odd": ["x" * 10**6]}, "spec")
    assert "name" in str(error.value)
    assert len(str(error.value)) < 10_000
