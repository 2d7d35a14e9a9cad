"""
Recover a hidden structure
==========================

A tensor is generated from a secret network with six edges between five modes.
`tensorgrow.decompose` sees only the 7,776 numbers and recovers the graph and the ranks.
"""

# %%
# No named format fits this graph: it has two cycles.

import matplotlib.pyplot as plt
import numpy as np

import tensorgrow as tg

hidden = tg.Structure(
    (6,) * 5, {(0, 1): 2, (1, 2): 3, (0, 2): 2, (2, 3): 2, (3, 4): 2, (2, 4): 3}
)
secret = tg.TensorNetwork.random(hidden, random_state=0)
tensor = secret.to_dense().numpy()

# %%
# An error of 1e-8 asks for a network that represents the tensor exactly. The search is
# greedy: it recovers most hidden graphs, but not all of them (the results page counts
# the misses).

result = tg.decompose(tensor, max_error=1e-8, random_state=0)
print(result)
print("hidden:", dict(hidden.ranks))
print("found: ", dict(result.structure.ranks))
assert result.structure == hidden

# %%
# The hidden network and the recovered one.

figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
layout = tg.plotting.choose_layout([hidden, result.structure])
for axis, name, structure in zip(axes, ("hidden", "found"), (hidden, result.structure)):
    tg.plotting.draw_network(structure, axis, layout=layout)
    axis.set_title(name)
plt.show()

# %%
# A tensor train can represent the tensor too, but needs many more numbers.

train = tg.decompose(tensor, max_error=1e-8, edges="chain", random_state=0)
sizes = (result.num_parameters, train.num_parameters, tensor.size)
print("network {:,}, train {:,}, tensor {:,}".format(*sizes))
assert train.num_parameters > result.num_parameters

# %%
# The error falls slowly until all ranks are there, then to rounding.

figure, axis = plt.subplots(figsize=(6, 3.6), layout="constrained")
for name, run in (("any graph", result), ("train", train)):
    sizes, errors = zip(*((p.num_parameters, p.error) for p in run.path))
    axis.loglog(sizes, np.maximum(errors, 1e-16), "o-", label=name)
axis.axvline(hidden.num_parameters, color="grey", linestyle=":", label="hidden size")
axis.set(xlabel="parameters", ylabel="relative error")
axis.legend()
plt.show()
