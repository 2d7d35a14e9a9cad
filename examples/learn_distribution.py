"""
Learn a distribution
====================

Six yes-or-no answers follow two hidden rules. `tensorgrow.learn_density` learns their
joint distribution from samples; the edges of the network show which answers depend on
each other.
"""

# %%
# The third answer is yes if the first two are, and the last is a noisy copy of the
# fifth.

import matplotlib.pyplot as plt
import numpy as np

import tensorgrow as tg

rng = np.random.default_rng(0)
answers = rng.integers(0, 2, (2000, 6))
answers[:, 2] = answers[:, 0] & answers[:, 1]
answers[:, 5] = np.where(rng.random(2000) < 0.9, answers[:, 4], answers[:, 5])

# %%
# Likelihoods are exact, in nats per sample. A model of independent answers has the sum
# of the entropies of each.

result = tg.learn_density(answers, effort="fast", random_state=0)
yes = answers.mean(0)
alone = -(yes * np.log(yes) + (1 - yes) * np.log(1 - yes)).sum()
print(f"{result.validation_nll:.3f} nats on held-out samples")
print(f"{alone:.3f} nats if all were independent")
assert result.validation_nll < alone - 0.5

# %%
# The model answers questions: what is the third answer when the first two are yes, and
# what if only the first is?

for known in ({0: 1, 1: 1}, {0: 1, 1: 0}):
    probabilities = np.asarray(result.model.conditional(known, [2]))
    print(known, "then yes with probability", probabilities[1].round(3))

# %%
# New samples follow the rules.

drawn = np.asarray(result.model.sample(1000, random_state=1))
follows = (drawn[:, 2] == drawn[:, 0] & drawn[:, 1]).mean()
print(f"{follows:.1%} of new samples follow the first rule")
assert follows > 0.9

# %%
# The graph holds the edges of both rules. Another one may join in, whose gain on the
# held-out samples was chance.

ax = tg.plotting.draw_network(result.structure)
ax.set_title("which answers depend on each other")
plt.show()
