"""How well, how small and how fast are tensors inferred from some of their entries?

Claims measured, default options apart from what is named:

* einstein: 600x600x3 image as 6x10x10x6x10x10x3, 10 % of the entries, 3 masks: error on the whole image at
  most 9.0 % with 21,375 parameters and 10.3 % with 10,096; under 60 s on a GPU, 10 minutes on two CPU cores.
* images: four test images as 4^8 x 3 and a video at 10, 20 and 30 %: error, PSNR, SSIM; house at 20 % at most
  0.064 with 20,000 parameters; a second tensorisation of each.
* traffic: parking and taxi counts, 30, 50 and 70 % more entries or whole days removed: MAPE and RMSE.
* scaling: seconds per sweep and memory against observations and ranks; linear in the observations.
* recovery: planted networks from 10 noiseless entries per parameter: below 1e-6 at the planted size in 18 of
  20 seeds; with 1 % noise within 20 % of that size.
* degenerate: data that determines too little, or is spoilt: finite results, honest warnings.

Rivals on the same entries: TT-ALS, TR-ALS, CP and Tucker (see _rivals.py), each at the rank with the smallest
true error, which a user could not know. Draws einstein.webp, completion_images.webp and
completion_scaling.png in docs/figures.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Sequence
from pathlib import Path

from _common import (
    FIGURES,
    RESULTS,
    Results,
    Row,
    Worker,
    data_folder,
    make_parser,
    open_results,
    print_table,
    run_cases,
)

# isort: split
import torch

import _part_pictures as pictures
import _part_planted as planted
import _part_scaling as scaling
import _part_traffic as traffic
from _completing import SCRATCH, Folders, folders
from _quality import self_check
from _rivals import tensorly_is_installed

PARTS = ("recovery", "degenerate", "einstein", "images", "traffic", "scaling")
NEED_DATA = {"einstein", "images", "traffic"}


def line(row: Row) -> str:
    """What is printed when a case ends."""
    if "skipped" in row:
        return f"skipped: {row['skipped']}"
    names = ("size", "observations", "rank", "error", "rmse", "mape", "psnr", "ratio", "finite", "stop")
    shown = [f"{n} {row[n]:.4g}" if isinstance(row[n], float) else f"{n} {row[n]}" for n in names if n in row]
    limit = ", TIME LIMIT" if row.get("hit_limit") else ""
    return ", ".join([*shown, f"{row['seconds']:.3g} s"]) + limit


def run_parts(args: argparse.Namespace, results: Results, where: Folders) -> None:
    """Run the cases of the chosen parts that are not done yet."""
    makers = {
        "recovery": planted.recovery_cases,
        "degenerate": planted.degenerate_cases,
        "einstein": pictures.einstein_cases,
        "images": pictures.image_cases,
        "traffic": traffic.cases,
        "scaling": scaling.cases,
    }
    workers: dict[str, Worker] = {
        "recovery": planted.recover,
        "degenerate": planted.endure,
        "einstein": functools.partial(pictures.run, where=where),
        "images": functools.partial(pictures.run, where=where),
        "traffic": functools.partial(traffic.run, where=where),
        "scaling": scaling.run,
    }
    for part in args.only:
        cases = [c for c in makers[part](args) if all(f"/{w}/" in f"/{c.key}/" for w in args.match)]
        run_cases(results, cases, workers[part], report=line)


def tables(results: Results) -> dict[str, list[Row]]:
    """Everything there is, by part."""
    return {
        "einstein": pictures.table(results, "einstein"),
        "images": pictures.table(results, "images"),
        "traffic": traffic.table(results),
        "scaling": scaling.table(results),
        "scaling: exponents": scaling.slopes(results),
        "scaling: the whole run": scaling.whole_table(results),
        "recovery": planted.recovery_table(results),
        "degenerate": planted.degenerate_table(results),
    }


def all_claims(results: Results) -> list[Row]:
    """Every claim that something was measured for."""
    claims = [
        *pictures.einstein_claims(results),
        *pictures.image_claims(results),
        *traffic.claims(results),
        *scaling.claims(results),
        *planted.recovery_claims(results),
        *planted.degenerate_claims(results),
    ]
    return [c for c in claims if c["met"] is not None]


def report(results: Results, parts: Sequence[str]) -> None:
    """Write the summary; print the tables of some parts and every claim."""
    claims, found = all_claims(results), tables(results)
    results.summarise({"claims": claims, **found})
    for name, rows in found.items():
        if rows and name.split(":")[0] in parts:
            print(f"\n{name}\n")
            print_table(list(rows[0]), [list(r.values()) for r in rows])
    print("\nclaims\n")
    print_table(
        ["claim", "limit", "measured", "cases", ""],
        [
            [c["claim"], c["limit"], c["measured"], c["cases"], "met" if c["met"] else "NOT MET"]
            for c in claims
        ],
    )
    without = [k for k, r in results.cases.items() if "failed" in r or "skipped" in r]
    if without:
        print(f"without a result: {', '.join(without)}")


def arguments() -> argparse.Namespace:
    """Command line."""
    parser = make_parser(__doc__, "completion", PARTS)
    parser.add_argument("--match", nargs="+", default=[], help="only cases whose key has these components")
    parser.add_argument("--data", help="folder of the data (default: TENSORGROW_DATA or ../shared/data)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where tensorgrow computes")
    parser.add_argument("--all-seeds", action="store_true", help="einstein: rivals on all three masks")
    parser.add_argument("--rival-seconds", type=float, default=120.0, help="limit of one run of a rival")
    parser.add_argument("--video-seconds", type=float, default=540.0, help="limit of ours on the video")
    parser.add_argument("--image-seconds", type=float, help="limit of ours on an image (default: none)")
    parser.add_argument("--traffic-seconds", type=float, default=300.0, help="limit of ours on traffic")
    parser.add_argument("--budget", type=float, default=5.0, help="scaling: seconds per measurement, about")
    parser.add_argument("--figures", type=Path, default=FIGURES, help="folder of the figures")
    parser.add_argument("--pictures", type=Path, help="folder of the pictures the figures are made of")
    parser.add_argument("--quick", action="store_true", help="a tiny trial of every part, kept apart")
    parser.add_argument("--summary", action="store_true", help="run nothing: report and draw what there is")
    args = parser.parse_args()
    if args.quick:
        args.rival_seconds = min(args.rival_seconds, 2.0)
        if args.out == RESULTS / "completion.json":
            args.out = SCRATCH / "completion-quick.json"
        if args.figures == FIGURES:
            args.figures = SCRATCH
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: torch finds no GPU")
    return args


def main() -> None:
    """Run the chosen parts, report, draw."""
    args = arguments()
    self_check()
    needs_data = bool(NEED_DATA & set(args.only))
    where = folders(args, data_folder(args.data) if needs_data else Path())
    if needs_data and not tensorly_is_installed():
        print("tensorly is not installed: CP and Tucker are skipped")
    results = open_results(args, [f"{p}/{args.device}" for p in args.only])
    if not args.summary:
        run_parts(args, results, where)
    report(results, args.only)
    for part, name in (("einstein", "einstein.webp"), ("images", "completion_images.webp")):
        if part in args.only:
            pictures.draw(results, where, part, name, args.device)
    if "scaling" in args.only:
        scaling.draw(results, where, "completion_scaling.png")


if __name__ == "__main__":
    main()
