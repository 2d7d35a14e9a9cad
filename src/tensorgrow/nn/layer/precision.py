"""Networks for weights, exact enough as they are stored: in the precision of the weight."""

from __future__ import annotations

import math

import torch

from ...errors import OptionError, check_positive
from ...network import RandomState, TensorNetwork
from ...tasks.decompose import decompose


def network_within(tensor: torch.Tensor, max_error: float, random_state: RandomState) -> TensorNetwork:
    """A network whose relative error is at most this as it is stored: in the precision of the tensor."""
    check_positive("max_error", max_error)
    exact = tensor.double()
    size = float(exact.norm()) or 1.0
    rough = tensor if max_error > 1e-4 else exact  # single precision may stop short of smaller errors
    goal, init, error = max_error, None, math.inf
    for _ in range(3):  # seldom more than once
        found = decompose(rough, max_error=goal, init=init, random_state=random_state, progress=False)
        stored = found.network.to(dtype=tensor.dtype).to(dtype=exact.dtype)
        error = float((stored.to_dense() - exact).norm()) / size
        if error <= max_error:
            return found.network
        if found.relative_error > goal:  # it stopped short, and goes on
            init = found.network
            continue
        left = max_error**2 - (error**2 - found.relative_error**2)  # by rounding, which has a share of it
        if left <= 0:
            break
        goal, init = 0.95 * math.sqrt(left), None
    raise OptionError(
        f"max_error={max_error} is not reached: a network for this weight, stored as {tensor.dtype}, has an "
        f"error of {error:.3g}. Raise max_error, or make a more precise layer first, such as layer.double()"
    )
