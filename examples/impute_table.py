"""
Fill in a table
===============

Three values of ten are missing in a table of patients. We fill them in by a network,
compare that with the imputers of scikit-learn, and use it in a pipeline.
"""

# %%
# The diabetes data of scikit-learn: 442 patients, ten measurements. We know the truth,
# and hide 30 % of it.

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.exceptions import ConvergenceWarning
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

import tensorgrow as tg

table, target = load_diabetes(return_X_y=True)
table = table / table.std(0)
hidden = np.random.default_rng(0).random(table.shape) < 0.3
gaps = np.where(hidden, np.nan, table)

# %%
# Each imputer sees half of the patients, and fills in the others, whom it has never
# seen.

warnings.simplefilter("ignore", ConvergenceWarning)  # of the regressions
imputers = {
    "means": SimpleImputer(),
    "neighbours": KNNImputer(),
    "regressions": IterativeImputer(random_state=0),
    "network": tg.TNImputer(),
}
errors = {}
for name, imputer in imputers.items():
    filled = imputer.fit(gaps[::2]).transform(gaps[1::2])
    errors[name] = float(np.sqrt(np.mean((filled - table[1::2])[hidden[1::2]] ** 2)))
    print(f"{name}: error {errors[name]:.3f} standard deviations")

# %%
# It is a transformer like any other.

for name, imputer in imputers.items():
    score = cross_val_score(make_pipeline(imputer, Ridge()), gaps, target, cv=3).mean()
    print(f"{name}: the regression after it explains {score:.1%} of the variance")

plt.bar(list(errors), list(errors.values()), color=["0.7", "0.7", "0.7", "C0"])
plt.ylabel("error of hidden values")
plt.show()
