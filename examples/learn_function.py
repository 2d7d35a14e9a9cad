"""
A function of eight variables
=============================

A physical model is costly to run, and its variables come in no particular order.
`tensorgrow.approximate` chooses where to run it, finds out which variables belong
together, and returns a network that answers everywhere.
"""

# %%
# Four oscillators in a chain, two variables each, listed in a random order. Nobody
# tells the search which variables are neighbours.

import matplotlib.pyplot as plt
import numpy as np

import tensorgrow as tg

rng = np.random.default_rng(0)
order = rng.permutation(8)
calls = []


def energy(x: np.ndarray) -> np.ndarray:
    """Springs between neighbours, as an array of values for an array of points."""
    calls.append(len(x))
    q = x[:, order]
    return np.sum(np.cosh(q[:, 1:] - q[:, :-1] ** 2), 1) + 0.1 * np.sum(q**2, 1)


# %%
# Twelve points per variable: 430 million values.

grid = np.linspace(-1, 1, 12)
result = tg.approximate(energy, [grid] * 8, max_error=1e-4, random_state=0)
evaluations = result.info["evaluations"]
print(f"{evaluations:,} evaluations of {12**8:,}, {result.num_parameters:,} parameters")
print(f"error on random points: {result.validation_error:.1e}")

# %%
# Points on the grid that it has never seen:

points = grid[rng.integers(0, 12, (2000, 8))]
values = energy(points)
error = np.linalg.norm(result.predict(points) - values) / np.linalg.norm(values)
print(f"error on 2,000 others: {error:.1e}")

# %%
# The mean over six variables is a sum over the network. What remains is a function
# of two.

pair = sorted((int(order[3]), int(order[4])))
mean = np.asarray(result.network.marginal(pair)) / 12.0**6
plt.imshow(mean, extent=(-1, 1, -1, 1), origin="lower")
plt.colorbar(label="mean energy")
plt.xlabel("one variable")
plt.ylabel("its neighbour")
plt.show()

# %%
# The cost of every step, and what it was worth:

steps = result.info["evaluations_by_step"]
plt.loglog(steps, [s.validation_error for s in result.history], "o-")
plt.xlabel("evaluations")
plt.ylabel("error on random points")
plt.show()
