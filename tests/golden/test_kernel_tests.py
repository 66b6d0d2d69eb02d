"""p-values of the kernel tests that stay as they are.

Those of KCI are causal-learn's (0.1.4.8, all eigenvalues kept). Those of RCIT and RCoT are of this project's plain
reference: another program draws other random features, and these keep ours what they are on all machines.
"""

import numpy as np
import pytest

from datasets.nonlinear import additive_noise
from gpupc_impl import KernelProblem, methods
from gpupc_impl.backends import open_backend
from gpupc_impl.core.solve import unavailable
from gpupc_impl.kernel.kernel_batched import ci_test

TESTS = [((0, 4), ()), ((0, 4), (1,)), ((0, 4), (1, 2, 3)), ((2, 4), ()), ((2, 4), (0,)), ((2, 4), (0, 1, 3))]
GOLDEN = {
    ("kci", "gamma"): (
        *(4.452489733275389e-05, 4.118959329058036e-06, 2.2370642489888404e-05),
        *(0.26690090070692474, 0.16411579213276517, 0.09906431779427527),
    ),
    ("kci", "spectral"): (0.0, 0.0, 0.0, 0.265, 0.1432, 0.0928),
    ("rcit", "lindsay-pilla-basak"): (
        *(0.0002759889876, 0.00373364293, 0.1099011534),
        *(0.04615292628, 0.01129951283, 0.1553197627),
    ),
    ("rcit", "satterthwaite-welch"): (
        *(9.240588455e-05, 0.002021909346, 0.1179616326),
        *(0.04586184366, 0.01036905999, 0.1705275895),
    ),
    ("rcit", "hall-buckley-eagleson"): (
        *(0.0002261975922, 0.003484339552, 0.1128373076),
        *(0.04784646223, 0.01129519131, 0.1568600594),
    ),
    ("rcot", "lindsay-pilla-basak"): (
        *(0.0002759889876, 0.001392301285, 0.0160503799),
        *(0.04615292628, 0.3380301951, 0.4529494768),
    ),
}
PLACES = [place for place in ("host", "cuda") if unavailable(methods()["kernel-batched"], place) is None]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("form", GOLDEN, ids="-".join)
def test_p_values_stay(form, place):
    test, null = form
    problem = KernelProblem.from_data(additive_noise(5, 150, 1, 0.4).values, test=test, null=null)
    found = [ci_test(problem, *pair, members, open_backend(place))[0] for pair, members in TESTS]
    # The spectral null distribution is a share of draws: one may lie between two sums that differ in their last bits.
    np.testing.assert_allclose(found, GOLDEN[form], rtol=0, atol=1e-3 if null == "spectral" else 1e-8)
