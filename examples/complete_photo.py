"""
Complete a photo
================

Two fifths of the pixels of a photograph are known. `tensorgrow.complete` fills in the
rest: it chooses graph, ranks and regularisation by the error on pixels that it holds
out.
"""

# %%
# The photograph ships with matplotlib. Rows and columns are folded into 8 blocks of 16
# each: a tensor of order 4. The missing pixels are NaN.

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.cbook import get_sample_data

import tensorgrow as tg

with get_sample_data("grace_hopper.jpg") as file:
    photo = plt.imread(file).mean(2)[:512, :512] / 255.0
picture = photo.reshape(128, 4, 128, 4).mean((1, 3))
tensor = picture.reshape(8, 16, 8, 16)
mask = np.random.default_rng(0).random(tensor.shape) < 0.4
known = np.where(mask, tensor, np.nan)

# %%
# This example stops after 18 steps, before the held-out error has stopped falling. The
# original is passed as `truth` only to measure the error on the unseen pixels. In
# practice only the held-out error is known.

result = tg.complete(known, truth=tensor, max_steps=18, effort="fast", random_state=0)
print(result)
print(
    f"held-out error {result.validation_error:.3f}, true error {result.test_error:.3f}"
)

# %%
# Filling in the mean of the known pixels gives a far larger error.

unseen = tensor[~mask]
mean_error = np.linalg.norm(unseen - tensor[mask].mean()) / np.linalg.norm(unseen)
print(f"error of the mean {mean_error:.3f}")
assert result.test_error < 0.6 * mean_error

# %%
# Observed pixels are kept; the others come from the network.

filled = result.fill(known)
panels = {
    "40 % of the pixels": known,
    f"completed: {result.num_parameters:,} numbers": filled,
    "original": tensor,
}
figure, axes = plt.subplots(1, 3, figsize=(11, 3.8), layout="constrained")
for axis, (name, values) in zip(axes, panels.items()):
    axis.imshow(np.reshape(values, picture.shape), cmap="gray", vmin=0, vmax=1)
    axis.set_title(name)
    axis.axis("off")
plt.show()
