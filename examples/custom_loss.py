"""
Learn with a loss of your own
=============================

A single measurement of power has multiplicative noise: every value is the true power
times an exponential random number. Its likelihood (Whittle's) is neither a squared
error nor one of the losses of `tensorgrow.complete`. `tensorgrow.learn` takes it as a
function of the network.
"""

# %%
# The logarithm of the power is a small network, a tensor ring over 6x6x6x6, and each
# power is measured once.

import math

import matplotlib.pyplot as plt
import torch

import tensorgrow as tg

dims = (6, 6, 6, 6)
truth = tg.TensorNetwork.random(
    tg.Structure.tensor_ring(dims, 2), random_state=3
).to_dense()
truth = 2 * truth / truth.std()
noise = torch.distributions.Exponential(torch.tensor(1.0, dtype=torch.float64))
torch.manual_seed(0)
power = truth.exp() * noise.sample(dims)

# %%
# The entries of the network are logarithms of powers. A tenth of the entries is held
# out for the score that chooses edges and decides when to stop.

held_out = torch.rand(dims) < 0.1


def whittle(log_power: torch.Tensor, where: torch.Tensor) -> torch.Tensor:
    """Negative log-likelihood per entry; clamped, lest a bad first step overflow."""
    values = log_power[where].clamp(-20, 20)
    return (values + power[where] * torch.exp(-values)).mean()


result = tg.learn(
    lambda network: whittle(network.to_dense(), ~held_out),
    dims,
    validation=lambda network: whittle(network.to_dense(), held_out),
    max_steps=5,
    effort="fast",
    dtype=torch.float64,
    random_state=0,
)
print(result.stop.name, result.structure)

# %%
# Without a model, the estimate is the logarithm of the measurements, corrected for the
# mean of the noise (minus Euler's constant). The network is several times closer to the
# truth.

EULER = 0.5772156649
plain = (power.log() + EULER - truth).square().mean().sqrt()
learned = (result.network.to_dense() - truth).square().mean().sqrt()
print(f"error of the log power: {plain:.2f} measured, {learned:.2f} learned")
print(f"{result.num_parameters} parameters for {power.numel():,} measurements")
assert learned < plain / 3

# %%
# One slice of the tensor, in decibels.

figure, axes = plt.subplots(1, 3, figsize=(10, 3.4), layout="constrained")
for axis, name, values in zip(
    axes,
    ("measured", "learned", "truth"),
    (power.log(), result.network.to_dense(), truth),
):
    axis.imshow((values[0, :, :, 0] * 10 / math.log(10)).numpy(), vmin=-20, vmax=20)
    axis.set_title(name)
    axis.axis("off")
plt.show()
