"""The PC algorithm as a scikit-learn estimator."""

import dataclasses
from typing import Any, Self

try:
    from sklearn.base import BaseEstimator
    from sklearn.utils.validation import validate_data
except ImportError as error:
    raise ImportError(
        "gpupc_impl.bridges.scikit_learn needs scikit-learn 1.6 or later; pip install scikit-learn"
    ) from error

from gpupc_impl.api import pc


@dataclasses.dataclass(repr=False, eq=False)  # which are those of scikit-learn
class PC(BaseEstimator):
    """The PC algorithm of `gpupc_impl.pc` as an estimator.

    Args:
        alpha, family, method, backend, max_level, missing: as `gpupc_impl.skeleton` takes them.
        options: parameters of the test and of the method, such as ``{"permutations": 200}``.

    Attributes:
        adjacency_: (p, p) bool; ``[i, j]`` is True for i -> j; for an edge without a direction ``[j, i]`` is True as
            well.
        graph_: the `CPDAG` with its `Skeleton` and the separating sets.
        n_features_in_, feature_names_in_: the number and the names of the fitted variables, as usual in scikit-learn.
    """

    alpha: float = 0.05
    _: dataclasses.KW_ONLY
    family: str = "auto"
    method: str = "auto"
    backend: str = "auto"
    max_level: int | None = None
    missing: str = "error"
    options: dict[str, Any] | None = None

    def fit(self, X: Any, y: None = None) -> Self:
        """Find the graph behind (samples, variables) data: an array, or a DataFrame whose column names are kept.
        ValueError is raised if the data or a parameter cannot be used, as `gpupc_impl.skeleton` and scikit-learn check
        it."""
        finite = True if self.missing == "error" else "allow-nan"
        values = validate_data(self, X, dtype=None, ensure_all_finite=finite, ensure_min_samples=2)
        parameters = {field.name: getattr(self, field.name) for field in dataclasses.fields(PC)}
        options = parameters.pop("options") or {}
        self.graph_ = pc(X if hasattr(X, "columns") else values, transpose=False, **parameters, **options)
        self.adjacency_ = self.graph_.directed | self.graph_.undirected
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing != "error"
        tags.input_tags.string = tags.input_tags.categorical = True
        return tags
