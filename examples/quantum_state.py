"""
A quantum state
===============

The ground state of a ring of eight spins has 256 amplitudes. `tensorgrow.decompose`
finds a network for it whose edges show which spins are entangled.
"""

# %%
# The transverse-field Ising model on a ring, at its critical point: neighbouring spins
# want to be equal, a field flips them. Exact diagonalisation gives the ground state.

import matplotlib.pyplot as plt
import numpy as np
from scipy.sparse import diags, eye_array, kron
from scipy.sparse.linalg import eigsh

import tensorgrow as tg

spins = 8
flip = np.array([[0.0, 1.0], [1.0, 0.0]])
signs = 1 - 2 * ((np.arange(2**spins)[:, None] >> np.arange(spins)[::-1]) & 1)
bonds = sum(signs[:, k] * signs[:, (k + 1) % spins] for k in range(spins))


def at_site(k: int):
    """The flip of spin k, as a sparse matrix over all states."""
    return kron(kron(eye_array(2**k), flip), eye_array(2 ** (spins - 1 - k)))


hamiltonian = -diags(bonds.astype(float)) - sum(at_site(k) for k in range(spins))
energy, vectors = eigsh(hamiltonian.tocsc(), 1, which="SA", v0=np.ones(2**spins))
state = vectors[:, 0].reshape((2,) * spins)

# %%
# A matrix product state is a chain and has to carry the bond that closes the ring
# through its whole length. Without a given graph, the search is free to close it.

common = {"max_error": 1e-2, "effort": "fast", "random_state": 0}
free = tg.decompose(state, **common)
chain = tg.decompose(state, edges="chain", **common)
print(
    f"{free.num_parameters} numbers, chain {chain.num_parameters}, {state.size} states"
)
assert free.num_parameters <= chain.num_parameters

# %%
# The energy of the compressed state is an upper bound, and close.

small = np.asarray(free.network.to_dense()).ravel()
found = float(small @ (hamiltonian @ small) / (small @ small))
print(f"energy {energy[0]:.6f}, of the network {found:.6f}")
assert energy[0] <= found < energy[0] + 0.01

# %%
# Entanglement between the first spins and the rest, from the singular values of each
# cut. On a ring it rises and falls again.


def entropy(tensor: np.ndarray, cut: int) -> float:
    """Von Neumann entropy of the first spins, in bits."""
    values = np.linalg.svd(tensor.reshape(2**cut, -1), compute_uv=False) ** 2
    values = values[values > 1e-15] / values.sum()
    return float(-(values * np.log2(values)).sum())


cuts = range(1, spins)
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
tg.plotting.draw_network(free, left)
right.plot(cuts, [entropy(state, k) for k in cuts], "o", label="exact")
right.plot(cuts, [entropy(small, k) for k in cuts], "-", label="network")
right.set(xlabel="spins on the left of the cut", ylabel="entropy (bits)")
right.legend()
plt.show()
