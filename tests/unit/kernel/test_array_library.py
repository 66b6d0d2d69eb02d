"""The batches with arrays of a device: NumPy under CuPy's rules that no array of the host meets one of the device."""

import contextlib
import types

import numpy as np
import pytest

from gpupc_impl import KernelProblem
from gpupc_impl.backends import open_backend
from gpupc_impl.kernel.kernel_batched import open_tests
from gpupc_impl.regression.problem import RegressionProblem
from gpupc_impl.regression.regression_batched import RegressionTests


class DeviceArray(np.ndarray):
    """An array that only computes with its like and with numbers."""

    def __array_ufunc__(self, ufunc, method, *inputs, out=(), **options):
        outcome = compute(getattr(ufunc, method), inputs, options | ({"out": out} if out else {}))
        return out[0] if out else outcome

    def __array_function__(self, function, kinds, inputs, options):
        return compute(function, inputs, options)

    def __getitem__(self, index):
        refuse_host_arrays(index if isinstance(index, tuple) else (index,))
        return np.asarray(super().__getitem__(index)).view(DeviceArray)

    def __setitem__(self, index, value):
        refuse_host_arrays((*(index if isinstance(index, tuple) else (index,)), value))
        super().__setitem__(index, value)


def compute(function, inputs, options):
    """NumPy's function of the device's arrays."""
    refuse_host_arrays((*inputs, *options.values()))
    outcome = function(*plain(inputs), **{name: plain(value) for name, value in options.items()})
    return outcome.view(DeviceArray) if isinstance(outcome, np.ndarray) else outcome


def plain(values):
    """The values with the device's arrays as NumPy's."""
    if isinstance(values, (tuple, list)):
        return type(values)(map(plain, values))
    return values.view(np.ndarray) if isinstance(values, DeviceArray) else values


def refuse_host_arrays(values):
    for value in values:
        if isinstance(value, (tuple, list)):
            refuse_host_arrays(value)
        elif isinstance(value, np.ndarray) and value.ndim and not isinstance(value, DeviceArray):
            raise TypeError(f"an array of the host, {value.dtype} {value.shape}, among arrays of the device")


def device_library() -> types.SimpleNamespace:
    """NumPy's functions by name, with arrays of the device."""

    def on_device(function):
        return lambda *values, **options: np.asarray(function(*values, **options)).view(DeviceArray)

    made = ("asarray", "empty", "zeros", "ones", "full", "eye", "arange")
    makers = {name: on_device(getattr(np, name)) for name in made}
    return types.SimpleNamespace(**{name: getattr(np, name) for name in np.__all__} | makers)


DATA = np.random.default_rng(0).standard_normal((50, 6))
PROBLEMS = {
    "rcit": lambda: (KernelProblem.from_data(DATA, test="rcit"), open_tests),
    "rcot": lambda: (KernelProblem.from_data(DATA, test="rcot", weights="published"), open_tests),
    "kci": lambda: (KernelProblem.from_data(DATA, test="kci"), open_tests),
    "regression": lambda: (
        RegressionProblem.from_data(np.where([0, 1, 1, 1, 0, 1], DATA, np.digitize(DATA, [0])), categories="V0,V4"),
        RegressionTests,
    ),
    "logistic": lambda: (RegressionProblem.from_data(np.digitize(DATA, [0]), categories="V3,V4,V5"), RegressionTests),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_arrays_of_a_device_give_the_hosts_p_values(name, monkeypatch):
    problem, open_tests = PROBLEMS[name]()
    sets = [np.array([range(level), range(1, level + 1)], int) for level in range(3)]
    tests = np.array([(k, i, j) for k in (0, 1) for i, j in ((3, 4), (4, 5), (3, 5))])
    expected = [open_tests(problem, open_backend("host")).p_values(own, tests) for own in sets]
    backend = open_backend("host")
    monkeypatch.setattr(backend, "array_library", lambda: contextlib.nullcontext(device_library()))
    monkeypatch.setattr(backend, "download", lambda array: np.array(array, subok=False))
    found = [open_tests(problem, backend).p_values(own, tests) for own in sets]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)


def test_the_stand_in_refuses_what_cupy_refuses():
    on_device = device_library().zeros(3)
    stack = lambda: np.stack([on_device, np.ones(3)])  # noqa: E731
    for work in (lambda: on_device + np.ones(3), lambda: on_device[np.array([0])], stack):
        with pytest.raises(TypeError, match="an array of the host"):
            work()
