"""
Add snapshots of a simulation
=============================

A simulation keeps each snapshot as a small network and drops the field. Later we want
the mean over time, its variance, and one small network over space and time. All of this
is arithmetic with the networks: no field is unpacked.
"""

# %%
# Two plumes of heat are carried by a wind and spread, on a grid of 16 x 16 x 16 points.
# Every snapshot is decomposed to an error of 0.1 % when it comes.

import matplotlib.pyplot as plt
import numpy as np

import tensorgrow as tg

x, y, z = np.meshgrid(*(np.linspace(0, 1, 16),) * 3, indexing="ij")


def snapshot(t: float) -> np.ndarray:
    """Heat released at time 0 at two places; the wind along x is stronger above."""
    width = 0.02 + 0.02 * t
    total = np.zeros_like(x)
    for source in ((0.1, 0.3, 0.2), (0.2, 0.7, 0.5)):
        away = (x - source[0] - 0.4 * t * (0.5 + z)) ** 2 + (y - source[1]) ** 2
        total += np.exp(-(away + 2 * (z - source[2]) ** 2) / (2 * width)) / width**1.5
    return total / 100


times = np.linspace(0.0, 1.0, 5)
networks = [
    tg.decompose(snapshot(t), max_error=1e-3, effort="fast", random_state=0).network
    for t in times
]
for t, network in zip(times, networks):
    print(f"t = {t:.2f}: {network.num_parameters} parameters for {x.size:,} values")

# %%
# Sums, products and multiples of networks are networks. The result has the edges of all
# its terms, whatever graph each snapshot has.

mean = sum(networks) / len(networks)
variance = sum(n * n for n in networks) / len(networks) - mean * mean
change = networks[-1] - networks[0]
print("mean:", mean.structure)

# %%
# Sums over modes are smaller networks, and in the end numbers: the profile of the mean
# over height, and the heat that is left in the box.

profile = np.asarray(mean.mean([0, 1]))
for t, network in zip(times, networks):
    print(f"t = {t:.2f}: mean temperature {network.mean():.4f}")

# %%
# One network over space and time: each snapshot times the unit vector of its time.

instants = tg.Structure.rank_one([len(times)])
film = sum(
    network.outer(tg.TensorNetwork(instants, [np.eye(len(times))[k]]))
    for k, network in enumerate(networks)
)
print(film.shape, "with", film.num_parameters, "parameters")
assert np.allclose(film[..., 2], networks[2], atol=1e-9)

# %%
# Ranks add with every term, more than the film needs. `tensorgrow.decompose` takes the
# network, and finds a smaller one without the tensor.

rounded = tg.decompose(film, max_error=1e-3, effort="fast", random_state=0)
print(
    f"rounded: {rounded.num_parameters} parameters, error {rounded.relative_error:.1e}"
)

# %%
# The fields, which we still have here, agree within the error of the snapshots.

fields = np.stack([snapshot(t) for t in times])
off = {}
for name, network, exact in (
    ("mean", mean, fields.mean(0)),
    ("variance", variance, fields.var(0)),
    ("change", change, fields[-1] - fields[0]),
):
    off[name] = np.linalg.norm(np.asarray(network) - exact) / np.linalg.norm(exact)
    print(f"{name}: relative error {off[name]:.1e}")

figure, axes = plt.subplots(1, 3, figsize=(8.4, 2.8), layout="constrained")
for axis, network, name in zip(axes, (mean, variance, change), off):
    shown = axis.imshow(np.asarray(network[:, :, 6]).T, origin="lower", cmap="magma")
    figure.colorbar(shown, ax=axis, shrink=0.8)
    axis.set_title(f"{name} at one height", fontsize=9)
    axis.set(xticks=[], yticks=[])
plt.show()
