"""
Decompose an image
==================

A grey photograph of 128x128 pixels becomes a tensor of order 7 with modes of size 4,
and `tensorgrow.decompose` finds a small network within a relative error of 15 %.
"""

# %%
# The photograph ships with matplotlib. Averaging blocks reduces it to 128x128. Read
# column by column, modes 0 to 2 are digits of the row, mode 3 is half a digit of each,
# and modes 4 to 6 are digits of the column.

import matplotlib.pyplot as plt
from matplotlib.cbook import get_sample_data

import tensorgrow as tg

with get_sample_data("grace_hopper.jpg") as file:
    photo = plt.imread(file).mean(2)[:512, :512] / 255.0
picture = photo.reshape(128, 4, 128, 4).mean((1, 3))
tensor, how = tg.tensorize(picture, (4,) * 7, order="F")

# %%
# The search starts at rank one and raises one rank at a time. It says why it stopped
# and what to try next. The default, ``effort="balanced"``, looks further ahead and
# prunes more, and takes longer. Nodes from 7 on are internal: they have no mode of
# their own.

result = tg.decompose(tensor, max_error=0.15, effort="fast", random_state=0)
print(result)
print(result.stop.text)
for (i, j), rank in result.structure.ranks.items():
    print(f"nodes {i} and {j}: rank {rank}")

# %%
# A tensor train with the same error, whose ranks are learned as well, is larger.

train = tg.decompose(
    tensor, max_error=0.15, edges="chain", effort="fast", random_state=0
)
sizes = (result.num_parameters, train.num_parameters, picture.size)
print("network {:,} numbers, train {:,}, picture {:,}".format(*sizes))
assert result.relative_error <= 0.15
assert result.num_parameters < train.num_parameters

# %%
# The result keeps the best network of every size on the way: `Result.at` returns the
# smallest one within a larger error.

figure, axes = plt.subplots(1, 4, figsize=(14, 3.6), layout="constrained")
panels = [("original", picture.size, picture)]
for error in (0.3, 0.2, 0.15):
    network = result.at(max_error=error)
    panels.append(
        (
            f"error {error:g}",
            network.num_parameters,
            tg.detensorize(network, how).numpy(),
        )
    )
for axis, (name, size, values) in zip(axes, panels):
    axis.imshow(values, cmap="gray", vmin=0, vmax=1)
    axis.set_title(f"{name}: {size:,} numbers")
    axis.axis("off")
plt.show()

# %%
# The network and the errors on the way; `Result.report` writes a page about all of
# this.

result.plot(rivals={"tensor train": (train.num_parameters, train.relative_error)})
plt.show()
