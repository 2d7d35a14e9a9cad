"""Run the calls, store what comes out, compare with what was stored."""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import io
import json
import math
import multiprocessing
import os
import random
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

import tensorgrow as tg

from .calls import CALLS
from .refusals import REFUSALS

__all__ = ["compare", "main", "run_one"]

FILE = Path(__file__).with_name("record.json")
RELATIVE, ABSOLUTE = 1e-6, 1e-12
# Errors below this are rounding: of any two of them neither is better.
ROUNDING = 1e-10

Record = dict[str, Any]


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the record (default)")
    parser.add_argument("--write", action="store_true", help="store what comes out")
    parser.add_argument("--only", metavar="PATTERN", help="part of the name, or a pattern like 'nn/*'")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--list", action="store_true", help="only print the names")
    parser.add_argument("--file", type=Path, default=FILE, help="the record")
    chosen = parser.parse_args(arguments)
    if chosen.write and chosen.check:
        parser.error("--write or --check, not both")
    names = [n for n in (*CALLS, *REFUSALS) if _matches(n, chosen.only)]
    if not names:
        parser.error(f"no call matches {chosen.only!r}")
    if chosen.list:
        print("\n".join(names))
        return 0
    stored: Record = json.loads(chosen.file.read_text()) if chosen.file.exists() else {}
    print(f"tensorgrow from {tg.__file__}: {len(names)} calls")
    begin = time.perf_counter()
    found = dict(_all(names, chosen.jobs))
    seconds = time.perf_counter() - begin
    if chosen.write:
        kept = {} if chosen.only is None else stored.get("calls", {})
        both = {**kept, **found}
        calls = {n: both[n] for n in (*CALLS, *REFUSALS) if n in both}
        document = {"versions": _versions(), "calls": calls}
        chosen.file.write_text(json.dumps(document, indent=1) + "\n")
        failed = [n for n in CALLS if n in found and "raised" in found[n]]
        print(f"wrote {len(found)} calls in {seconds:.1f} s; raised: {failed or 'none'}")
        return 0
    return _report(stored, found, seconds, everything=chosen.only is None)


def _report(stored: Record, found: Record, seconds: float, *, everything: bool) -> int:
    """Print all differences; 1 if there are any."""
    if stored.get("versions") != _versions():
        print(f"note: the record was made with {stored.get('versions')}, this is {_versions()}")
    before = stored.get("calls", {})
    missing = [n for n in before if n not in found] if everything else []
    differing = 0
    for name in [*missing, *found]:
        if name not in before or name not in found:
            where = "the record" if name in found else "the calls"
            print(f"DIFFERENT {name}: not in {where}")
            differing += 1
            continue
        lines = list(compare(before[name], found[name]))
        for field, old, new in lines:
            print(f"DIFFERENT {name}: {field}: {old!r} -> {new!r}")
        differing += bool(lines)
    print(f"{len(found)} calls in {seconds:.1f} s, {differing} differ")
    return 1 if differing else 0


def compare(old: Any, new: Any, field: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Fields that differ: name, value before, value after."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in [*old, *(k for k in new if k not in old)]:
            inner = f"{field}.{key}" if field else str(key)
            if key not in old or key not in new:
                yield inner, old.get(key, "(absent)"), new.get(key, "(absent)")
            else:
                yield from compare(old[key], new[key], inner)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for k, (a, b) in enumerate(zip(old, new)):
            yield from compare(a, b, f"{field}[{k}]")
    elif not _same(old, new):
        yield field, old, new


def _same(old: Any, new: Any) -> bool:
    if isinstance(old, str) and isinstance(new, str):
        return _rounded(old) == _rounded(new)
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in (old, new))
    if not numbers or not (isinstance(old, float) or isinstance(new, float)):
        return type(old) is type(new) and old == new
    if math.isnan(old) or math.isnan(new):
        return math.isnan(old) and math.isnan(new)
    if max(abs(old), abs(new)) < ROUNDING:
        return True
    return old == new or abs(old - new) <= ABSOLUTE + RELATIVE * abs(old)


def _rounded(text: str) -> str:
    """A text with the long numbers in it rounded, so that they may differ as others do."""
    return re.sub(r"\d+\.\d{7,}(e[+-]?\d+)?", lambda found: f"{float(found[0]):.6g}", text)


def _all(names: list[str], jobs: int) -> Iterator[tuple[str, Record]]:
    """Every call with what came out, and a line for each."""
    if jobs <= 1:
        outcomes = map(run_one, names)
        yield from _told(outcomes, len(names))
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        found = dict(_told(pool.imap_unordered(run_one, names), len(names)))
    yield from ((n, found[n]) for n in names)


def _told(outcomes: Any, count: int) -> Iterator[tuple[str, Record]]:
    for k, (name, found, seconds) in enumerate(outcomes, 1):
        problem = f"  raised {found['raised']}: {found['message']}" if "raised" in found else ""
        if problem and name in REFUSALS:
            problem = ""
        print(f"[{k:3}/{count}] {seconds:6.2f} s  {name}{problem}", flush=True)
        yield name, found


def run_one(name: str) -> tuple[str, Record, float]:
    """Run one call in a folder of its own; an error it raises is its outcome.

    Returns
    -------
    tuple
        The name, the outcome and the seconds it took.
    """
    torch.set_num_threads(1)
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002 - for whoever uses the global generator
    random.seed(0)
    call = CALLS.get(name) or REFUSALS[name]
    here = Path.cwd()
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="golden") as folder, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        os.chdir(folder)
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                found: Record = json.loads(json.dumps(call(Path(folder))))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what happened
            found = {"raised": type(error).__name__, "message": str(error)}
        finally:
            os.chdir(here)
        notes = sorted({str(w.message) for w in said if issubclass(w.category, tg.DataWarning)})
        if notes:
            found["warnings"] = notes
        if name in REFUSALS and not ({"raised", "exit_code"} & set(found)):
            found = {"raised": None}
        found = _cleaned(found, folder)
    return name, found, time.perf_counter() - begin


def _cleaned(value: Any, folder: str) -> Any:
    """Without what is of this machine and this process: folders and addresses."""
    if isinstance(value, Mapping):
        return {str(k): _cleaned(v, folder) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(v, folder) for v in value]
    if isinstance(value, str):
        for path in (os.path.realpath(folder), folder, os.path.realpath(tempfile.gettempdir())):
            value = value.replace(path, "<tmp>")
        value = re.sub(r"<tmp>/[\w.-]*golden\w*", "<tmp>", value)
        value = re.sub(r"\b0x[0-9a-fA-F]{6,}", "0x...", value)
    return value


def _matches(name: str, pattern: str | None) -> bool:
    return pattern is None or pattern in name or fnmatch.fnmatchcase(name, pattern)


def _versions() -> dict[str, str]:
    return {
        "python": ".".join(map(str, sys.version_info[:2])),
        "numpy": np.__version__,
        "torch": torch.__version__,
    }
