"""
Faulty sensors
==============

Half of the readings of a network of thermometers are missing, and one in twenty of the
others is nonsense. Squared errors chase the nonsense; `loss="absolute"` tells
`tensorgrow.complete` to ignore it.
"""

# %%
# Temperatures at 15 stations on 20 days, hour by hour: a daily wave whose strength
# depends on the station, and weather that all stations share.

import matplotlib.pyplot as plt
import numpy as np

import tensorgrow as tg

rng = np.random.default_rng(0)
station, day = rng.uniform(0.5, 1.5, (15, 1, 1)), np.arange(20)[:, None]
hour = np.arange(24)
weather = np.cumsum(rng.standard_normal((20, 1)), axis=0)
truth = 12 + weather + 5 * station * np.sin(2 * np.pi * (hour - 9) / 24)
readings = truth + 0.2 * rng.standard_normal(truth.shape)
broken = rng.random(truth.shape) < 0.05
readings[broken] = rng.uniform(-60, 60, broken.sum())
readings[rng.random(truth.shape) < 0.5] = np.nan

# %%
# The same call with two losses.

robust = tg.complete(readings, loss="absolute", effort="fast", random_state=0)
squares = tg.complete(readings, effort="fast", random_state=0)
estimates = {"absolute": robust.to_array(), "squares": squares.to_array()}
off = {}
for name, estimate in estimates.items():
    off[name] = float(np.abs(np.asarray(estimate) - truth).mean())
    print(f"{name}: {off[name]:.2f} degrees off on average")
assert off["absolute"] < 0.5 * off["squares"]

# %%
# One station for five days. The estimate passes the nonsense by, and fills the gaps.

some = slice(0, 5)
figure, axis = plt.subplots(figsize=(9, 3.4), layout="constrained")
axis.plot(readings[3, some].ravel(), ".", color="grey", label="readings")
for name, estimate in estimates.items():
    axis.plot(np.asarray(estimate)[3, some].ravel(), label=name)
axis.set(xlabel="hour", ylabel="degrees", ylim=(-15, 40))
axis.legend(ncols=3)
plt.show()
