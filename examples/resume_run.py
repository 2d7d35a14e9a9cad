"""
Resume a run
============

With `checkpoint` a run stores its state in a file. A run that was killed, interrupted
or stopped can be resumed from there, and ends with the same network as one that was
never stopped.
"""

# %%
# Values of a function on a grid of 6^5 points.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import tensorgrow as tg

grid = np.meshgrid(*(np.linspace(0, 1, 6),) * 5, indexing="ij")
tensor = 1.0 / (0.3 + sum(grid)) + np.sin(6 * grid[0] * grid[3])

# %%
# A callback that returns True stops the first run after six steps. Ctrl-C, a time limit
# or a crash of the machine would do as well: the file is replaced atomically, so there
# is always a valid one.

folder = Path(tempfile.mkdtemp())
settings = {"max_error": 1e-4, "random_state": 0}
first = tg.decompose(
    tensor,
    checkpoint=folder / "run.safetensors",
    callbacks=lambda step: step.index == 5,
    **settings,
)
print("stopped: ", first)
assert first.stop.name == "CALLBACK"

# %%
# The same call resumes the run. The history holds the steps of both calls.

second = tg.decompose(tensor, checkpoint=folder / "run.safetensors", **settings)
print("resumed: ", second)
assert second.stop.name == "TARGET_REACHED"
assert [s.edge for s in second.history[: len(first.history)]] == [
    s.edge for s in first.history
]

# %%
# A run without a stop takes the same steps to the same network.

whole = tg.decompose(tensor, **settings)
print("at once: ", whole)
assert whole.structure == second.structure
assert [s.edge for s in whole.history] == [s.edge for s in second.history]

# %%
# A checkpoint belongs to its run: other data or other limits are refused.

try:
    tg.decompose(2 * tensor, checkpoint=folder / "run.safetensors", **settings)
except tg.OptionError as error:
    print(str(error).replace(str(folder), "..."))

# %%
# Results are saved and loaded as a whole: network, path, history and stop reason.

second.save(folder / "result.safetensors")
again = tg.load(folder / "result.safetensors")
assert again.relative_error == second.relative_error
print("loaded:  ", again)

# %%
# The error after each step. Step 1 is the smallest tree, computed from spectra of the
# tensor. Two growths from rank one follow, each with splits of nodes once the error is
# below the target.

figure, axis = plt.subplots(figsize=(6, 3.4), layout="constrained")
for name, run, style in (("resumed", second, "o-"), ("first run", first, "s")):
    axis.semilogy(
        [s.index for s in run.history],
        [s.relative_error for s in run.history],
        style,
        label=name,
    )
axis.axhline(settings["max_error"], color="grey", linestyle=":", label="target")
axis.set(xlabel="step", ylabel="relative error")
axis.legend()
plt.show()
