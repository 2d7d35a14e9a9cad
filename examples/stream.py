"""
A stream of traffic days
========================

Every night the counts of another day come in, with gaps. `Result.update` fits the
network of yesterday to them, in a small part of the time of a run from scratch.
"""

# %%
# Cars at 15 places, hour by hour, for five weeks: rush hours whose height depends on
# the place, quiet weekends, and weather that all share. A third of it is missing.

import time

import matplotlib.pyplot as plt
import numpy as np

import tensorgrow as tg

rng = np.random.default_rng(0)
days, hours = np.arange(35), np.arange(24)
morning, evening = (np.exp(-(((hours - h) / 2.5) ** 2)) for h in (8, 17))
place = rng.uniform(50, 400, (15, 3, 1, 1))
workday = np.where(days % 7 < 5, 1.0, 0.4)[:, None]
weather = rng.uniform(0.7, 1.1, (35, 1))
truth = place[:, 0] * workday * morning + place[:, 1] * weather * evening
truth = truth + 0.2 * place[:, 2]
counts = truth + 5 * rng.standard_normal(truth.shape)
counts[rng.random(truth.shape) < 0.33] = np.nan

# %%
# Four weeks to begin with, from scratch.


def off(result: tg.Result, day: int) -> float:
    """Cars per hour that the result is off at the gaps of a day, on average."""
    gaps = np.isnan(counts[:, day])
    return float(np.abs(result.to_array()[:, day] - truth[:, day])[gaps].mean())


begin = time.perf_counter()
result = tg.complete(counts[:, :28], effort="fast", random_state=0)
scratch = time.perf_counter() - begin
print(f"four weeks from scratch: {result}")

# %%
# Then one day after the other. The arrays grow at their end; the new slice of the
# network begins as the mean of the others. Ranks grow where held-out counts say so.

taken, errors = [], []
for day in range(28, 35):
    begin = time.perf_counter()
    result = result.update(counts[:, : day + 1], effort="fast", random_state=0)
    taken.append(time.perf_counter() - begin)
    errors.append(off(result, day))
print(f"a day: {np.median(taken):.2f} s instead of {scratch:.1f} s")
print(f"{np.mean(errors):.1f} cars off at gaps of the new days")

# %%
# The last network against one that has seen all five weeks at once.

fresh = tg.complete(counts, effort="fast", random_state=0)
streamed = float(np.mean([off(result, day) for day in days]))
at_once = float(np.mean([off(fresh, day) for day in days]))
print(f"five weeks: {streamed:.2f} cars off day by day, {at_once:.2f} at once")

# %%
# Whoever keeps only four weeks drops a day for every new one: ``forget={1: 1}``, or
# nothing to say where the data has dates for labels. And where only the counts of the
# day are at hand, the network stands for the days before: ``result.update(today)``.

window = result.update(counts[:, 7:], forget={1: 7}, random_state=0)
print(f"the last four weeks: {window}")

figure, axis = plt.subplots(figsize=(9, 3.4), layout="constrained")
last = slice(32, 35)
axis.plot(counts[3, last].ravel(), ".", color="grey", label="counts")
axis.plot(truth[3, last].ravel(), color="lightgrey", label="truth")
axis.plot(result.to_array()[3, last].ravel(), label="network, day by day")
axis.set(xlabel="hour of the last three days", ylabel="cars per hour")
axis.legend(ncols=3)
plt.show()
