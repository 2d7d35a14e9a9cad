"""
Quantum states to their smallest graph
======================================

`tensorgrow.decompose` takes a network in place of a tensor, and finds a smaller one for
it, graph included, without forming the tensor.
"""

# %%
# A GHZ and a W state of twelve qubits, and the state of a random circuit: quimb keeps
# the latter as a network with a tensor for every gate.

import random

import quimb.tensor as qtn

import tensorgrow as tg

rng = random.Random(0)
circuit = qtn.Circuit(6)
for layer in range(3):
    for qubit in range(6):
        circuit.u3(*(3 * rng.random() for _ in range(3)), qubit)
    for qubit in range(layer % 2, 5, 2):
        circuit.cz(qubit, qubit + 1)

states = {
    "GHZ": qtn.MPS_ghz_state(12),
    "W": qtn.MPS_w_state(12),
    "circuit": circuit.psi,
}
found = {}
for name, state in states.items():
    result = tg.decompose(state, max_error=1e-8, effort="fast", random_state=0)
    given = tg.interop.from_quimb(state).num_parameters
    found[name] = given, result.num_parameters
    print(f"{name}: {given} numbers in quimb, {result.num_parameters} here")
    assert result.relative_error <= 1e-8
