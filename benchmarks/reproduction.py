"""What pages need beside the reports of the paper's experiments: the limits that methods ran with."""

from __future__ import annotations

import re
from collections.abc import Callable

from tensorgrow.experiments.experiment import Report
from tensorgrow.experiments.harness import Results, Row
from tensorgrow.experiments.images import ONE_RUN
from tensorgrow.experiments.methods import LABELS

__all__ = ["with_limits"]

# What a line of the report says of a rival that missed the error.
AT_ITS_ERROR = re.compile(r"\| ([\d.]+) at its error \|")
# Parameters that only rows with the present rules for rivals have; see `tensorgrow.experiments.images`.
NEWER = ("limits", "iterations")


def with_limits(report: Callable[[Results], Report]) -> Callable[[Results], Report]:
    """A report on images that also says how long methods had, and which rows are of an older rule."""

    def longer(results: Results) -> Report:
        out = report(results)
        out.tabulate_rows("Limits", limits(results))
        ratios = [float(r) for part in out.parts for r in AT_ITS_ERROR.findall(part)]
        if ratios:
            out.say(
                "Rivals that missed the error / ours at the error that they had: "
                f"{min(ratios):.2f} to {max(ratios):.2f}, below 1.5 in {sum(r < 1.5 for r in ratios)} of "
                f"{len(ratios)} runs."
            )
        return out

    return longer


def limits(results: Results) -> list[Row]:
    """A line per search."""
    lines = []
    for method in ("default", *ONE_RUN):
        rows = [r for r in results.rows() if r["params"]["method"] == method]
        if rows:
            seconds = sorted({r["params"]["max_seconds"] for r in rows})
            has_rule = method in ("greedy", "tnls", "tnale", "svd_ins_tn")
            older = sum(not set(NEWER) & set(r["params"]) for r in rows)
            lines.append(
                {
                    "method": "ours" if method == "default" else LABELS[method],
                    "runs": len(rows),
                    "at their limit": sum(bool(r.get("hit_limit")) for r in rows),
                    "limits, s": ", ".join(f"{s:g}" for s in seconds),
                    "of the older rules": older if has_rule else None,
                }
            )
    return lines
