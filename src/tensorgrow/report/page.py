"""The page: what is only read is written here, what moves is drawn by ``page.js``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from ..data.atomic_file import check_folder
from ..plotting.growth import Rivals
from ..plotting.picture import ImageMaker, View, as_dense
from ..results import Result
from .comparison import Comparison, Filling, compare
from .content import collect
from .images import collect_images
from .markup import asset, cards, check_page_name, row_cells, write_page
from .numbers import member_table, number, shape_text, summary
from .quality import measure, own_array


def write_report(
    result: Result,
    path: str | Path,
    *,
    title: str | None = None,
    image: ImageMaker | None = None,
    truth: Any = None,
    observed: Any = None,
    rivals: Rivals | None = None,
    saved_as: str | None = None,
    comparison: Comparison | None = None,
) -> Path:
    """Write the page of a result; see `Result.report`. A `comparison` that was made already is taken."""
    path = Path(path)
    check_page_name(path)
    check_folder(path)
    content = collect(result, rivals)
    content["name"] = path.stem
    view = None if image is None else View(image, result.tensorization)
    exact, seen = (
        None if tensor is None else own_array(result, tensor, name)
        for name, tensor in (("truth", truth), ("observed", observed))
    )
    if comparison is None:
        saved = Comparison.from_dict(result.info.get("interpolation"))
        comparison = saved if seen is None else compare(result, seen, exact, view)
    pictures: dict[str, str] = {}
    if view is not None:
        content["images"], pictures = collect_images(result, content["steps"], view, exact, seen, comparison)
    quality: dict[str, float] = {}
    if exact is not None:
        estimate = as_dense(result)
        quality = measure(estimate if seen is None else np.where(np.isnan(seen), estimate, seen), exact, view)
    shape = shape_text(result.structure.dims)
    own = shape if result.tensorization is None else shape_text(result.tensorization.shape)
    main = Template(asset("page.html")).substitute(
        cards=_cards(result, quality),
        stop=f"<b>{escape(result.stop.name)}</b> {escape(result.stop.text)}",
        filled=_filled(comparison, pictures),
        pictures_hidden="" if "images" in content else " hidden",
        members=_members(result),
        rivals=_rivals(result, content),
        table=_table(content),
        table_note=_note_thinning(content),
        file_name=escape(repr(saved_as or f"{path.stem}.safetensors")),
    )
    return write_page(
        path,
        main,
        title=title or f"A {own} tensor in {result.num_parameters:,} numbers",
        subtitle=_describe(result, shape),
        skip=("growth", "growth of the network"),
        info=result.info,
        script=asset("page.js"),
        data=_as_script_data(content),
    )


def _as_script_data(content: Mapping[str, Any]) -> str:
    """JSON that cannot end its own script element, whatever strings it holds."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _describe(result: Result, shape: str) -> str:
    structure = result.structure
    inside = len(structure.internal_nodes)
    how = result.tensorization
    array = "" if how is None else f"{shape_text(how.shape)} as "
    parts = [
        f"{array}{shape} = {structure.num_entries:,} entries",
        f"{structure.num_nodes} cores" + (f" ({inside} internal)" if inside else ""),
        f"{len(structure.edges)} edges",
    ]
    return escape(" · ".join(parts))


def _cards(result: Result, quality: Mapping[str, float]) -> str:
    values = summary(result)
    if quality:
        values += [("PSNR", f"{quality['psnr']:.1f} dB"), ("largest deviation", number(quality["largest"]))]
    seconds = result.info.get("seconds", result.history[-1].seconds if result.history else None)
    if isinstance(seconds, int | float):
        values.append(("seconds", f"{seconds:,.3g}"))
    values.append(("steps", f"{len(result.history):,}"))
    return cards(values)


# What the pictures of a completion are called, by their names in `collect_images`.
_CAPTIONS = {"original": "Original", "observed": "Known entries"}


def _filled(comparison: Comparison | None, pictures: Mapping[str, str]) -> str:
    """Write the panel of a completion beside interpolation: pictures, a table, and who does better."""
    if comparison is None:
        return ""
    fillings = [comparison.ours, *comparison.others]
    qualities = {f.name: _quality(f) for f in fillings}
    figures = ""
    for name, source in pictures.items():
        caption = " · ".join(t for t in (_CAPTIONS.get(name, _capital(name)), qualities.get(name)) if t)
        figures += (
            f'<figure data-name="{escape(name)}"><img src="{source}" alt="{escape(caption)}">'
            f"<figcaption>{escape(caption)}</figcaption></figure>"
        )
    columns = {
        f"error on {comparison.where} entries": [number(f.error) for f in fillings],
        "PSNR": ["" if f.psnr is None else f"{f.psnr:.1f} dB" for f in fillings],
        "SSIM": ["" if f.ssim is None else f"{f.ssim:.3f}" for f in fillings],
    }
    columns = {head: cells for head, cells in columns.items() if any(cells)}
    rows = "".join(
        f"<tr><th scope=row>{escape(f.name)}</th>{row_cells('td', cells)}</tr>"
        for f, *cells in zip(fillings, *columns.values())
    )
    table = f"<thead><tr>{row_cells('th', ['method', *columns])}</tr></thead><tbody>{rows}</tbody>"
    verdict = comparison.verdict
    return (
        '<section id="filled" class="panel" aria-labelledby="filled-title">'
        '<h2 id="filled-title">What was filled in</h2>'
        + (f'<p class="stop warn">{escape(_capital(verdict))}.</p>' if verdict else "")
        + (f'<div class="filled">{figures}</div>' if figures else "")
        + (f'<div class="scroll"><table id="fillings">{table}</table></div>' if columns else "")
        + '<p class="muted">Known entries keep their values.</p></section>'
    )


def _quality(filling: Filling) -> str:
    """Peak signal to noise and structural similarity, as far as they are known."""
    parts = ["" if filling.psnr is None else f"PSNR {filling.psnr:.1f} dB"]
    parts.append("" if filling.ssim is None else f"SSIM {filling.ssim:.3f}")
    return ", ".join(p for p in parts if p)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _members(result: Result) -> str:
    """Write the panel of a committee; empty for a single network."""
    if not result.members:
        return ""
    heads, rows = member_table(result)
    body = "".join(f"<tr><th scope=row>{escape(row[0])}</th>{row_cells('td', row[1:])}</tr>" for row in rows)
    return (
        '<section class="panel" aria-labelledby="members-title"><h2 id="members-title">Members</h2>'
        '<p class="muted">Answers are the mean of these networks by their shares. The network that is drawn, '
        "its growth, spectra and steps are those of the best: the one with the least held-out error.</p>"
        f'<div class="scroll"><table id="members"><thead><tr>{row_cells("th", heads)}</tr></thead>'
        f"<tbody>{body}</tbody></table></div></section>"
    )


def _rivals(result: Result, content: Mapping[str, Any]) -> str:
    """Write the table of other methods, ours first; empty where there are none."""
    others = [(s["name"], p) for s in content["series"] if s["role"] == "rival" for p in s["points"]]
    if not others:
        return ""
    ours = ("this run", (result.num_parameters, result.errors.total))
    rows = []
    for name, (size, error, *_) in [ours, *others]:
        cells = [f"{size:,.0f}", f"{size / result.num_parameters:.2f}", number(error)]
        rows.append(f"<tr><th scope=row>{escape(name)}</th>{row_cells('td', cells)}</tr>")
    heads = row_cells("th", ["method", "parameters", "times ours", str(content["error_name"])])
    table = f"<thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return f'<div class="scroll"><table id="rivals">{table}</table></div>'


def _table(content: Mapping[str, Any]) -> str:
    """Write the table of steps, without columns that would be empty."""
    steps = content["steps"]
    several = len({s["start"] for s in steps}) > 1
    held_out = any(s["validation"] is not None for s in steps)
    heads = ["step", *(["growth"] if several else []), "move", "edge", "rank", "parameters"]
    heads += [str(content["error_name"]), *(["held-out"] if held_out else []), "seconds"]
    rows = []
    for n, step in enumerate(steps):
        edge = "" if step["edge"] is None else "–".join(str(k) for k in step["edge"])
        cells = [
            *([str(step["start"] + 1)] if several else []),
            step["kind"],
            edge,
            "" if step["rank"] is None else str(step["rank"]),
            f"{step['size']:,}",
            number(step["error"]),
            *([number(step["validation"])] if held_out else []),
            "" if step["seconds"] is None else f"{step['seconds']:.2f}",
        ]
        button = f'<button type="button" data-step="{n}">{int(step["index"])}</button>'
        rows.append(f"<tr><th scope=row>{button}</th>{row_cells('td', cells)}</tr>")
    return f"<thead><tr>{row_cells('th', heads)}</tr></thead><tbody>{''.join(rows)}</tbody>"


def _note_thinning(content: Mapping[str, Any]) -> str:
    shown, total = len(content["steps"]), content["num_steps"]
    if not total:
        return "This result was saved without its history."
    return "" if shown == total else f"{shown:,} of {total:,} steps are shown, spread evenly."
