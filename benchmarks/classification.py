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

from itertools import pairwise
from typing import Any

import numpy as np

import tensorgrow as tg
from tensorgrow.data.features import FeatureMap
from tensorgrow.experiments.experiment import Report
from tensorgrow.experiments.harness import Case, Results, Row, mean, stopwatch
from tensorgrow.experiments.mnist import read_idx

from .benchmark import Benchmark, BenchmarkSettings, Option

__all__ = ["BENCHMARK"]

SMALL = ("iris", "wine", "breast_cancer", "moons", "clusters")
PARTS = (*SMALL, "digits", "mnist")
FOLDS = 5
# Those of scikit-learn, with the strengths of regularisation that are tried.
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


def load(params: Row, settings: BenchmarkSettings) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training and test samples, then training and test labels."""
    from sklearn.model_selection import StratifiedKFold

    if params["data"] != "mnist":
        x, y = table(params["data"], params["seed"])
        split = StratifiedKFold(FOLDS, shuffle=True, random_state=100 + params["seed"]).split(x, y)
        train, test = list(split)[params["fold"]]
        return x[train], x[test], y[train], y[test]
    folder, side, block = settings.folder("mnist"), 7, 4

    def small(name: str) -> np.ndarray:
        pictures = read_idx(folder / f"{name}-images-idx3-ubyte.gz").astype(np.float32)
        return pictures.reshape(-1, side, block, side, block).mean((2, 4)).reshape(-1, side * side)

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
    """A fitted model and its numbers."""
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


def work(case: Case, settings: BenchmarkSettings) -> Row:
    """One method on one data set."""
    from sklearn.metrics import log_loss

    params = case.params
    x, x_test, y, y_test = load(params, settings)
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
    """What is compared; the number is the rank of the fixed chain."""
    return ("ours", "logistic", "svm", "mps4" if part in SMALL else "mps10")


def cases(settings: BenchmarkSettings) -> list[Case]:
    """All measurements."""
    if "mnist" in settings.parts:
        settings.folder("mnist")  # refused before anything is run
    cases = []
    for part in settings.parts:
        for seed in range(settings["repeats"] if part in SMALL else 1):
            for fold in range(min(FOLDS, settings["folds"]) if part != "mnist" else 1):
                for method in methods(part):
                    params: Row = {"data": part, "method": method, "seed": seed, "fold": fold}
                    params |= {"effort": settings["effort"], "max_seconds": settings["max_seconds"]}
                    if part == "mnist":
                        params["train"] = settings["train"]
                    uses = () if method in WEIGHTS else None
                    cases.append(Case(f"{part}/{method}/{seed}.{fold}", params, uses=uses))
    return cases


def summarise(results: Results) -> Row:
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


def beside(means: Row) -> list[Row]:
    """A line per data set: accuracy, its deviation over the folds, and cross-entropy."""
    names = {"ours": "`TNClassifier`", "logistic": "logistic regression", "svm": "RBF machine"}
    lines = []
    for part in PARTS:
        mine = {key.split("/")[1]: v for key, v in means.items() if key.startswith(f"{part}/")}
        if "ours" in mine:
            chains = {m: "chain of fixed rank" for m in mine if m.startswith("mps")}
            line: Row = {"data": part.replace("_", " ")}
            for method, name in (names | chains).items():
                line[name] = _cell(mine[method]) if method in mine else None
            line["parameters of ours"] = f"{mine['ours']['size']:,.0f}"
            line["CPU seconds of ours"] = mine["ours"]["cpu_seconds"]
            lines.append(line)
    return lines


def _cell(found: Row) -> str:
    spread = f" ± {100 * found['deviation']:.1f}" if found["runs"] > 1 else ""
    entropy = f", {found['cross_entropy']:.3f}" if "cross_entropy" in found else ""
    return f"{100 * found['accuracy']:.1f}{spread} %{entropy}"


def report(results: Results) -> Report:
    """Accuracy, cross-entropy and sizes."""
    out = Report("Classification")
    out.summary = means = summarise(results)
    keys = ("accuracy", "deviation", "cross_entropy", "size", "cpu_seconds", "runs")
    out.tabulate(
        "Means over the folds",
        ("data / method", "accuracy", "deviation", "cross-entropy", "parameters", "CPU seconds", "runs"),
        [(k, *(v.get(q, "") for q in keys)) for k, v in means.items()],
    )
    out.tabulate_rows("Beside others", beside(means))
    return out


BENCHMARK = Benchmark(
    "classification",
    "accuracy and size of TNClassifier beside logistic regression, a support vector machine, fixed chains",
    cases,
    work,
    report,
    parts=PARTS,
    uses=("estimators.classifier",),
    options=(
        Option("repeats", 2, "of the cross-validation of small data sets", quick=1),
        Option("folds", FOLDS, "of the cross-validation that are run", quick=1),
        Option("train", 10_000, "training pictures of MNIST", quick=500),
        Option("effort", "balanced", "of the search"),
        Option("max_seconds", 3600.0, "limit of one training", quick=5.0),
    ),
)
