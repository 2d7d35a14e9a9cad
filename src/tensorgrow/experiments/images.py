"""The paper's table 1: networks for 256x256 grey images as 4^8, beside TNGA and its successors."""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ..search.options import PAPER_ITERATIONS
from .experiment import Experiment, Report, Settings
from .figures import pyplot, save_figure
from .harness import Case, Results, Row, geometric_mean
from .methods import LABELS, run_method

FILES = {"A": "live_0_image_A.png", "C": "live_5_image_C.png"}
# Relative errors of GA at ranks 6 and 7 and of the paper's Greedy; on A also two that other searches reach.
ERRORS = {"A": (0.215, 0.18, 0.137, 0.115, 0.105), "C": (0.087, 0.083, 0.080)}
LIVE = tuple(str(k) for k in range(10))  # images that the paper does not have
LIVE_ERROR = 0.15  # its errors are from 0.08 to 0.19
# True parameter counts behind table 1: its Greedy column is a natural logarithm of the compression ratio, its
# GA columns are decimal ones, which its text does not say.
PUBLISHED = {
    ("A", "greedy"): (32_059, 0.105),
    ("A", "genetic6"): (8_231, 0.137),
    ("A", "genetic7"): (14_337, 0.115),
    ("C", "greedy"): (1_672, 0.080),
    ("C", "genetic6"): (1_231, 0.087),
    ("C", "genetic7"): (1_855, 0.083),
}
# Natural logarithm of the compression ratio in the paper's Greedy column, and its deviation over 50 seeds.
PRINTED = {"A": (0.715, 0.152), "C": (3.668, 0.103)}
# Seeds of the paper's rule and of our default; the paper has 50. On one of the ten images our default takes
# minutes: one seed there.
SEEDS = {"greedy": 5, "default": 3}
HARD = ("0",)
RIVALS = ("tt_svd", "tt_svd_interleaved", "greedy", "genetic6", "genetic7", "tnls", "tnale", "svd_ins_tn")
GENETIC = ("genetic6", "genetic7")
RINGS = ("tnale", "tnls")
SEARCHES = (*RINGS, *GENETIC, "svd_ins_tn")
# Run once, for the smallest error; sizes at larger errors come from the steps on the way.
ONE_RUN = ("greedy", *SEARCHES)
# Run on every image before the searches.
FIRST = ("default", "tt_svd", "tt_svd_interleaved", "greedy")
OPTIONS: dict[str, Row] = {
    "genetic6": {"error_weight": 5.0, "population": 100, "density": 0.2},
    "genetic7": {"error_weight": 5.0, "population": 100, "density": 0.2},
    "svd_ins_tn": {"max_rank": 4},  # the start has no more: its spectra are of 4x4 matrices
    "greedy": {"experiment": "images"},
}
# Smallest limit of the ranks of TNLS and TnALE: small rings of unequal ranks need some above the uniform one.
LEAST_LIMIT = 12
# Time limits in seconds: ours; the paper's preset on A, whose growth slows down, and elsewhere.
OURS, LONG, SHORT = 560.0, 100.0, 30.0
# Other searches have ten times what ours took when last measured (1 to 7 s, on A 10 s), at least `SHORT`; on
# 0 and 9, where ours takes 130 and 26 s, as long as ours and five times as long. What a rival had met when
# ours was done, in equal time, is told apart by its steps.
TENFOLD = {"A": 100.0, "2": 35.0, "3": 55.0, "4": 70.0, "8": 55.0, "9": 130.0, "0": 130.0}
ABOUT = """\
Table 1 of the paper prints logarithms of compression ratios: natural ones for Greedy, decimal ones for GA,
without saying so. The table here has parameters. The paper's preset, TNGA, TNLS, TnALE and SVDinsTN ran
once per image, for the smallest error; their sizes at larger errors are the smallest they met there. TNLS
and TnALE search rings whose ranks may rise to those of a uniform ring as large as the interleaved TT-SVD of
that error, and weigh the error so that both terms of their fitness are equal there: the published weight of
5 aims at other errors. A full run gives these searches ten times as long as ours takes (on 9 five times, on
0 as long); the limit of each row is in the JSON. "In our time" is the smallest that a rival had met within
the error when ours was done. For ours and the preset, "structures fitted" counts the steps of the search,
each of which scores all edges. A rival that did not reach the error is compared with ours at the error it
had. A run that ended at its time limit (*) shows the best it had by then.

The paper's rule: stop at the error of GA, fit the slices of candidates five times, average over seeds. Eight
of its ten images are not available; ours (0 to 9) are other photographs of the same database, at one error.
Rivals are compared with the first seed."""


@lru_cache(maxsize=16)
def load(data: Path, image: str) -> np.ndarray:
    """An image as 4^8, column-major, values from 0 to 1."""
    if image in FILES:
        from PIL import Image

        pixels = np.asarray(Image.open(data / "bsd_tnga4" / FILES[image]))
    else:
        pixels = np.load(data / "live10" / "live10_gray256.npz")["resized"][int(image)]
    return np.ascontiguousarray((pixels / 255.0).reshape((4,) * 8, order="F"))


def cases(settings: Settings) -> list[Case]:
    """Every method on every image; those of `ONE_RUN` for the smallest error only."""
    settings.folder("bsd_tnga4")  # fails here, before anything runs
    if settings.quick:
        return [_case("C", method, 0.087, 40.0) for method in ("default", *RIVALS)]
    cases = []
    for image in ("C", "A"):
        for method in (*FIRST, *SEARCHES):
            errors = (min(ERRORS[image]),) if method in ONE_RUN else ERRORS[image]
            cases += [_case(image, method, e, _limit(image, method)) for e in errors]
    for method in SEEDS:
        for image in ("C", "A", *LIVE):
            count = 1 if method == "default" and image in HARD else settings.runs or SEEDS[method]
            error = min(ERRORS.get(image, (LIVE_ERROR,)))
            cases += [_case(image, method, error, _limit(image, method), seed) for seed in range(1, count)]
    cases += [_case(k, m, LIVE_ERROR, _limit(k, m)) for k in LIVE for m in FIRST]
    # TNGA fits one generation in this time; its published sizes are of A and C.
    searches = [m for m in SEARCHES if m not in GENETIC]
    cases += [_case(k, m, LIVE_ERROR, _limit(k, m)) for k in LIVE for m in searches]
    return cases


def _limit(image: str, method: str) -> float:
    if method == "default":
        return OURS
    if method in SEARCHES:
        return TENFOLD.get(image, SHORT)
    return LONG if image == "A" else SHORT


def _case(image: str, method: str, error: float, limit: float, seed: int = 0) -> Case:
    params = {"max_seconds": limit, "seed": seed, "image": image, "method": method, "max_error": error}
    # Rows of other limits of the ranks answer other cases.
    if method in RINGS:
        params["limits"] = "interleaved TT-SVD"
    elif method == "greedy":
        params["iterations"] = PAPER_ITERATIONS["images"]
    elif method == "svd_ins_tn":
        params["limits"] = OPTIONS[method]["max_rank"]
    return Case(f"{image}/{method}@{error}" + (f"/seed{seed}" if seed else ""), params)


def work(case: Case, settings: Settings) -> Row:
    params = case.params
    method, error = params["method"], params["max_error"]
    x = load(settings.folder("bsd_tnga4").parent, params["image"])
    return run_method(
        method,
        x,
        max_error=error,
        max_seconds=params["max_seconds"],
        random_state=params["seed"],
        **(ring_options(x, error) if method in RINGS else OPTIONS.get(method, {})),
    )[1]


def ring_options(x: np.ndarray, max_error: float) -> Row:
    """Limit of ranks and weight of the error with which TNLS and TnALE can meet an error.

    With a limit of 12, the largest ring on 4^8 had 4,608 parameters, too few for seven of 18 pairs of image
    and error. The smallest fitness of sizes that fall with the square of the error lies at `max_error`.
    """
    size = run_method("tt_svd_interleaved", x, max_error=max_error)[1]["size"]
    uniform = math.ceil(math.sqrt(size / sum(x.shape)))
    return {"max_rank": max(LEAST_LIMIT, uniform), "error_weight": size / x.size / max_error**2}


def report(results: Results) -> Report:
    out = Report("Images")
    out.say(ABOUT)
    runs = results.groups("image", "method")
    rows = _first_seeds(runs)
    compared = _compare(rows)
    lines = [
        _line(image, error, m, known, rows[(image, "default")])
        for (image, error), sizes in compared.items()
        for m, known in sizes.items()
    ]
    out.tabulate_rows("Parameters at equal error", lines)
    out.tabulate_rows(
        "Sizes; in brackets what a method had that did not reach the error",
        [_size_line(image, error, sizes) for (image, error), sizes in compared.items()],
    )
    out.tabulate_rows(
        "Seconds and structures fitted; an asterisk marks a time limit",
        [_time_line(image, rows) for image in dict.fromkeys(image for image, _ in compared)],
    )
    for text in _verdicts(compared):
        out.say(text)
    out.tabulate_rows(
        "Table 1 by the paper's rule and by our default: mean parameters (deviation) over seeds",
        [_table_line(image, error, runs) for image, error in compared],
    )
    out.judge(_claims(runs))
    return out


def _size_line(image: str, error: float, sizes: dict[str, Known]) -> Row:
    """The sizes of all methods, and the best of the others and of the published ones in units of ours."""
    ours = sizes["default"][0] if "default" in sizes else None
    published = {
        f"{LABELS[m]}, published": n for (i, m), (n, e) in PUBLISHED.items() if (i, e) == (image, error)
    }
    reached = {LABELS[m]: n for m, (n, _) in sizes.items() if n and m != "default"} | published
    best = min(reached, key=lambda name: reached[name], default=None)
    line: Row = {"image": f"{image} at {error}"}
    for method in ("default", *RIVALS):
        size, run = sizes.get(method, (None, None))
        missed = None if run is None else f"({run['size']:,} at {run['error']:.3f})"
        line["ours" if method == "default" else LABELS[method]] = f"{size:,}" if size else missed
    line["published"] = ", ".join(
        f"{name.removesuffix(', published')} {n:,}" for name, n in published.items()
    )
    line["best / ours"] = f"{reached[best] / ours:.2f}, {best}" if best and ours else None
    return line


def _time_line(image: str, rows: dict[tuple[Any, ...], list[Row]]) -> Row:
    """Wall seconds of every search on an image; ours ran for each error."""
    line: Row = {"image": image}
    for method in ("default", *ONE_RUN):
        runs = sorted(rows.get((image, method), []), key=lambda r: -r["params"]["max_error"])
        cells = [
            f"{r['params']['max_error']}: " * (len(runs) > 1)
            + f"{r['seconds']:.3g}{'*' if r.get('hit_limit') else ''} s, {r['evaluations']}"
            for r in runs
        ]
        line["ours" if method == "default" else LABELS[method]] = "; ".join(cells) or None
    return line


def _first_seeds(runs: dict[tuple[Any, ...], list[Row]]) -> dict[tuple[Any, ...], list[Row]]:
    """What is compared with rivals, which run once: the best of several seeds would be none of them."""
    return {k: [r for r in group if r["params"].get("seed", 0) == 0] for k, group in runs.items()}


def _table_line(image: str, error: float, runs: dict[tuple[Any, ...], list[Row]]) -> Row:
    """Sizes over the seeds, and what the paper and Li and Sun printed for the image, in parameters."""
    greedy = _sizes(runs.get((image, "greedy"), []), error)
    # Ours prunes at the end: what it met on the way to a smaller error is not what it answers for this one.
    ours = _sizes([r for r in runs.get((image, "default"), []) if r["params"]["max_error"] == error], error)
    printed = PRINTED.get(image) if error == min(ERRORS.get(image, (0.0,))) else None
    published = {m: PUBLISHED.get((image, m)) for m in ("greedy", *GENETIC)}
    return {
        "image": f"{image} at {error}",
        "Greedy, the paper's rule": _mean_cell(greedy),
        "ln of its ratio": _log_cell(greedy),
        "paper": printed and f"{printed[0]} ({printed[1]})",
        "ours, default": _mean_cell(ours),
        **{
            f"{LABELS[m] if m in GENETIC else 'Greedy'}, published": f"{known[0]:,}"
            if known and known[1] == error
            else None
            for m, known in published.items()
        },
    }


def _sizes(rows: list[Row], error: float) -> list[int | None]:
    """Smallest size of every seed within an error, None where it was not reached."""
    seeds = sorted({r["params"].get("seed", 0) for r in rows})
    known = [at_error([r for r in rows if r["params"].get("seed", 0) == s], error) for s in seeds]
    return [k[0] for k in known if k is not None]


def _mean_cell(sizes: list[int | None]) -> str | None:
    """Mean and deviation of the runs that reached the error, and how many did."""
    reached = [n for n in sizes if n is not None]
    if not sizes:
        return None
    share = f"{len(reached)} of {len(sizes)} runs"
    return f"{np.mean(reached):,.0f} ({np.std(reached):,.0f}), {share}" if reached else share


def _log_cell(sizes: list[int | None]) -> str | None:
    """Mean of the natural logarithm of the compression ratio; only where every run reached the error."""
    if not sizes or None in sizes:
        return None
    ratios = [math.log(4**8 / n) for n in sizes if n is not None]
    return f"{np.mean(ratios):.3f} ({np.std(ratios):.3f})"


def _claims(runs: dict[tuple[Any, ...], list[Row]]) -> list[tuple[str, str, float]]:
    """What the paper says about its table, in true counts, on the two images of it that there are."""
    found = {
        (image, m): (_sizes(runs.get((image, "greedy"), []), error), size, error)
        for (image, m), (size, error) in PUBLISHED.items()
        if m in GENETIC
    }
    if not all(sizes for sizes, _, _ in found.values()):
        return []

    def smaller(image: str, method: str) -> float:
        sizes, published, _ = found[(image, method)]
        return sum(n is not None and n < published for n in sizes) / len(sizes)

    def told(image: str, method: str) -> str:
        sizes, published, error = found[(image, method)]
        return f"{image} at {error}: {_mean_cell(sizes)}, {published:,} published"

    least = min(ERRORS["C"])
    both, genetic = _sizes(runs[("C", "greedy")], least), found[("C", "genetic6")][1]
    seconds = [r["seconds"] for (_, m), rows in runs.items() if m == "greedy" for r in rows]
    limits = sum(bool(r["hit_limit"]) for (_, m), rows in runs.items() if m == "greedy" for r in rows)
    return [
        (
            "a higher compression ratio than GA (rank 7) on all images",
            "; ".join(told(image, "genetic7") for image in FILES),
            sum(smaller(image, "genetic7") for image in FILES) / len(FILES),
        ),
        (
            "on images 1 to 9 a higher ratio and a smaller error than GA (rank 6)",
            f"C at {least}: {_mean_cell(both)}, {genetic:,} published at 0.087; the others are not available",
            sum(n is not None and n < genetic for n in both) / len(both),
        ),
        (
            "on image 0 a higher ratio than GA (rank 6) at its error",
            told("A", "genetic6"),
            smaller("A", "genetic6"),
        ),
        (
            "a few minutes, where GA takes several hours",
            f"{min(seconds):.1f} to {max(seconds):.0f} s, {limits} of {len(seconds)} runs at their limit; GA "
            "was not run to its end here",
            1.0 if not limits else 0.5,
        ),
    ]


Known = tuple[int | None, Row]  # smallest size within the error, None where there was none; and the run


def _compare(rows: dict[tuple[Any, ...], list[Row]]) -> dict[tuple[str, float], dict[str, Known]]:
    """Parameters of every method by image and error."""
    out: dict[tuple[str, float], dict[str, Known]] = {}
    # A and C first: the paper's table.
    for image in sorted({image for image, _ in rows}, key=lambda i: (i.isdigit(), i)):
        for error in sorted(
            {r["params"]["max_error"] for r in rows.get((image, "default"), [])}, reverse=True
        ):
            sizes = {m: at_error(rows.get((image, m), []), error) for m in ("default", *RIVALS)}
            out[(image, error)] = {m: known for m, known in sizes.items() if known}
    return out


def _verdicts(compared: dict[tuple[str, float], dict[str, Known]]) -> list[str]:
    """Sentences about who needs fewer parameters than ours, and who is faster."""
    ratios: list[float] = []
    smaller: list[str] = []
    faster: list[str] = []
    unmet: list[str] = []
    published: list[float] = []
    for (image, error), sizes in compared.items():
        name = f"{image} at {error}"
        ours = sizes["default"][0] if "default" in sizes else None
        if ours is None:
            unmet.append(name)
            continue
        rivals = {m: n / ours for m, (n, _) in sizes.items() if m != "default" and n}
        if rivals:
            ratios.append(min(rivals.values()))
        smaller += [f"{LABELS[m]} on {name}" for m, ratio in rivals.items() if ratio <= 1]
        seconds = sizes["default"][1]["seconds"]
        faster += [
            f"{LABELS[m]} on {name}" for m in SEARCHES if m in rivals and sizes[m][1]["seconds"] <= seconds
        ]
        published += [n / ours for (i, _), (n, e) in PUBLISHED.items() if i == image and e == error]
    out = []
    if ratios:
        out.append(
            f"Best rival that reached the error / ours: {min(ratios):.2f} to {max(ratios):.2f}, geometric "
            f"mean {geometric_mean(ratios):.2f}, at least 1.5 in {sum(r >= 1.5 for r in ratios)} of "
            f"{len(ratios)} pairs of image and error."
        )
        out.append(f"Rivals that need no more parameters than ours: {', '.join(smaller) or 'none'}.")
        out.append(f"Searches that reached it in no more time than ours: {', '.join(faster) or 'none'}.")
    if published:
        out.append(f"Published sizes / ours at the same error: {min(published):.2f} to {max(published):.2f}.")
    if unmet:
        out.append(f"Ours did not reach the error within its limit of time: {', '.join(unmet)}.")
    return out


def at_error(rows: list[Row], error: float) -> Known | None:
    """Smallest size that runs met within an error, and the run."""
    # A run for this very error is what a user would get.
    own = [r for r in rows if r["params"]["max_error"] == error]
    runs = own or [r for r in rows if r["params"]["max_error"] < error]
    known = [(_smallest_size([r], error), r) for r in runs]
    return min(known, key=lambda k: math.inf if k[0] is None else k[0], default=None)


def _smallest_size(rows: list[Row], error: float) -> int | None:
    """Smallest size within an error at any step of any run."""
    points = [p for r in rows for p in ((r["size"], r["error"]), *r["curve"])]
    return min((int(n) for n, e in points if e <= error * (1 + 1e-9)), default=None)


def _line(image: str, error: float, method: str, known: Known, ours: list[Row]) -> Row:
    """A rival that missed the error is compared with ours at the error that the rival reached."""
    size, row = known
    here = at_error(ours, error)
    published = PUBLISHED.get((image, method))
    if size:
        reached, ratio = f"{size:,}", f"{size / here[0]:.2f}" if here and here[0] else None
    else:
        there = _smallest_size(ours, row["error"])
        reached = f"not reached; {row['error']:.3f} at {row['size']:,}"
        ratio = None if there is None or method == "default" else f"{row['size'] / there:.2f} at its error"
    return {
        "image": f"{image} at {error}",
        "method": LABELS[method],
        "parameters": reached,
        "x ours": ratio,
        "in our time": _in_time(row, error, here[1]["seconds"] if here else None),
        "structures fitted": row["evaluations"],
        "s": f"{row['seconds']:.3g}{'*' if row.get('hit_limit') else ''}",
        "published": f"{published[0]:,}" if published and published[1] == error else None,
    }


def _in_time(row: Row, error: float, seconds: float | None) -> str | None:
    """Smallest size within the error among what a run had met by then; None where it does not say."""
    if seconds is None or "times" not in row:
        return None
    sizes = [int(n) for n, e, s in row["times"] if s <= seconds and e <= error * (1 + 1e-9)]
    return f"{min(sizes):,}" if sizes else "not reached"


def draw(results: Results, settings: Settings) -> list[Path]:
    """Sizes of the rivals in units of ours, at equal error."""
    plt = pyplot()
    compared = _compare(_first_seeds(results.groups("image", "method")))
    pairs = {k: (sizes, ours) for k, sizes in compared.items() if (ours := sizes.get("default", (None,))[0])}
    if not pairs:
        return []
    figure, axis = plt.subplots(figsize=(9, 0.42 * len(pairs) + 2), layout="constrained")
    for number, (method, marker) in enumerate(zip(RIVALS, "oDs^v<>P")):
        points = [
            (size / ours, row)
            for row, (sizes, ours) in enumerate(pairs.values())
            if method in sizes and (size := sizes[method][0])
        ]
        if points:
            axis.scatter(*zip(*points), marker=marker, color=f"C{number}", label=LABELS[method])
    known = [
        (size / ours, row)
        for row, ((image, error), (_, ours)) in enumerate(pairs.items())
        for (i, _), (size, e) in PUBLISHED.items()
        if (i, e) == (image, error)
    ]
    if known:
        axis.scatter(*zip(*known), marker="x", color="k", label="published")
    axis.axvline(1.0, color="k", linewidth=1)
    axis.axvline(1.5, color="k", linewidth=1, linestyle=":")
    labels = [f"{i} at {e}: {ours:,}" for (i, e), (_, ours) in pairs.items()]
    axis.set_yticks(range(len(pairs)), labels)
    axis.set(xscale="log", xlabel="parameters / those of tensorgrow (given at the left), at equal error")
    ticks = (1, 1.5, 2, 3, 4, 6, 8)
    axis.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axis.minorticks_off()
    axis.invert_yaxis()
    axis.grid(True, alpha=0.3)
    axis.legend(fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5))
    return save_figure(figure, settings.figures / f"{results.path.stem}.png")


EXPERIMENT = Experiment(
    "images",
    "the paper's table 1: grey images as 4^8 beside rivals",
    cases,
    work,
    report,
    draw,
    uses=("baselines",),
)
