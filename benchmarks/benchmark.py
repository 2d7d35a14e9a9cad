"""What a benchmark adds to an experiment: parts, options of its own, a number of threads."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tensorgrow.experiments.experiment import Experiment, Settings

__all__ = ["DEVICE", "Benchmark", "BenchmarkSettings", "Option"]


@dataclass(frozen=True)
class Option:
    """A setting that only some benchmarks have.

    Attributes
    ----------
    default
        Its value in a full run; a tuple stands for a list of values.
    quick
        Its value in a quick run; None: the same.
    kind
        Type of a value on the command line; by default that of `default`.
    """

    name: str
    default: Any
    help: str
    quick: Any = None
    choices: tuple[str, ...] | None = None
    kind: Callable[[str], Any] | None = None


DEVICE = Option("device", "cpu", "where tensorgrow computes", choices=("cpu", "cuda"))


@dataclass(frozen=True)
class BenchmarkSettings(Settings):
    """How a benchmark is run.

    Attributes
    ----------
    parts
        Parts to run.
    scratch
        Folder of files that help to resume or to draw and are no results.
    options
        Values of the benchmark's own options; ``settings["seeds"]`` is one.
    """

    parts: tuple[str, ...] = ()
    scratch: Path = Path(".bench")
    options: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, option: str) -> Any:
        return self.options[option]


@dataclass(frozen=True)
class Benchmark(Experiment):
    """An experiment with parts and options.

    Attributes
    ----------
    parts
        Names of which ``--only`` chooses some.
    options
        What the command line knows for this benchmark alone.
    default_threads
        BLAS and torch threads unless the command line says otherwise; 0: all cores, None: as they are.
    """

    parts: tuple[str, ...] = ()
    options: tuple[Option, ...] = ()
    default_threads: int | None = 1

    @property
    def description(self) -> str:
        """The docstring of its module."""
        return inspect.getdoc(inspect.getmodule(self.cases)) or self.title

    def settings(self, *, options: Mapping[str, Any] | None = None, **common: Any) -> BenchmarkSettings:
        """Settings in which every option has its default, or its quick value, unless `options` has one."""
        quick = common.get("quick", False)
        values = {o.name: o.quick if quick and o.quick is not None else o.default for o in self.options}
        return BenchmarkSettings(**{"parts": self.parts, **common}, options={**values, **(options or {})})
