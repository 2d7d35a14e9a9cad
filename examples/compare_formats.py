"""
Compare with fixed formats
==========================

CP, Tucker and the tensor train are networks of a fixed shape. On the same tensor, at
the same error, how many numbers does each of them need?
"""

# %%
# A function of six variables, whose variables interact in pairs that no order on a line
# keeps together.

import matplotlib.pyplot as plt
import numpy as np

import tensorgrow as tg

t = np.linspace(0, 1, 5)
a, b, c, d, e, f = np.meshgrid(*(t,) * 6, indexing="ij")
tensor = np.exp(-2 * a * d) * (1 + np.sin(3 * b * e)) + np.cos(2 * c * f) * np.exp(
    -a * f
)

# %%
# All methods stop at the same error; CP gives up after a second. The baselines return
# the same kind of result.

target = 1e-3
ours = tg.decompose(tensor, max_error=target, effort="fast", random_state=0)
rivals = {
    "TT-SVD": tg.baselines.tt_svd(tensor, max_error=target),
    "Tucker": tg.baselines.hosvd(tensor, max_error=target),
    "CP": tg.baselines.cp(tensor, max_error=target, max_seconds=1, random_state=0),
}
for name, run in {"tensorgrow": ours, **rivals}.items():
    print(f"{name:10} {run.num_parameters:6,} numbers, error {run.relative_error:.1e}")
reached = [run for run in rivals.values() if run.relative_error <= target]
assert all(ours.num_parameters < run.num_parameters for run in reached)

# %%
# The graph that was found, and the error at every size on the way. `Result.report`
# takes the same `rivals` and writes a page with them.

ours.plot(rivals=rivals)
plt.show()
