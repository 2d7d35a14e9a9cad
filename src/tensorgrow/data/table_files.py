"""Tables in files: one row per entry, index columns and a value column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import import_package
from .array_files import reading
from .atomic_file import replacing


def read_table(path: str | Path) -> Any:
    """Read a table as a pandas frame; the ending says how.

    The row numbers that pandas writes to CSV files as a first column without a name are left out.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"no such file: {path}")
    pandas = _pandas(path)
    is_csv = path.suffix.lower() == ".csv"
    with reading(path, "CSV file" if is_csv else "parquet file"):
        frame = pandas.read_csv(path, **_exact(pandas)) if is_csv else pandas.read_parquet(path)
    first = frame.columns[0] if len(frame.columns) else None
    if is_csv and first == "Unnamed: 0" and frame[first].tolist() == list(range(len(frame))):
        frame = frame.drop(columns=first)
    return frame


def write_table(path: str | Path, frame: Any) -> None:
    """Write a pandas frame; the ending says how."""
    path = Path(path)
    _pandas(path)
    with replacing(path) as temporary:
        if path.suffix.lower() == ".csv":
            frame.to_csv(temporary, index=False)
        else:
            frame.to_parquet(temporary, index=False)


def _exact(pandas: Any) -> dict[str, str]:
    """Options to read the digits that were written; since 3.1 pandas always does, and warns of the option."""
    major, minor = map(int, pandas.__version__.split(".")[:2])
    return {} if (major, minor) >= (3, 1) else {"float_precision": "round_trip"}


def _pandas(path: Path) -> Any:
    what = f"{path.suffix} files need pandas and pyarrow"
    if path.suffix.lower() == ".parquet":
        import_package("pyarrow", what, "io")
    return import_package("pandas", what, "io")
