"""The page of a compression: every layer with its new form, sizes, errors and times."""

from __future__ import annotations

from html import escape
from pathlib import Path
from string import Template

from ..data.atomic_file import check_folder
from ..data.sizes import bytes_text
from ..nn.compression.result import CompressResult, LayerReport
from ..nn.kinds.kind import ROWS
from .markup import asset, cards, check_page_name, row_cells, write_page
from .notebook import network_svg


def write_compression(result: CompressResult, path: str | Path, *, title: str | None = None) -> Path:
    """Write the page of a compression; see `CompressResult.report`."""
    path = Path(path)
    check_page_name(path)
    check_folder(path)
    forms = "".join(_form(r) for r in result.layers if r.structure is not None)
    main = Template(asset("compression.html")).substitute(
        cards=_cards(result),
        notice=_notice(result),
        rows=ROWS,
        table=_table(result),
        left=_left(result),
        forms=forms,
        forms_hidden="" if forms else " hidden",
        file_name=escape(repr(f"{path.stem}.safetensors")),
    )
    return write_page(
        path,
        main,
        title=title or f"A model in {result.num_parameters:,} numbers",
        subtitle=escape(_subtitle(result)),
        skip=("layers-title", "layers"),
        info=result.info,
    )


def _subtitle(result: CompressResult) -> str:
    changed = sum(r.structure is not None for r in result.layers)
    parts = [f"{type(result.model).__name__}", f"{changed} of {len(result.layers)} chosen layers replaced"]
    if result.info.get("calibrated"):
        parts.append("errors weighted by calibration data")
    return " · ".join(parts)


def _cards(result: CompressResult) -> str:
    values = [
        ("times smaller", f"{result.compression_ratio:.3g}"),
        ("parameters", f"{result.num_parameters:,}"),
        ("before", f"{result.parameters_before:,}"),
        ("memory of parameters", bytes_text(result.num_bytes)),
        ("before", bytes_text(result.bytes_before)),
    ]
    if result.latency_after is not None and result.latency_before is not None:
        values.append(("latency of a batch", _milliseconds(result.latency_after)))
        values.append(("before", _milliseconds(result.latency_before)))
    seconds = result.info.get("seconds")
    if isinstance(seconds, int | float):
        values.append(("seconds", f"{seconds:,.3g}"))
    return cards(values)


def _notice(result: CompressResult) -> str:
    if not result.info.get("interrupted"):
        return ""
    return (
        '<p class="stop warn">The search was cut short: layers not searched by then are truncated SVDs.</p>'
    )


def _table(result: CompressResult) -> str:
    largest = max((r.parameters_before for r in result.layers), default=1)
    heads = ["layer", "module", "form", "parameters", "", "error", "of outputs", "latency, ms", "memory"]
    rows = []
    for r in result.layers:
        known = r.latency_before is not None and r.latency_after is not None
        times = [1e3 * (r.latency_before or 0.0), 1e3 * (r.latency_after or 0.0)]
        values = [
            f"{r.module} {r.in_features} → {r.out_features}",
            r.kind + (f", {r.note}" if r.note else ""),
            f"{r.parameters_before:,} → {r.parameters_after:,}",
        ]
        more = [
            f"{r.relative_error:.3g}",
            "" if r.weighted_error is None else f"{r.weighted_error:.3g}",
            f"{times[0]:.3g} → {times[1]:.3g}" if known else "",
            f"{bytes_text(r.bytes_before)} → {bytes_text(r.bytes_after)}",
        ]
        bar = f"<td>{_bar(r, largest)}</td>"
        name = escape(r.name or "model")
        rows.append(
            f"<tr><th scope=row>{name}</th>{row_cells('td', values)}{bar}{row_cells('td', more)}</tr>"
        )
    return f"<thead><tr>{row_cells('th', heads)}</tr></thead><tbody>{''.join(rows)}</tbody>"


def _bar(report: LayerReport, largest: int) -> str:
    """Draw the parameters before and after, one bar above the other."""
    before, after = (max(80 * n / largest, 1) for n in (report.parameters_before, report.parameters_after))
    return (
        '<svg width="82" height="14" role="img" aria-label="parameters before and after">'
        f'<rect class="bar-before" width="{before:.1f}" height="6" y="1"/>'
        f'<rect class="bar-after" width="{after:.1f}" height="6" y="8"/></svg>'
    )


def _left(result: CompressResult) -> str:
    """Write the panel of layers that were left as they are; empty where there are none."""
    if not result.left:
        return ""
    rows = "".join(
        f"<tr><th scope=row>{escape(name or 'model')}</th>{row_cells('td', [reason])}</tr>"
        for name, reason in result.left.items()
    )
    return (
        '<section class="panel" aria-labelledby="left-title"><h2 id="left-title">Left as they are</h2>'
        f'<div class="scroll"><table id="left"><thead><tr>{row_cells("th", ["layer", "why"])}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div></section>"
    )


def _form(report: LayerReport) -> str:
    """Draw the network of a layer, with what it is about."""
    structure, layout = report.structure, report.layout
    assert structure is not None and layout is not None
    # A drawing of more cores says nothing.
    drawing = network_svg(structure) if structure.num_nodes <= 30 else ""
    ratio = report.parameters_before / max(report.parameters_after, 1)
    caption = (
        f"<b>{escape(report.name or 'model')}</b> · {escape(report.kind)}, digits {escape(str(layout))} · "
        f"{report.parameters_after:,} parameters, {ratio:.3g}x smaller"
    )
    return f"<figure><div>{drawing}</div><figcaption>{caption}</figcaption></figure>"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"
