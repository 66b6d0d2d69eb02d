"""The config whose runs others contribute: the published problems under their names, and nothing to download."""

from pathlib import Path

from datasets import registry
from workflow.lib.config import complete, read_config
from workflow.lib.plan import Plan

CONFIGS = Path(__file__).parents[2] / "config"


def problems(name):
    """For each data set of a config: where it comes from, and the parameters of its problem."""
    config = read_config(CONFIGS / name)
    complete(config)
    plan = Plan(config)
    return {
        dataset: plan.source_of(part, dataset) for part, its in plan.measurements().items() for dataset in its.datasets
    }


def test_problems_are_those_that_are_published():
    ours, published = problems("submit.yaml"), problems("gpu.yaml")
    assert len(ours.keys() & published.keys()) > 10
    assert ours.keys() - published.keys() == {"cgm-p8-n200"}
    assert all(ours[name] == published[name] for name in ours.keys() & published.keys())


def test_nothing_is_downloaded():
    assert not any(registry.files(entry) for entry, _ in problems("submit.yaml").values())
