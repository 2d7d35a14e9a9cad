"""
Export to quimb
===============

quimb, TensorLy, networkx and einsum all describe the same networks. Here we decompose a
tensor, export the network to quimb, modify it there, and import it again.
"""

# %%
# Values of a function on a grid of 4^6 points.

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import opt_einsum

import tensorgrow as tg

t = np.arange(4) / 4
grid = np.meshgrid(*(t,) * 6, indexing="ij")
tensor = np.exp(-grid[0] * grid[3]) + np.cos(3 * grid[1] * grid[4]) + grid[2] * grid[5]
network = tg.decompose(tensor, max_error=1e-3, random_state=0).network
print(network.structure)

# %%
# The legs are the indices ``k0``, ``k1``, ... in quimb, which contracts the network
# with itself without forming the tensor.

tn = tg.interop.to_quimb(network)
print(tn)
norm = float(np.sqrt((tn.H & tn).contract().real))
print(f"norm in quimb {norm:.12f}, here {network.norm():.12f}")
assert np.isclose(norm, network.norm(), rtol=1e-12)

# %%
# In quimb, cut the ranks of all bonds to two at most. The import restores the order of
# the modes.

compressed = tn.compress_all(max_bond=2, inplace=False)
back = tg.interop.from_quimb(compressed)
change = np.linalg.norm(back.to_dense().numpy() - tensor) / np.linalg.norm(tensor)
print(f"{network.num_parameters} parameters before, {back.num_parameters} after")
print(f"error {change:.3f}")
assert back.structure.dims == network.structure.dims

# %%
# An untouched network comes back as it was, core for core.

again = tg.interop.from_quimb(tn)
assert again.structure == network.structure
assert all(np.array_equal(a, b) for a, b in zip(again.cores, network.cores))

# %%
# The same network as an einsum equation with operands, for opt_einsum and any other
# einsum.

equation, cores = tg.interop.to_einsum(network)
print(equation)
assert np.allclose(
    opt_einsum.contract(equation, *cores), network.to_dense(), rtol=0, atol=1e-12
)

# %%
# And as a networkx graph, which can be analysed and drawn.

graph = tg.interop.to_networkx(network)
print("cycles:", nx.cycle_basis(graph))
figure, axis = plt.subplots(figsize=(4.5, 3.6), layout="constrained")
structure = network.structure
positions = tg.plotting.choose_layout(structure).place(structure).nodes
nx.draw_networkx(graph, positions, ax=axis, node_color="#cfe0f5")
nx.draw_networkx_edge_labels(
    graph, positions, nx.get_edge_attributes(graph, "rank"), ax=axis
)
axis.axis("off")
plt.show()
