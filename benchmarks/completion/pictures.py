"""Parts `einstein` and `images`: pictures and a video of which some entries are known.

Masks are drawn on the plain array, so that every tensorisation and every rival sees the same entries.
Views of a plain array, all column-major (the first digit of an index varies fastest):

* stored: 600x600x3 as 6x10x10x6x10x10x3, 256x256x3 as 4^8 x 3;
* paired: 256x256x3 as 16x16x16x16x3, each 16 the same base-4 digit of row and column (a quadtree);
* split: the video 144x176x3x50 as 12x12x16x11x3x50;
* plain: as it is.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tensorgrow.data.tensorization import Tensorization
from tensorgrow.experiments import completion as paper
from tensorgrow.experiments.figures import pyplot, save_figure
from tensorgrow.experiments.harness import Case, Results, Row, mean
from tensorgrow.experiments.methods import random_mask

from ..benchmark import BenchmarkSettings
from .quality import picture_quality, relative_error
from .rivals import FILLINGS, LABELS, fill, ladder, run_rival
from .runs import at_most, best_rows, claim, compare, count_wins, items_of, time_complete, time_rival

__all__ = [
    "IMAGES",
    "RATES",
    "draw",
    "einstein_cases",
    "einstein_claims",
    "image_cases",
    "image_claims",
    "load",
    "picture_case",
    "rival_cases",
    "run",
    "table",
]

IMAGES = ("airplane", "baboon", "facade", "house")
VIDEO = "carphone"
FRAME = 25
RATES = (10, 20, 30)
# Largest sizes of our networks, and of the rivals.
EINSTEIN_SIZES, EINSTEIN_LIMIT = (21_375, 10_096), 25_000
IMAGE_SIZE, VIDEO_SIZE = 20_000, 60_000
VIDEO_ALS_SIZE = 15_000  # of TT-ALS and TR-ALS on a CPU, where one sweep of larger ones takes minutes
EINSTEIN_SEEDS = range(6)
# Of one network with the larger size: mean and worst error over the masks.
MEAN_AND_WORST = (0.089, 0.0905)
# Of a committee of four: error on every mask.
COMMITTEE_CLAIM = 0.082
# Size and claimed error on the whole image; seconds per device.
EINSTEIN_CLAIMS = {21_375: 0.090, 10_096: 0.103}
EINSTEIN_SECONDS = {"cuda": 60.0, "cpu": 600.0}
HOUSE_CLAIM = ("house@20", 0.064)
# Rungs of the ladders: everything for TT and TR on Einstein, a few elsewhere.
FEW, FEWER = (4, 8, 12, 16), (4, 10)
CP_RUNGS, TUCKER_RUNGS = (10, 30, 100), (4, 8, 16)


# -- views ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class View:
    """A tensorisation: column-major digits, reordered, joined."""

    digits: tuple[int, ...]
    axes: tuple[int, ...] | None = None
    shape: tuple[int, ...] | None = None

    def of(self, plain: np.ndarray) -> np.ndarray:
        """The tensor of a plain array."""
        x = plain.reshape(self.digits, order="F").transpose(self._axes)
        return np.ascontiguousarray(x.reshape(self.dims))

    def back(self, x: np.ndarray, plain: tuple[int, ...]) -> np.ndarray:
        """The plain array of a tensor."""
        digits = x.reshape([self.digits[k] for k in self._axes])
        return digits.transpose(np.argsort(self._axes)).reshape(plain, order="F")

    def tensorization(self, plain: tuple[int, ...]) -> Tensorization:
        """The same for `complete`, of a view that joins no digits: members of a committee then shift it."""
        left, sizes, modes = list(self.digits), [], []
        for axis, size in enumerate(plain):
            mine: list[int] = []
            while math.prod(mine) < size:
                mine.insert(0, left.pop(0))  # the most significant first
            sizes.append(tuple(mine))
            modes += [((axis, place),) for place in reversed(range(len(mine)))]
        return Tensorization(plain, tuple(sizes), tuple(modes), "F")

    @property
    def _axes(self) -> tuple[int, ...]:
        return self.axes or tuple(range(len(self.digits)))

    @property
    def dims(self) -> tuple[int, ...]:
        """Shape of the tensor."""
        return self.shape or self.digits


SHAPES = {"einstein": (600, 600, 3), VIDEO: (144, 176, 3, 50), **dict.fromkeys(IMAGES, (256, 256, 3))}
BASE4 = (4,) * 8 + (3,)


def view_of(source: str, name: str) -> View:
    """A view of a source by its name."""
    if name == "plain":
        return View(SHAPES[source])
    if source == "einstein":
        return View(paper.SHAPE)
    if source == VIDEO:
        return View((12, 12, 16, 11, 3, 50))
    return View(BASE4) if name == "stored" else View(BASE4, (0, 4, 1, 5, 2, 6, 3, 7, 8), (16,) * 4 + (3,))


def _pictures(settings: BenchmarkSettings) -> Path:
    """Those of quick runs lie apart."""
    return settings["pictures"] or settings.scratch / ("completion-quick" if settings.quick else "completion")


def load(settings: BenchmarkSettings, source: str) -> np.ndarray:
    """Values from 0 to 1."""
    folder = {VIDEO: "video", "einstein": "einstein"}.get(source, "testimages")
    return _read(settings.folder(folder), source)


@functools.lru_cache(maxsize=4)
def _read(folder: Path, source: str) -> np.ndarray:
    from PIL import Image

    if source == VIDEO:
        return np.asarray(np.load(folder / "carphone_qcif_50.npz")["video"] / 255.0)
    return np.asarray(Image.open(folder / f"{source}.png")) / 255.0


# -- cases ---------------------------------------------------------------------------------------------


def picture_case(
    settings: BenchmarkSettings, part: str, item: str, method: str, variant: str, **params: Any
) -> Case:
    device = settings["device"] if method in ("ours", "tt", "tr") else "cpu"
    limit = {} if method == "ours" else {"max_seconds": settings["rival_seconds"]}
    values = {"method": method, "device": device, **limit, **params}
    return Case(f"{part}/{device}/{item}/{method}/{variant}", values)


def rival_cases(
    settings: BenchmarkSettings,
    part: str,
    item: str,
    ladders: list[tuple[str, str, tuple[int, ...] | None]],
    limit: int,
    common: Row,
) -> Iterator[Case]:
    for method, view, rungs in ladders:
        dims = view_of(common["source"], view).dims
        slow = common["source"] == VIDEO and method in ("tt", "tr") and settings["device"] == "cpu"
        most = min(limit, VIDEO_ALS_SIZE) if slow else limit
        ranks = ladder(method, dims, most) if rungs is None else ladder(method, dims, most, rungs)
        for rank in ranks[:1] if settings.quick else ranks:
            params = {**common, "view": view, "rank": rank}
            yield picture_case(settings, part, item, method, f"{view}-rank{rank:03}", **params)


def einstein_cases(settings: BenchmarkSettings) -> list[Case]:
    """Committees, one network of each size, one from three runs; rivals on the first mask, or on all."""
    seeds: Sequence[int] = (0,) if settings.quick else EINSTEIN_SEEDS
    sizes = (300,) if settings.quick else EINSTEIN_SIZES
    members = {"members": 4, "workers": settings["workers"]}
    cases = []
    for seed in seeds:
        common = {"source": "einstein", "rate": 10, "seed": seed}
        params = {**common, "view": "stored", "max_parameters": sizes[0], **members}
        variant = f"{sizes[0]:05}-members4"
        if not settings.quick:
            cases.append(picture_case(settings, "einstein", f"seed{seed}", "ours", variant, **params))
            params |= {"view": "plain", "tensorize": "stored"}
            variant = f"{sizes[0]:05}-shifts4"
            cases.append(picture_case(settings, "einstein", f"seed{seed}", "ours", variant, **params))
            params = {**common, "view": "stored", "max_parameters": sizes[0], "effort": "thorough"}
            variant = f"{sizes[0]:05}-thorough"
            cases.append(picture_case(settings, "einstein", f"seed{seed}", "ours", variant, **params))
        for size in sizes:
            params = {**common, "view": "stored", "max_parameters": size}
            cases.append(picture_case(settings, "einstein", f"seed{seed}", "ours", f"{size:05}", **params))
    for seed in seeds if settings["all_seeds"] else (0,):
        common = {"source": "einstein", "rate": 10, "seed": seed}
        ladders = [
            ("tt", "stored", None),
            ("tr", "stored", None),
            ("cp", "stored", CP_RUNGS),
            ("cp", "plain", CP_RUNGS),
            ("tucker", "stored", TUCKER_RUNGS),
            ("tucker", "plain", TUCKER_RUNGS),
        ]
        cases += rival_cases(settings, "einstein", f"seed{seed}", ladders, EINSTEIN_LIMIT, common)
    return cases


def image_cases(settings: BenchmarkSettings) -> list[Case]:
    """Four images and a video at three rates, two views each, and the rivals."""
    sources = ("house", VIDEO) if settings.quick else (*IMAGES, VIDEO)
    cases = []
    for source in sources:
        for rate in (20,) if settings.quick else RATES:
            common = {"source": source, "rate": rate, "seed": 0}
            cases += _image_cases(settings, f"{source}@{rate}", common, source == VIDEO)
    return cases


def _image_cases(settings: BenchmarkSettings, item: str, common: Row, is_video: bool) -> list[Case]:
    size = VIDEO_SIZE if is_video else IMAGE_SIZE
    options: Row = {"max_parameters": size}
    limit = settings["video_seconds" if is_video else "image_seconds"]
    if limit is not None:
        options["max_seconds"] = limit
    if settings.quick:
        options = {"max_parameters": 600, "max_seconds": 5.0}
    views = ("plain", "split") if is_video else ("stored", "paired")
    main = "split" if is_video else "stored"
    ours = [picture_case(settings, "images", item, "ours", v, **common, view=v, **options) for v in views]
    ladders = [
        ("tt", main, FEWER if is_video else FEW),
        ("tr", main, FEWER if is_video else FEW),
        ("cp", "plain", FEWER if is_video else CP_RUNGS),
        ("tucker", "plain", TUCKER_RUNGS),
        ("tucker", main, TUCKER_RUNGS[:1]),
    ]
    if not is_video:  # an iteration of CP of order 6 on the video takes a minute
        ladders.append(("cp", main, CP_RUNGS[-1:]))
    return [*ours, *rival_cases(settings, "images", item, ladders, size, common)]


def run(params: Row, settings: BenchmarkSettings) -> Row:
    """Complete one picture with one method; a copy is stored for the figure."""
    plain = load(settings, params["source"])
    mask = random_mask(plain.shape, params["rate"] / 100, params["seed"])
    view = view_of(params["source"], params["view"])
    x, seen = view.of(plain), view.of(mask)
    known = np.where(seen, x, 0.0)  # what is not observed is not even handed over
    if params["method"] == "ours":
        names = ("max_parameters", "max_seconds", "tensorize", "members", "workers", "effort")
        options = {k: params[k] for k in names if k in params}
        if options.get("tensorize", "auto") != "auto":
            options["tensorize"] = view_of(params["source"], options["tensorize"]).tensorization(plain.shape)
        result, row = time_complete(
            known, seen, device=params["device"], random_state=params["seed"], **options
        )
        found = result.fill(known, seen, keep_observed=False)
        if result.members and params.get("tensorize") != "auto":
            row["members"] = [
                {
                    "size": m.num_parameters,
                    "validation_error": m.validation_error,
                    "error": relative_error(m.to_array(), x),
                    "seconds": m.info["seconds"],
                }
                for m in result.members
            ]
    elif params["method"] in FILLINGS:
        options = {k: params[k] for k in ("max_seconds", "truncation") if k in params}
        rival = functools.partial(fill, params["method"], known, seen, **options)
        found, row = time_rival(params["device"], rival, params["max_seconds"])
    else:
        options = {k: params[k] for k in ("rank", "max_seconds", "seed", "device")}
        rival = functools.partial(run_rival, params["method"], known, seen, **options)
        found, row = time_rival(params["device"], rival, params["max_seconds"])
    picture = view.back(found, plain.shape)
    store_picture(settings, params, picture)
    return {**row, **picture_quality(picture, plain, mask), "observed": int(mask.sum())}


# -- report --------------------------------------------------------------------------------------------


def einstein_claims(results: Results) -> list[Row]:
    """Error at two sizes, and the time, per device."""
    found = []
    for device, seconds in EINSTEIN_SECONDS.items():
        every = results.finished(f"einstein/{device}/")
        for size, error in EINSTEIN_CLAIMS.items():
            rows = [r for k, r in every.items() if k.endswith(f"/ours/{size:05}")]
            text = f"einstein, {device}, {size:,} parameters, largest of {len(rows)} seeds"
            found.append(at_most(f"{text}: error", error, (r["error"] for r in rows)))
            found.append(at_most(f"{text}: size", size, (r["size"] for r in rows)))
            found.append(at_most(f"{text}: seconds", seconds, (r["seconds"] for r in rows)))
        for name, ending in (("one run", ""), ("thorough", "-thorough")):
            size = EINSTEIN_SIZES[0]
            errors = [r["error"] for k, r in every.items() if k.endswith(f"/ours/{size:05}{ending}")]
            for word, goal, of in zip(("mean", "worst"), MEAN_AND_WORST, (mean, max)):
                number = of(errors) if errors else None
                text = f"einstein, {device}, {size:,} parameters, {name}: {word} error"
                found.append(
                    claim(text, goal, number, None if number is None else number <= goal, len(errors))
                )
        for name, ending in (("other entries held out", "members4"), ("shifted pictures", "shifts4")):
            rows = [r for k, r in every.items() if k.endswith(f"-{ending}")]
            text = f"einstein, {device}, four members, {name}, largest of {len(rows)} seeds"
            found.append(at_most(f"{text}: error", COMMITTEE_CLAIM, (r["error"] for r in rows)))
            found.append(at_most(f"{text}: seconds", EINSTEIN_SECONDS["cuda"], (r["seconds"] for r in rows)))
    return found


def image_claims(results: Results) -> list[Row]:
    """House at 20 %, stored digits."""
    item, limit = HOUSE_CLAIM
    found = []
    for device in ("cuda", "cpu"):
        row = results.cases.get(f"images/{device}/{item}/ours/stored", {})
        rows = [row] if "error" in row else []
        text = f"images, {device}, {item} as 4^8 x 3"
        found.append(at_most(f"{text}: error", limit, (r["error"] for r in rows)))
        found.append(at_most(f"{text}: size", IMAGE_SIZE, (r["size"] for r in rows)))
    for device in ("cuda", "cpu"):
        wins = count_wins(results, "images", "error", device)
        count = sum(wins)
        text = f"images, {device}: pictures with a smaller error than the best rival (not promised)"
        found.append(claim(text, len(wins), count, count == len(wins) if wins else None, len(wins)))
    return found


def table(results: Results, part: str) -> list[Row]:
    """Every run of ours, and each rival at the rank with the smallest error on the whole picture."""
    columns = ("size", "error", "psnr", "psnr_unobserved", "ssim", "psnr_filled", "seconds", "hit_limit")
    return compare(results, part, "error", "item", columns)


# -- figures -------------------------------------------------------------------------------------------


def _picture_file(settings: BenchmarkSettings, params: Row) -> Path:
    names = ("source", "rate", "seed", "method", "view", "rank", "max_parameters", "members", "truncation")
    names += ("device",)
    return _pictures(settings) / ("-".join(str(params[n]) for n in names if n in params) + ".png")


def store_picture(settings: BenchmarkSettings, params: Row, picture: np.ndarray) -> None:
    """Store a picture, or a frame of a video, for the figure."""
    from PIL import Image

    frame = picture if picture.ndim == 3 else picture[..., FRAME]
    path = _picture_file(settings, params)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.round(255 * np.clip(frame, 0.0, 1.0)).astype(np.uint8)).save(path)


def _panels(results: Results, settings: BenchmarkSettings, part: str, item: str) -> list[tuple[str, Any]]:
    """Titles and pictures of an item: observed, ours, best of each rival, truth."""
    from PIL import Image

    rows = results.finished(f"{part}/")
    ours = {k: r for k, r in rows.items() if k.startswith(f"{part}/{settings['device']}/{item}/ours/")}
    if part == "images":  # a view that ran on another device only is shown from there
        shown = {k.rpartition("/")[2] for k in ours}
        ours |= {k: r for k, r in rows.items() if f"/{item}/ours/" in k and k.rpartition("/")[2] not in shown}
    best = best_rows(results, part, item, "error")
    for method in ("tt", "tr", "cp", "tucker"):
        pairs = [pair for (_, m), pair in best.items() if m == method]
        if pairs:
            ours |= [min(pairs, key=lambda pair: pair[1]["error"])]
    if not ours:
        return []
    params = next(iter(ours.values()))["params"]
    plain = load(settings, params["source"])
    mask = random_mask(plain.shape, params["rate"] / 100, params["seed"])
    if plain.ndim == 4:
        plain, mask = plain[..., FRAME], mask[..., FRAME]
    panels: list[tuple[str, Any]] = [(f"{params['rate']} % of the entries", np.where(mask, plain, 0.0))]
    for row in ours.values():
        file = _picture_file(settings, row["params"])
        name = LABELS[row["params"]["method"]] + (
            f", {row['params']['view']}" if part == "images" or row["params"]["view"] == "plain" else ""
        )
        title = f"{name}\nerror {100 * row['error']:.2f} %, {row['size']:,}"
        panels.append((title, np.asarray(Image.open(file)) if file.exists() else None))
    return [*panels, ("truth", plain)]


def draw(results: Results, settings: BenchmarkSettings, part: str, name: str) -> list[Path]:
    """One row of panels per item; on Einstein two rows for the first mask."""
    items = ["seed0"] if part == "einstein" else [i for i in items_of(results, part) if i.endswith("@20")]
    grid = [p for p in (_panels(results, settings, part, i) for i in items) if p]
    if missing := sum(picture is None for panels in grid for _, picture in panels):
        print(
            f"{name} is not drawn: {missing} pictures are not in {_pictures(settings).name}/; "
            "--fresh makes them again"
        )
        return []
    if not grid:
        return []
    if part == "einstein":
        half = (len(grid[0]) + 1) // 2
        grid = [grid[0][:half], grid[0][half:]]
    columns = max(len(p) for p in grid)
    figure, axes = pyplot().subplots(
        len(grid), columns, figsize=(2.7 * columns, 3.1 * len(grid)), layout="constrained", squeeze=False
    )
    for axis in axes.flat:
        axis.axis("off")
    for line, panels in zip(axes, grid):
        for axis, (title, picture) in zip(line, panels):
            axis.set_title(title, fontsize=9)
            axis.imshow(picture)
    return save_figure(figure, settings.figures / name, dpi=110)
