"""
Complete a table
================

Four people in five have not seen a given film. A table lists who rated what and when;
`tensorgrow.complete` takes it as it is, with names for labels, and predicts the rest.
"""

# %%
# A table of 60 people, 40 films and 4 seasons, made from tastes: how much someone likes
# action or romance, how much there is of it in a film, and what they prefer in winter.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import tensorgrow as tg

rng = np.random.default_rng(0)
taste, content = rng.uniform(0, 1, (60, 2)), rng.dirichlet((0.6, 0.6), 40)
mood = np.array([[1.2, 0.8], [1.0, 1.0], [0.8, 1.2], [1.0, 1.0]])
scores = 1 + 3.3 * np.einsum("ia,ja,ka->ijk", taste, content, mood)
seen = np.argwhere(rng.random(scores.shape) < 0.2)
seasons = np.array(["winter", "spring", "summer", "autumn"])
ratings = pd.DataFrame(
    {
        "person": 1000 + seen[:, 0],
        "film": [f"film {j}" for j in seen[:, 1]],
        "season": seasons[seen[:, 2]],
        "score": scores[tuple(seen.T)] + 0.2 * rng.standard_normal(len(seen)),
    }
)
print(ratings.head(3).to_string(index=False))

# %%
# The last column is the value, the others are labels. Held-out ratings decide how large
# the network may become.

result = tg.complete(ratings, effort="fast", random_state=0)
print(result)

# %%
# Predictions take labels too: a table, or tuples.

wanted = pd.DataFrame(
    {"person": 1007, "film": ["film 3", "film 8"], "season": "winter"}
)
print(wanted.assign(score=result.predict(wanted)).to_string(index=False))

# %%
# On everything that nobody rated, against the mean of each film.

hidden = np.ones(scores.shape, bool)
hidden[tuple(seen.T)] = False
by_film = ratings.groupby("film")["score"].mean()
mean = np.array([by_film[f"film {j}"] for j in range(40)])[None, :, None]
rows = np.argwhere(hidden)
labels = [(1000 + i, f"film {j}", seasons[k]) for i, j, k in rows]
predicted, true = np.asarray(result.predict(labels)), scores[hidden]
error = float(np.sqrt(np.mean((predicted - true) ** 2)))
plain = float(np.sqrt(np.mean((mean + 0 * scores - scores)[hidden] ** 2)))
print(f"{error:.2f} points off, the mean of each film {plain:.2f}")
assert error < 0.6 * plain

# %%
# Predicted against true scores, and the network.

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
left.plot(true, predicted, ".", alpha=0.3, markersize=3)
left.plot([1, 5], [1, 5], color="grey")
left.set(xlabel="true score", ylabel="predicted score")
tg.plotting.draw_network(result, right)
plt.show()
