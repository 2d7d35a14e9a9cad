"""How accurate is a learned network on products of features, beside logistic regression and a fixed chain?

scikit-learn's digits (8x8, 1,797 pictures, a quarter for testing) and MNIST averaged down to 7x7 (the
first `--train` training pictures, all 10,000 test pictures). `TNClassifier` with its defaults; the same
classifier with `structure=` a chain of uniform rank and the classes in its middle, on the same split and
with the same optimiser, but one long training ("thorough") in place of growth; logistic regression on
standardised features, its weight chosen by cross-validation. Seconds include that choice.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
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
from tensorgrow.classification import auto_edges

PARTS = ("digits", "mnist")
RANKS = (2, 4, 8, 12)
SIDE = 7
MAP_SIZE = 2


def read_idx(file: Path) -> np.ndarray:
    """An array in the IDX format of MNIST."""
    raw = gzip.decompress(file.read_bytes())
    shape = [int.from_bytes(raw[4 + 4 * k : 8 + 4 * k], "big") for k in range(raw[3])]
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(shape)


def data(params: Row) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training and test samples, then training and test labels."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    if params["data"] == "digits":
        x, y = load_digits(return_X_y=True)
        found = train_test_split(x, y, test_size=0.25, random_state=params["seed"], stratify=y)
        return tuple(found)
    folder = Path(params["folder"]) / "mnist"

    def small(name: str) -> np.ndarray:
        pictures = read_idx(folder / f"{name}-images-idx3-ubyte.gz").astype(np.float32)
        block = 28 // SIDE
        return pictures.reshape(-1, SIDE, block, SIDE, block).mean((2, 4)).reshape(-1, SIDE * SIDE)

    count = params["train"]
    labels = [read_idx(folder / f"{n}-labels-idx1-ubyte.gz") for n in ("train", "t10k")]
    return small("train")[:count], small("t10k"), labels[0][:count], labels[1]


def chain(features: int, classes: int, rank: int) -> tg.Structure:
    """The chain that "auto" grows, with one rank; at its ends what the legs can carry."""
    middle = features // 2
    position = {k: k + (k >= middle) for k in range(features)} | {features: middle}
    ranks = {}
    for i, j in auto_edges(features + 1):
        cut = min(position[i], position[j]) + 1
        ranks[i, j] = min(rank, MAP_SIZE ** min(cut, features + 1 - cut, 20))
    return tg.Structure((MAP_SIZE,) * features + (classes,), ranks)


def fit(params: Row, x: np.ndarray, y: np.ndarray) -> tuple[Any, Row]:
    """A fitted model, and what is to be told of it."""
    method, seed = params["method"], params["seed"]
    if method == "logistic":
        from sklearn.linear_model import LogisticRegression
        from sklearn.model_selection import GridSearchCV
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        pipe = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
        weights = {"logisticregression__C": [0.01, 0.1, 1.0]}
        model = GridSearchCV(pipe, weights, cv=3).fit(x, y)
        return model, {"size": (x.shape[1] + 1) * len(np.unique(y)), **model.best_params_}
    structure = None if method == "ours" else chain(x.shape[1], len(np.unique(y)), int(method[3:]))
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
    x, x_test, y, y_test = data(params)
    with stopwatch() as watch:
        model, row = fit(params, x, y)
    return {
        "accuracy": float(model.score(x_test, y_test)),
        "train_accuracy": float(model.score(x, y)),
        **row,
        "seconds": watch.wall,
        "cpu_seconds": watch.cpu,
    }


def cases(args: argparse.Namespace) -> list[Case]:
    """All measurements."""
    methods = ("logistic", *(f"mps{r}" for r in RANKS), "ours")
    found = []
    for part in args.only:
        for seed in range(args.seeds if part == "digits" else 1):
            for method in methods:
                params: Row = {"data": part, "method": method, "seed": seed, "effort": args.effort}
                params["max_seconds"] = args.max_seconds
                if part == "mnist":
                    params["train"] = args.train
                found.append(Case(f"{part}/{method}/{seed}", params))
    return found


def summary(results: Any) -> Row:
    """Means over seeds."""
    found: Row = {}
    for part in PARTS:
        for method in ("logistic", *(f"mps{r}" for r in RANKS), "ours"):
            rows = results.rows(f"{part}/{method}/")
            if rows:
                keys = ("accuracy", "size", "seconds", "cpu_seconds")
                found[f"{part}/{method}"] = {k: mean(r[k] for r in rows) for k in keys} | {"runs": len(rows)}
    return found


def main() -> None:
    """Run what is not in the results file yet."""
    parser = make_parser(__doc__, "classification", PARTS)
    parser.add_argument("--data", help="folder that holds mnist/")
    parser.add_argument("--seeds", type=int, default=2, help="splits of the digits")
    parser.add_argument("--train", type=int, default=10_000, help="training pictures of MNIST")
    parser.add_argument("--effort", default="balanced")
    parser.add_argument("--max-seconds", type=float, default=300.0, help="of one training")
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
    head = ("data / method", "accuracy", "parameters", "seconds", "CPU seconds")
    print_table(
        head, [(k, v["accuracy"], v["size"], v["seconds"], v["cpu_seconds"]) for k, v in means.items()]
    )


if __name__ == "__main__":
    main()
