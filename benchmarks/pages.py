"""Numbers in README and docs come from the JSON of the benchmarks: ``make pages`` fills them in.

A number stands between two comments, of which the first says where it comes from:

    <!--= completion ; einstein/*/seed* ; mean test_error ; .2% -->9.02%<!--/-->

File of the results, pattern of keys, function and field, format, with semicolons between them: a bar would
end a cell of a table. The function (`mean`, `median`, `min`, `max`, `sum`, `share` of true values) may be
left out where one row matches; `count` alone counts rows. The field may be a path with dots. A key `summary`
stands for what the benchmark's report sums up; one of its claims is named by its words:

    <!--= calculus ; summary ; claims.eight copies of a ring return to its size.won ; d -->20<!--/-->

A table of a report:

    <!--= table density ; Published data -->
    ...
    <!--/-->

A cell of such a table: title, row (how it begins, as a pattern of its cells with bars between them), function
and column, format (`s`: as it is there). So a sentence says what the report counted:

    <!--= cell completion ; traffic: counts ; ours, default ; smallest RMSE ; d -->8<!--/-->

A sentence of a report, by how it begins:

    <!--= says reproduction/images ; Best rival -->Best rival that reached the error / ours: ...<!--/-->

The claims of a report, met or not, with its limits and numbers:

    <!--= claims traffic -->
    ...
    <!--/-->

Where rows come from (commits, machines, seeds, and how many are of an earlier source than today's):

    <!--= source images ; balanced/* ; thorough/* -->commit 76f42c8; ...<!--/-->

How many rows are of an earlier source changes with every change of the library: `make pages` writes it, and a
page is not wrong for it.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from tensorgrow.data.atomic_file import replacing
from tensorgrow.experiments.experiment import Report
from tensorgrow.experiments.harness import Results, Row, is_stale, table

from . import ROOT
from .registry import RESULTS, commit_exists, find_benchmark, results_file

__all__ = ["PageError", "fill", "is_filled", "number", "pages", "unknown_commits"]

MARK = re.compile(r"(<!--=\s*(.*?)\s*-->)(.*?)(<!--/-->)", re.DOTALL)
# Written after the source of rows of which some are stale; see `is_filled`.
EARLIER = re.compile(
    r"; \d+ of (\d+ measured at an earlier source|them hold for [^;<]*: a sample came out the same)"
)
SOURCES = 3  # commits that are named; more say only that they are many
FUNCTIONS: dict[str, Callable[[list[float]], float]] = {
    "mean": statistics.fmean,
    "median": statistics.median,
    "min": min,
    "max": max,
    "sum": sum,
    "share": statistics.fmean,
}


class PageError(ValueError):
    """A page asks for a number that the results do not have."""


def pages() -> list[Path]:
    """The pages that people read."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def fill(text: str) -> str:
    """A page with its numbers as the results have them."""
    return MARK.sub(lambda found: f"{found[1]}{_answer(found[2])}{found[4]}", text)


def is_filled(text: str) -> bool:
    """Whether the numbers of a page are those of the results, whatever is stale by now."""
    return EARLIER.sub("", fill(text)) == EARLIER.sub("", text)


def _answer(question: str) -> str:
    words = [word.strip() for word in question.split(";")]
    if words[0].startswith("source "):
        return _source(words[0].removeprefix("source ").strip(), words[1:])
    if words[0].startswith("table "):
        return _table(words[0].removeprefix("table ").strip(), "; ".join(words[1:]))
    if words[0].startswith("claims "):
        return _claims(words[0].removeprefix("claims ").strip())
    if words[0].startswith("says "):
        return _sentence(words[0].removeprefix("says ").strip(), "; ".join(words[1:]))
    if words[0].startswith("cell "):
        if len(words) < 5:
            raise PageError(f"{question!r} is not: cell file ; title ; row ; function column ; format")
        title = "; ".join(words[1:-3])
        value = _cell(words[0].removeprefix("cell ").strip(), title, words[-3], words[-2], words[-1])
        return format(value, words[-1])
    if len(words) != 4:
        raise PageError(f"{question!r} is not: file ; keys ; function field ; format")
    name, keys, field, form = words
    document = {"summary": _report(name).summary} if keys == "summary" else _read(name)
    return format(number(document, name, keys, field), form)


def number(document: Row, name: str, keys: str, field: str) -> Any:
    """The number that a page asks the results of a benchmark for."""
    if keys == "summary":
        return _follow(document["summary"], field, f"the summary of {name}")
    rows = _matching(document, keys)
    function, _, path = field.rpartition(" ")
    if path == "count":
        return len(rows)
    if not rows:
        raise PageError(f"{name} has no row {keys!r}")
    values = [_follow(row, path, f"{name}: {key}") for key, row in rows.items()]
    if function:
        return FUNCTIONS[function](values)
    if len(values) > 1:
        raise PageError(f"{name} has {len(values)} rows {keys!r}: say which function of {path} is meant")
    return values[0]


def _matching(document: Row, keys: str) -> dict[str, Row]:
    """Finished rows whose key has this pattern."""
    return {k: r for k, r in document["cases"].items() if fnmatchcase(k, keys) and not _is_missing(r)}


def _is_missing(row: Row) -> bool:
    return "failed" in row or "skipped" in row


def _follow(value: Any, path: str, what: str) -> Any:
    """What a path with dots leads to; lists take numbers, those of claims their words."""
    for step in path.split("."):
        try:
            if isinstance(value, list):
                value = value[int(step)] if step.isdecimal() else _claim_of(value, step)
            else:
                value = value[step]
        except (KeyError, IndexError, TypeError):
            raise PageError(f"{what} has no {path!r}") from None
    return value


def _claim_of(claims: list[Any], words: str) -> Any:
    return next((c for c in claims if c["claim"] == words), None)


@cache
def _read(name: str) -> Row:
    path = results_file(name)
    if not path.exists():
        raise PageError(f"there are no results of {name!r}")
    document: Row = json.loads(path.read_text(encoding="utf-8"))
    return document


@cache
def _report(name: str) -> Report:
    return find_benchmark(name).report(Results(results_file(name)))


def _table(name: str, title: str) -> str:
    """The table of that title in a benchmark's report, without the title."""
    head = f"**{title}**\n\n"
    found = [part.removeprefix(head) for part in _report(name).parts if part.startswith(head)]
    if not found:
        raise PageError(f"the report of {name} has no table {title!r}")
    return f"\n{found[0]}"


def _cell(name: str, title: str, pattern: str, field: str, form: str) -> Any:
    """A cell of a table, or a function of those of a column; a number unless the format is that of text."""
    head, _, *rows = [line[2:-2].split(" | ") for line in _table(name, title).strip().splitlines()]
    texts = [" | ".join(cells) for cells in rows]
    found = [
        cells for cells, text in zip(rows, texts) if fnmatchcase(text, pattern) or _begins(text, pattern)
    ]
    if field == "count":
        return len(found)
    function, column = "", field
    if column not in head:
        function, _, column = field.partition(" ")
    if column not in head or (function and function not in FUNCTIONS):
        raise PageError(f"{title!r} of {name} has no column {field!r}, but {', '.join(head)}")
    cells = [cells[head.index(column)] for cells in found]
    if not cells:
        raise PageError(f"{title!r} of {name} has no row {pattern!r}")
    if function:
        return FUNCTIONS[function]([_number_of(cell, name, title) for cell in cells])
    if len(cells) > 1:
        raise PageError(f"{title!r} of {name} has {len(cells)} rows {pattern!r}: say which function is meant")
    return cells[0] if form.endswith("s") else _number_of(cells[0], name, title)


def _begins(text: str, pattern: str) -> bool:
    return fnmatchcase(text, f"{pattern} | *")


def _number_of(cell: str, name: str, title: str) -> float:
    text = cell.strip("*").replace(",", "")
    try:
        number = float(text)
    except ValueError:
        raise PageError(f"{title!r} of {name} has {cell!r} where a number is asked for") from None
    return int(number) if number.is_integer() else number


def _sentence(name: str, beginning: str) -> str:
    """What a report says in a paragraph that begins so."""
    found = [part.strip() for part in _report(name).parts if part.startswith(beginning)]
    if len(found) != 1 or not beginning:
        raise PageError(f"the report of {name} has {len(found)} paragraphs that begin with {beginning!r}")
    return found[0]


def _claims(name: str) -> str:
    """Every claim of a report: none is left out because it was not met."""
    claims = (_report(name).summary or {}).get("claims", [])
    if not claims:
        raise PageError(f"the report of {name} makes no claims")
    lines = []
    for claim in claims:
        won = "won" in claim
        goal = claim["cases"] if won else claim["limit"]
        measured = claim["won"] if won else claim["measured"]
        lines.append(
            [claim["claim"], goal, measured, claim["cases"], "met" if claim["met"] else "**not met**"]
        )
    return f"\n{table(['claim', 'goal', 'measured', 'cases', ''], lines)}"


def _source(name: str, patterns: Sequence[str]) -> str:
    """Where the rows of some patterns come from, in a line."""
    document = _read(name)
    rows: dict[str, Row] = {}
    for pattern in patterns:
        rows |= (found := _matching(document, pattern))
        if not found:
            raise PageError(f"{name} has no row {pattern!r}")
    places = [document["environments"][r["environment"]] for r in rows.values()]
    stale = sum(map(is_stale, rows.values()))
    words = [
        _join({_name_source(place) for place in places}, "sources"),
        _join(
            {_name_machine(place, key, row) for place, (key, row) in zip(places, rows.items())}, "machines"
        ),
        _name_seeds(rows.values()),
        f"{len(rows)} row{'s' if len(rows) > 1 else ''}",
    ]
    held = [r["confirmed"] for r in rows.values() if "confirmed" in r and not is_stale(r)]
    if held:
        commits = _join({h["commit"][:7] for h in held}, "commits")
        words.append(f"{len(held)} of them hold for {commits}: a sample came out the same")
    earlier = f"; {stale} of {len(rows)} measured at an earlier source" if stale else ""
    return "; ".join(word for word in words if word) + earlier


def _name_source(place: Row) -> str:
    commit = place.get("commit")
    return f"commit {commit[:7]}" if commit else f"source {place['tensorgrow_source'][:7]} (no commit noted)"


def _name_machine(place: Row, key: str, row: Row) -> str:
    if place["gpu"] and ("cuda" in key.split("/") or row["params"].get("device") == "cuda"):
        return str(place["gpu"])
    threads = f"{place['threads']} thread{'s' if place['threads'] != 1 else ''}"
    both = f", {place['gpu']}" if any(field.startswith("cuda") for field in row) else ""
    return f"{place['cpu']}, {place['cores']} cores, {threads}{both}"


def _name_seeds(rows: Iterable[Row]) -> str:
    """The seeds of the rows, as a range where they have no gaps; nothing where rows name none."""
    seeds = sorted({s for r in rows if isinstance(s := r["params"].get("seed"), int)})
    if not seeds:
        return ""
    if len(seeds) > 2 and seeds == list(range(seeds[0], seeds[-1] + 1)):
        return f"seeds {seeds[0]} to {seeds[-1]}"
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"


def _join(names: set[str], what: str) -> str:
    return " and ".join(sorted(names)) if len(names) <= SOURCES else f"{len(names)} {what}"


def unknown_commits() -> dict[str, list[str]]:
    """Commits that rows name and the repository does not have, by file of the results."""
    unknown = {}
    for path in sorted(RESULTS.rglob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        names = {place["commit"] for place in document["environments"] if place.get("commit")}
        names |= {row["confirmed"]["commit"] for row in document["cases"].values() if "confirmed" in row}
        if missing := sorted(n for n in names if not commit_exists(n)):
            unknown[path.name] = missing
    return unknown


def main(argv: Sequence[str]) -> int:
    """Fill in the pages, or say which are not what the results are."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.pages",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--check", action="store_true", help="change nothing; fail where a number differs")
    check = parser.parse_args(argv).check
    changed = []
    for path in pages():
        text = path.read_text(encoding="utf-8")
        try:
            filled = text if check and is_filled(text) else fill(text)
        except PageError as error:
            print(f"{path.name}: {error}", file=sys.stderr)
            return 2
        if filled != text:
            changed.append(path.name)
            if not check:
                with replacing(path) as temporary:
                    temporary.write_text(filled, encoding="utf-8")
    if changed:
        print(f"{'not as the results are' if check else 'filled in'}: {', '.join(changed)}")
    return int(check and bool(changed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
