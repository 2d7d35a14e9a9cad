"""
Complete a photo
================

Two fifths of the values of a small photograph are known. `tensorgrow.complete` fills in
the rest: it chooses graph, ranks and regularisation by the error on values that it
holds out. Interpolation between known neighbours is the rival to beat.
"""

# %%
# The photograph ships with matplotlib. The missing values are NaN.

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.cbook import get_sample_data

import tensorgrow as tg

with get_sample_data("grace_hopper.jpg") as file:
    photo = plt.imread(file)[:512, :512] / 255.0
picture = photo.reshape(64, 8, 64, 8, 3).mean((1, 3))
mask = np.random.default_rng(0).random(picture.shape) < 0.4
known = np.where(mask, picture, np.nan)

# %%
# Rows and columns are cut into digits, blocks of eight and the place inside, so that
# the network can share what repeats; `tensorize="auto"` chooses the digits itself. Two
# networks are grown with the borders of their blocks at different places, and averaged.
# This example stops after nine steps, before the held-out error has stopped falling.
# The original is passed as `truth` only to measure the error on the hidden values. In
# practice only the held-out error is known.

result = tg.complete(
    known,
    tensorize=[(8, 8), (8, 8), (3,)],
    members=2,
    truth=picture,
    max_steps=9,
    effort="fast",
    random_state=0,
)
print(result)
print(
    f"held-out error {result.validation_error:.3f}, true error {result.test_error:.3f}"
)

# %%
# Linear interpolation sees each colour alone; the network knows that they go together.

rival = tg.baselines.interpolate(known)
unseen = picture[~mask]
rival_error = np.linalg.norm(rival[~mask] - unseen) / np.linalg.norm(unseen)
print(f"error of linear interpolation {rival_error:.3f}")
assert result.test_error < rival_error

# %%
# Observed values are kept; the others come from the networks.

filled = result.fill(known)
panels = {
    "original": picture,
    "40 % of the values": np.nan_to_num(known),
    f"linear interpolation: {rival_error:.3f}": rival,
    f"completed: {result.test_error:.3f}": filled,
}
figure, axes = plt.subplots(1, 4, figsize=(13, 3.7), layout="constrained")
for axis, (name, values) in zip(axes, panels.items()):
    axis.imshow(values.clip(0, 1))
    axis.set_title(name)
    axis.axis("off")
plt.show()
