"""The command line of the benchmarks."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import torch

from tensorgrow.errors import DataError
from tensorgrow.experiments.experiment import draw_figures, run_experiment
from tensorgrow.experiments.harness import Results, needs_gpu, table
from tensorgrow.experiments.provenance import COMMIT_VARIABLE, source_hash

from . import ROOT
from .benchmark import Benchmark, Option
from .registry import (
    REPRODUCTION,
    benchmark_names,
    commit_of_source,
    find_benchmark,
    read_rows,
    read_state,
    results_file,
    stale_rows,
)

FIGURES = ROOT / "docs" / "figures"
SCRATCH = ROOT / ".bench"


def list_benchmarks() -> None:
    """Print what every benchmark measures and what is known about its last result."""
    rows = []
    for name in benchmark_names():
        state = read_state(results_file(name))
        rows.append([name, find_benchmark(name).title, state.rows, state.day, state.source])
    print(table(["benchmark", "measures", "rows", "last result", "source"], rows))
    print(f"source now: {source_hash()}")


def list_stale(names: Sequence[str]) -> bool:
    """Print how many rows are of an earlier source, by benchmark and reason; whether there are any.

    Those that need a GPU have lines of their own: a machine without one cannot refresh them.
    """
    total, stale, on_gpu = 0, 0, Counter[str]()
    for name in names:
        rows = read_rows(results_file(name))
        total += len(rows)
        for reason, keys in stale_rows(results_file(name)).items():
            stale += len(keys)
            on_gpu[name] += sum(needs_gpu(rows[key]) for key in keys)
            parts = Counter(key.partition("/")[0] for key in keys)
            print(f"{name}: {len(keys)} {reason}")
            print(f"    {', '.join(f'{part} {count}' for part, count in parts.most_common())}")
    if stale:
        print(f"{stale:,} of {total:,} rows; --refresh measures them again")
    if gpu := on_gpu.total():
        here = "there is one here" if torch.cuda.is_available() else "there is none here"
        print(f"{gpu:,} of these {stale:,} need a GPU, and {here}; {stale - gpu:,} need none")
        print(f"    {', '.join(f'{name} {count}' for name, count in on_gpu.most_common() if count)}")
    return stale > 0


def make_parser(names: Sequence[str], benchmarks: Sequence[Benchmark]) -> argparse.ArgumentParser:
    """Options of every benchmark, and those of the only one that is named."""
    one = benchmarks[0] if len(benchmarks) == 1 else None
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks {' '.join(names) or 'NAME ...'}",
        description=one.description if one else f"Benchmarks: {', '.join(benchmark_names())}.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--list", action="store_true", help="show every benchmark with its last result")
    add("--stale", action="store_true", help="list the rows of an earlier source; nothing runs")
    add("--refresh", action="store_true", help="measure again the rows of an earlier source, and no others")
    add(
        "--confirm",
        action="store_true",
        help="a sample of them; where it comes out the same, the others hold",
    )
    add("--quick", action="store_true", help="a small trial, whose results are stored apart")
    add("--summary", action="store_true", help="run nothing: report and draw what there is")
    add("--fresh", action="store_true", help="forget earlier results of the chosen cases")
    add("--match", nargs="+", default=[], metavar="WORD", help="only cases whose key has these words")
    add("--jobs", type=int, default=1, help="cases at the same time, but for those that are timed")
    add("--runs", type=int, help="seeds of each case, in experiments of the paper that repeat their cases")
    add("--threads", type=int, help="BLAS and torch threads; 0: all cores")
    add("--stop-after", type=float, default=math.inf, metavar="SECONDS", help="start no case after this")
    add("--data", type=Path, help="folder of the data (default: TENSORGROW_DATA or ../shared/data)")
    add("--figures", type=Path, help="folder of the figures")
    if one is not None:
        add("--out", type=Path, help="JSON file of the results")
        add("--add", nargs="+", type=Path, metavar="FILE", help="take rows of other files; nothing runs")
        if one.parts:
            add("--only", nargs="+", choices=one.parts, default=list(one.parts), help="parts to run")
        for option in one.options:
            add(f"--{option.name.replace('_', '-')}", dest=option.name, **_argument(option))
    return parser


def _argument(option: Option) -> dict[str, Any]:
    """The keywords of argparse; None stands for an option that is not on the command line."""
    many = isinstance(option.default, tuple)
    sample = option.default[0] if many and option.default else option.default
    text = f"{option.help} (default: {option.default})"
    if isinstance(sample, bool):
        return {"action": "store_true", "default": None, "help": text}
    kind = option.kind or type(sample)
    return {"type": kind, "nargs": "+" if many else None, "choices": option.choices, "help": text}


def count_threads(asked: int | None, benchmark: Benchmark) -> int | None:
    """Threads from the command line, else from TENSORGROW_THREADS, else those of the benchmark."""
    text = os.environ.get("TENSORGROW_THREADS")
    if asked is None:
        asked = int(text) if text else benchmark.default_threads
    return len(os.sched_getaffinity(0)) if asked == 0 else asked


def data_folder(asked: Path | None) -> Path | None:
    """The folder of the data that was asked for, else the one beside the repository; None: see `Settings`."""
    beside = ROOT.parent / "shared" / "data"
    return asked or (None if "TENSORGROW_DATA" in os.environ or not beside.is_dir() else beside)


def note_commit() -> None:
    """Let rows name the commit of the source, unless who measures has said which it is."""
    if COMMIT_VARIABLE not in os.environ and (commit := commit_of_source()):
        os.environ[COMMIT_VARIABLE] = commit


def run(name: str, benchmark: Benchmark, args: argparse.Namespace) -> None:
    """Run what is not done yet, report and draw."""
    options = {o.name: v for o in benchmark.options if (v := getattr(args, o.name, None)) is not None}
    is_paper = name.startswith(REPRODUCTION)
    out = getattr(args, "out", None) or (SCRATCH / f"{name}-quick.json" if args.quick else results_file(name))
    threads = count_threads(args.threads, benchmark)
    if threads is not None:  # for the processes that a benchmark starts
        names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
        os.environ.update(dict.fromkeys(names, str(threads)))
    settings = benchmark.settings(
        options=options,
        quick=args.quick,
        data=data_folder(args.data),
        figures=args.figures or (out.parent if args.quick or is_paper else FIGURES),
        scratch=SCRATCH,
        parts=tuple(getattr(args, "only", benchmark.parts)),
        threads=threads,
        runs=args.runs,
    )
    for path in getattr(args, "add", None) or ():
        print(f"{Results(out).add(path)} rows of {path.name}")
        args.summary = True
    results, report = run_experiment(
        benchmark,
        settings,
        out,
        jobs=args.jobs,
        fresh=args.fresh,
        refresh=args.refresh,
        confirm=args.confirm,
        match=args.match,
        report_only=args.summary,
        max_seconds=args.stop_after,
        say=lambda text: print(text, flush=True),
    )
    print(f"\n{report.text}")
    if is_paper:
        out.with_suffix(".md").write_text(report.text, encoding="utf-8")
    for path in draw_figures(benchmark, results, settings):
        print(f"drew {path.name}")


def main(argv: Sequence[str]) -> int:
    """Run the benchmarks that are named, or list them."""
    names = list(takewhile(lambda a: not a.startswith("-"), argv))
    if unknown := [n for n in names if n not in benchmark_names()]:
        print(f"there is no benchmark {unknown[0]!r}; there are {', '.join(benchmark_names())}")
        return 2
    benchmarks = [find_benchmark(n) for n in names]
    parser = make_parser(names, benchmarks)
    args = parser.parse_args(argv[len(names) :])
    if getattr(args, "device", None) == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: torch finds no GPU")
    if args.stale:
        return int(list_stale(names or benchmark_names()))
    if (args.refresh or args.confirm) and not names:
        names = benchmark_names()
        benchmarks = [find_benchmark(n) for n in names]
    if args.list or not names:
        list_benchmarks()
        return 0
    if len(names) > 1:
        print("benchmarks to run:", *(f"  {n}: {b.title}" for n, b in zip(names, benchmarks)), sep="\n")
    note_commit()
    for name, benchmark in zip(names, benchmarks):
        try:
            run(name, benchmark, args)
        except DataError as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
