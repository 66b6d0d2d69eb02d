"""Data sets on the way to their problems: what was had of each, or why it was not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import datasets


class Source(NamedTuple):
    """A data set, or why it cannot be had: one that is missing must not cost the others their results, so tables and
    figures show the reason.

    Attributes:
        content: its arrays by name: values, names, labels (as JSON) and true_dag as far as it has them; or none.
        why: the reason as a sentence, where there are none.
    """

    name: str
    facts: Mapping[str, Any]
    content: Mapping[str, np.ndarray]
    why: str | None = None


def get(name: str, entry: Mapping[str, Any], **where: Any) -> Source:
    """Fetch or generate a data set.

    Args:
        entry: its entry in the registry, or one declared in the config.
        where: see `datasets.load`.
    """
    try:
        data = datasets.load(name, spec=None if name in datasets.names() else entry, **where)
    except (datasets.DatasetUnavailable, datasets.DataError) as error:
        print(error)
        return Source(name, entry, {}, str(error))
    content = {"values": data.values, "names": np.array(data.names)}
    if data.true_dag is not None:
        content["true_dag"] = data.true_dag
    if data.labels is not None:
        content["labels"] = np.array(json.dumps(data.labels))
    return Source(name, data.facts, content)


def save(source: Source, path: str | Path) -> None:
    why = {} if source.why is None else {"why": source.why}
    np.savez(path, facts=json.dumps(source.facts), **source.content, **why)


def read(name: str, path: str | Path) -> Source:
    """What `save` wrote."""
    with np.load(path) as stored:
        content = dict(stored)
    why = content.pop("why", None)
    return Source(name, json.loads(str(content.pop("facts"))), content, why and str(why))
