"""The methods of a family that can be used here, and parameters drawn for them and for their problems."""

from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st

from gpupc_impl import methods
from gpupc_impl.backends import open_backend
from gpupc_impl.core.registry import InvalidParameter, Method, Parameter
from gpupc_impl.core.solve import unavailable


def usable(family: str, chosen: Callable[[Method], bool]) -> dict[str, tuple[Method, str]]:
    """The chosen methods of a family on every backend that they can use here."""
    return {
        f"{method.name}-{backend}": (method, backend)
        for method in methods(family).values()
        for backend in method.backends
        if chosen(method) and unavailable(method, backend) is None
    }


def knn_options(rng: np.random.Generator, n: int, most_permutations: int) -> dict:
    """Any parameters of a test on the nearest of n samples."""
    return {
        "alpha": float(rng.choice([0.02, 0.05, 0.1, 0.3])),
        "transform": str(rng.choice(["ranks", "ranks", "standardize", "none"])),
        "permutations": int(rng.integers(10, most_permutations + 1)),
        "k_cmi": int(rng.choice([1, 3, 7, n // 5 + 1, n - 1])),
        "k_perm": int(rng.choice([1, 5, 10, n - 1])),
        "seed": int(rng.integers(2**63)),
        "precision": str(rng.choice(["float32", "float64"])),
    }


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


def check_single_tests(setting: tuple[Method, str], draw: Callable, reference: type, retest: type, ci_test: Callable):
    """A reference's sums of random tests equal the retest's, and with every selection the kernels give their count and
    CMI, bit for bit."""
    method, backend = setting
    rng = np.random.default_rng(0)
    for _ in range(15):
        problem = draw(rng)
        i, j, *rest = rng.permutation(problem.n_variables).tolist()
        members = tuple(sorted(rest[: rng.integers(len(rest) + 1)]))
        sums = reference(problem).partial_sums(i, [j], members)[0]
        np.testing.assert_array_equal(retest(problem).partials(i, j, list(members)), sums)
        for selection in method.params["selection"].choices:
            count, cmi, permuted = ci_test(problem, i, j, members, open_backend(backend), selection=selection)
            assert count == (sums[1:] <= sums[0]).sum()
            assert cmi == problem.cmi(sums[0])
            np.testing.assert_array_equal(permuted, problem.cmi(sums[1:]))
