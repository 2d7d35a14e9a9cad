"""What pages are made of: assets, the policy of a page, rows of tables, and the file."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..data.atomic_file import replacing
from ..errors import FileFormatError


def policy(style: str, script: str) -> str:
    """Say that only this style and script may run, and that nothing may be fetched."""
    return escape(
        f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'"
    )


def check_page_name(path: Path) -> None:
    """Refuse a file that no browser would open as a page."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise FileFormatError(f"cannot write {path}: the name of a page ends in .html")


def write_page(path: Path, page: str) -> Path:
    """Write the file whole or not at all."""
    # A title may hold half a surrogate pair, which cannot be encoded: replace it rather than fail.
    with replacing(path) as temporary:
        temporary.write_bytes(page.encode("utf-8", errors="replace"))
    return path


def asset(name: str) -> str:
    """Return the text of a file beside this package."""
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def row_cells(tag: str, values: Iterable[str]) -> str:
    """Write the cells of a row."""
    return "".join(f"<{tag}>{escape(str(v))}</{tag}>" for v in values)


def environment(info: Mapping[str, Any]) -> str:
    """Write what is known of the run: plain values in a list, nested ones folded away."""
    plain = {k: v for k, v in info.items() if not isinstance(v, Mapping | list | tuple)}
    nested = {k: v for k, v in info.items() if k not in plain}
    rows = "".join(
        f"<div><dt>{escape(str(k).replace('_', ' '))}</dt><dd>{escape(_plain(v))}</dd></div>"
        for k, v in plain.items()
    )
    folded = ""
    for k, v in nested.items():
        text = escape(json.dumps(v, indent=2, default=str))
        folded += f"<details><summary>{escape(str(k))}</summary><pre>{text}</pre></details>"
    return (f"<dl class=facts>{rows}</dl>" if rows else "<p>Nothing was recorded.</p>") + folded


def _plain(value: Any) -> str:
    if value is None:
        return "none"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
