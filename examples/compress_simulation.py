"""
Compress a simulation
=====================

A plume of heat is carried by a wind and spreads. The field over space and time has
32,768 values. `tensorgrow.decompose` keeps it to 1 % in a small fraction of the bytes,
and single values can be read without unpacking anything.
"""

# %%
# The solution of the advection-diffusion equation for two sources, on a grid of 16 x 16
# x 16 points at 8 times, in single precision as simulations store it.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import tensorgrow as tg

x, y, z = np.meshgrid(*(np.linspace(0, 1, 16),) * 3, indexing="ij")
times = np.linspace(0.1, 0.8, 8)


def plume(t: float, source: tuple[float, float, float]) -> np.ndarray:
    """Heat released at time 0, carried along x and slowly upwards."""
    width = 0.02 + 0.05 * t
    away = (x - source[0] - 0.6 * t) ** 2 + (y - source[1]) ** 2
    away += 2 * (z - source[2] - 0.1 * t) ** 2
    return np.exp(-away / (2 * width)) / width**1.5


sources = [(0.1, 0.3, 0.2), (0.3, 0.7, 0.5)]
field = np.stack([sum(plume(t, s) for s in sources) for t in times], axis=-1)
field = field.astype(np.float32)

# %%
# Within 1 % of the norm of the field. The methods of fixed shape reach the same error
# with more numbers: Tucker by truncated SVDs of all modes, a tensor train by SVDs in
# turn.

result = tg.decompose(field, max_error=0.01, effort="fast", random_state=0)
tucker = tg.baselines.hosvd(field, max_error=0.01)
train = tg.baselines.tt_svd(field, max_error=0.01)
for name, run in (("tensorgrow", result), ("Tucker", tucker), ("tensor train", train)):
    ratio = field.nbytes / run.num_bytes
    print(f"{name:12} {run.num_bytes:7,} bytes, {ratio:4.0f} times smaller")
assert result.num_parameters < min(tucker.num_parameters, train.num_parameters)

# %%
# One file holds the network. A probe in the flow reads entries of the network directly:
# here the temperature over time at one point.

path = Path(tempfile.mkdtemp()) / "plume.safetensors"
result.network.save(path)
network = tg.load(path)
print(f"{field.nbytes:,} bytes of data, {path.stat().st_size:,} bytes of file")
probe = [(11, 5, 5, t) for t in range(len(times))]
read = np.asarray(network.entries(probe))

# %%
# A slice through both plumes, and the probe.

figure, axes = plt.subplots(1, 4, figsize=(13, 3.2), layout="constrained")
recovered = np.asarray(network.to_dense())
for axis, name, values in zip(axes, ("simulation", "network"), (field, recovered)):
    axis.imshow(values[:, :, 5, 3].T, origin="lower", cmap="inferno")
    axis.set_title(name)
    axis.axis("off")
axes[2].plot(times, field[11, 5, 5], "o", label="simulation")
axes[2].plot(times, read, "-", label="network")
axes[2].set(xlabel="time", ylabel="temperature")
axes[2].legend()
tg.plotting.draw_network(result, axes[3])
plt.show()
