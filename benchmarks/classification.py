"""How accurate is a learned network on products of features, beside other classifiers and fixed chains?

Data sets that come with scikit-learn, in stratified 5-fold cross-validation (`--repeats` times for the small
ones, once for the digits), and MNIST averaged down to 7x7 (the first `--train` training pictures, all 10,000
test pictures). `TNClassifier` with its defaults; the same with `structure=` a chain of one rank with the
classes in its middle: same features, same linear start, same ridge and training, but no growth; logistic
regression and a support vector machine with RBF kernel on standardised features, their weight chosen by
cross-validation on the training samples. While the defaults were designed, scores of other splits of digits,
iris, moons, clusters and wine were looked at, and the first three folds of wine and all of iris in this one.
"""

from __future__ import annotations

import argparse
import importlib.util
from itertools import pairwise
from pathlib import Path
from typing import Any

from _common import (
    Case,
    Row,
    data_folder,
    make_parser,
    mean,
    open_results,
    print_table,
    run_cases,
    stopwatch,
)

# isort: split
import numpy as np

import tensorgrow as tg
from tensorgrow.data.features import FeatureMap
from tensorgrow.experiments.mnist import read_idx

SMALL = ("iris", "wine", "breast_cancer", "moons", "clusters")
PARTS = (*SMALL, "digits", "mnist")
# Ranks of the fixed chains.
RANKS = {"digits": (10,), "mnist": (10,)}
SMALL_RANKS = (4,)
FOLDS = 5
SIDE = 7
WEIGHTS = {"logistic": [0.01, 0.1, 1.0, 10.0, 100.0], "svm": [0.1, 1.0, 10.0, 100.0]}


def table(name: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Samples and labels; the artificial ones are drawn anew for every repeat."""
    from sklearn import datasets

    if name == "moons":
        return datasets.make_moons(400, noise=0.25, random_state=seed)
    if name == "clusters":
        return datasets.make_classification(
            600, 20, n_informative=6, n_redundant=4, n_classes=3, random_state=seed
        )
    return getattr(datasets, f"load_{name}")(return_X_y=True)


def data(params: Row) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training and test samples, then training and test labels."""
    from sklearn.model_selection import StratifiedKFold

    if params["data"] != "mnist":
        x, y = table(params["data"], params["seed"])
        split = StratifiedKFold(FOLDS, shuffle=True, random_state=100 + params["seed"]).split(x, y)
        train, test = list(split)[params["fold"]]
        return x[train], x[test], y[train], y[test]
    folder = Path(params["folder"]) / "mnist"

    def small(name: str) -> np.ndarray:
        pictures = read_idx(folder / f"{name}-images-idx3-ubyte.gz").astype(np.float32)
        block = 28 // SIDE
        return pictures.reshape(-1, SIDE, block, SIDE, block).mean((2, 4)).reshape(-1, SIDE * SIDE)

    count = params["train"]
    labels = [read_idx(folder / f"{n}-labels-idx1-ubyte.gz") for n in ("train", "t10k")]
    return small("train")[:count], small("t10k"), labels[0][:count], labels[1]


def chain(features: int, map_size: int, classes: int, rank: int) -> tg.Structure:
    """The features in a row, the classes in the middle, one rank; at the ends what the legs can carry."""
    middle = features // 2
    row = [*range(middle), features, *range(middle, features)]
    ranks = {}
    for cut, (i, j) in enumerate(pairwise(row), 1):
        most = map_size ** min(cut if cut <= middle else features + 1 - cut, 20)
        ranks[min(i, j), max(i, j)] = min(rank, most)
    return tg.Structure((map_size,) * features + (classes,), ranks)


def fit(params: Row, x: np.ndarray, y: np.ndarray) -> tuple[Any, Row]:
    """A fitted model, and what is to be told of it."""
    method, seed = params["method"], params["seed"]
    classes = len(np.unique(y))
    if method in WEIGHTS:
        from sklearn.linear_model import LogisticRegression
        from sklearn.model_selection import GridSearchCV
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler
        from sklearn.svm import SVC

        last = LogisticRegression(max_iter=1000) if method == "logistic" else SVC()
        pipe = make_pipeline(StandardScaler(), last)
        name = f"{type(last).__name__.lower()}__C"
        score = "neg_log_loss" if method == "logistic" else None
        model = GridSearchCV(pipe, {name: WEIGHTS[method]}, cv=3, scoring=score).fit(x, y).best_estimator_
        size = (x.shape[1] + 1) * classes if method == "logistic" else int(model[-1].support_vectors_.size)
        return model, {"size": size, "weight": model[-1].C}
    structure = None
    if method != "ours":
        structure = chain(x.shape[1], FeatureMap.fit(x).size, classes, int(method[3:]))
    model = tg.TNClassifier(
        structure=structure, max_seconds=params["max_seconds"], random_state=seed, effort=params["effort"]
    ).fit(x, y)
    ranks = model.structure_.ranks.values()
    return model, {
        "size": model.result_.num_parameters,
        "stop": model.result_.stop.name,
        "largest_rank": max(ranks),
        "validation_loss": model.result_.validation_error,
        "growths": sum(s.kind == "grow" for s in model.history_),
    }


def run(params: Row) -> Row:
    """One method on one data set."""
    from sklearn.metrics import log_loss

    x, x_test, y, y_test = data(params)
    with stopwatch() as watch:
        model, row = fit(params, x, y)
    return {
        "accuracy": float(model.score(x_test, y_test)),
        "cross_entropy": log_loss(y_test, model.predict_proba(x_test)) if params["method"] != "svm" else None,
        "train_accuracy": float(model.score(x, y)),
        **row,
        "seconds": watch.wall,
        "cpu_seconds": watch.cpu,
    }


def methods(part: str) -> tuple[str, ...]:
    """What is compared."""
    return ("ours", "logistic", "svm", *(f"mps{r}" for r in RANKS.get(part, SMALL_RANKS)))


def cases(args: argparse.Namespace) -> list[Case]:
    """All measurements."""
    found = []
    for part in args.only:
        for seed in range(args.repeats if part in SMALL else 1):
            for fold in range(FOLDS if part != "mnist" else 1):
                for method in methods(part):
                    params: Row = {"data": part, "method": method, "seed": seed, "fold": fold}
                    params |= {"effort": args.effort, "max_seconds": args.max_seconds}
                    if part == "mnist":
                        params["train"] = args.train
                    found.append(Case(f"{part}/{method}/{seed}.{fold}", params))
    return found


def summary(results: Any) -> Row:
    """Means over the folds, and the standard deviation of the accuracy between them."""
    found: Row = {}
    for part in PARTS:
        for method in methods(part):
            rows = results.rows(f"{part}/{method}/")
            if rows:
                keys = ("accuracy", "size", "seconds", "cpu_seconds")
                means = {k: mean(r[k] for r in rows) for k in keys} | {"runs": len(rows)}
                means["deviation"] = float(np.std([r["accuracy"] for r in rows]))
                if method != "svm":
                    means["cross_entropy"] = mean(r["cross_entropy"] for r in rows)
                found[f"{part}/{method}"] = means
    return found


def main() -> None:
    """Run what is not in the results file yet."""
    parser = make_parser(__doc__, "classification", PARTS)
    parser.add_argument("--data", help="folder that holds mnist/")
    parser.add_argument("--repeats", type=int, default=2, help="of the cross-validation of small data sets")
    parser.add_argument("--train", type=int, default=10_000, help="training pictures of MNIST")
    parser.add_argument("--effort", default="balanced")
    parser.add_argument("--max-seconds", type=float, default=3600.0, help="of one training")
    args = parser.parse_args()
    if importlib.util.find_spec("sklearn") is None:
        raise SystemExit("scikit-learn is not installed (pip install 'tensorgrow[learn]')")
    results = open_results(args, args.only)
    folder = str(data_folder(args.data)) if "mnist" in args.only else ""

    def worker(params: Row) -> Row:  # the folder is no part of a case: it differs from machine to machine
        return run({**params, "folder": folder})

    def report(row: Row) -> str:
        return f"accuracy {row['accuracy']:.4f}, {row['size']} parameters, {row['seconds']:.1f} s"

    run_cases(results, cases(args), worker, report=report)
    means = summary(results)
    results.summarise(means)
    head = ("data / method", "accuracy", "deviation", "cross-entropy", "parameters", "CPU seconds", "runs")
    keys = ("accuracy", "deviation", "cross_entropy", "size", "cpu_seconds", "runs")
    print_table(head, [(k, *(v.get(q, "") for q in keys)) for k, v in means.items()])


if __name__ == "__main__":
    main()
