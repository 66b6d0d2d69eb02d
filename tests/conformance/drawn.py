"""Launch parameters drawn for a method, within their ranges."""

import numpy as np
from hypothesis import strategies as st

from gpupc_impl.core.registry import InvalidParameter, Method, Parameter


def values(parameter: Parameter, least: int = 16) -> st.SearchStrategy:
    """The allowed values of a method's parameter, up to `least` or a few times the default."""
    if parameter.choices is not None:
        return st.sampled_from(parameter.choices)
    if isinstance(parameter.default, bool):
        return st.booleans()
    if isinstance(parameter.default, str):  # a file
        return st.just(parameter.default)
    low = parameter.minimum or 0
    high = max(least, low + 4 * parameter.default)
    return st.integers(low, high if parameter.maximum is None else min(high, parameter.maximum))


def launch_parameters(method: Method, least: int = 16) -> st.SearchStrategy[dict]:
    def allowed(params: dict) -> bool:
        try:
            method.parse_params(params)
        except InvalidParameter:  # each value is in its range, but their combination is not allowed
            return False
        return True

    drawn = method.params.keys() - {"inverse"}  # with which a method solves another problem
    return st.fixed_dictionaries({name: values(method.params[name], least) for name in sorted(drawn)}).filter(allowed)


def random_parameters(method: Method, rng: np.random.Generator) -> dict:
    def draw(parameter: Parameter):
        if parameter.choices is not None:
            return parameter.choices[rng.integers(len(parameter.choices))]
        if isinstance(parameter.default, str):  # a file's path
            return parameter.default
        return int(rng.choice([parameter.minimum, 1, 3, 32, 100]))

    return {name: draw(parameter) for name, parameter in method.params.items()}
