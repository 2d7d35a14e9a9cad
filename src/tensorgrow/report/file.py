"""From a result to the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..plotting.values import ImageMaker, Rivals
from ..results import Result
from .content import collect
from .images import collect_images
from .page import render

__all__ = ["write_report"]


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
) -> Path:
    """Write the page of a result; see `Result.report`."""
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: the folder {path.parent} does not exist")
    content = collect(result, rivals)
    if image is not None:
        content["images"] = collect_images(result, content["steps"], image, truth, observed)
    page = render(result, content, title=title, file_name=saved_as or f"{path.stem}.safetensors")
    # A title may hold half a surrogate pair, which no encoding has; it must not cost the report.
    path.write_bytes(page.encode("utf-8", errors="replace"))
    return path
