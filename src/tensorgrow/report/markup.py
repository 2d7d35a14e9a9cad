"""What pages are made of: their frame and file, assets, cards and rows of tables."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from .._version import __version__
from ..data.atomic_file import replacing
from ..errors import FileFormatError

# What a page with a script shows beside its title, and ends with.
_BUTTON = """\
  <button type="button" id="theme" aria-label="Switch between light and dark">◐</button>
"""
_SCRIPTS = """\
<script type="application/json" id="data">$data</script>
<script>$script</script>
"""


def write_page(
    path: Path,
    main: str,
    *,
    title: str,
    subtitle: str,
    skip: tuple[str, str],
    info: Mapping[str, Any],
    script: str = "",
    data: str = "",
) -> Path:
    """Write a page whole or not at all.

    Parameters
    ----------
    main
        What stands between the title and `info`, what is known of the run; HTML, as `subtitle` is.
    skip
        An element, and what it is called: where readers jump to that do not want the summary.
    script, data
        What draws, and the JSON that it draws.
    """
    style = asset("page.css")
    page = Template(asset("frame.html")).substitute(
        title=escape(title),
        style=style,
        policy=_policy(style, script),
        subtitle=subtitle,
        target=skip[0],
        name=skip[1],
        button=_BUTTON if script else "",
        main=main,
        environment=_environment(info),
        version=escape(__version__),
        scripts=Template(_SCRIPTS).substitute(data=data, script=script) if script else "",
    )
    # A title may hold half a surrogate pair, which cannot be encoded: replace it rather than fail.
    with replacing(path) as temporary:
        temporary.write_bytes(page.encode("utf-8", errors="replace"))
    return path


def _policy(style: str, script: str) -> str:
    """Say that only this style and script may run, and that nothing may be fetched."""
    return escape(
        f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'"
    )


def check_page_name(path: Path) -> None:
    """Refuse a file that no browser would open as a page."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise FileFormatError(f"cannot write {path}: the name of a page ends in .html")


def asset(name: str) -> str:
    """Return the text of a file beside this package."""
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def row_cells(tag: str, values: Iterable[str]) -> str:
    """Write the cells of a row."""
    return "".join(f"<{tag}>{escape(str(v))}</{tag}>" for v in values)


def cards(values: Sequence[tuple[str, str]]) -> str:
    """Write the numbers of a summary; the one to judge by stands first and is marked."""
    kinds = ["card lead", *["card"] * (len(values) - 1)]
    return "".join(
        f'<div class="{kind}"><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>'
        for kind, (name, value) in zip(kinds, values)
    )


def _environment(info: Mapping[str, Any]) -> str:
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
