"""Where a row of results comes from: machine, versions, commit, and the modules it depends on."""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import os
import platform
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .._version import __version__

PACKAGE = Path(__file__).resolve().parents[1]
# Names the commit of the source. Who measures sets it: a copy on another machine has no repository to ask.
COMMIT_VARIABLE = "TENSORGROW_COMMIT"


def package_version(package: str) -> str | None:
    """Version of an installed package; None where there is none."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def environment(jobs: int = 1) -> dict[str, Any]:
    """Hardware and versions; no paths or host names."""
    cuda = torch.cuda.is_available()
    optional = ("scipy", "threadpoolctl", "opt_einsum", "cotengrust", "tensorly", "tensorly-torch", "pymoo")
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "jobs": jobs,
        "gpu": torch.cuda.get_device_name(0) if cuda else None,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": torch.__version__,
        "tensorgrow": __version__,
        "tensorgrow_source": source_hash(),
        "commit": os.environ.get(COMMIT_VARIABLE),
        "optional": {name: package_version(name) for name in optional},
    }


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.machine()
    models = [line.split(":", 1)[1].strip() for line in text.splitlines() if line.startswith("model name")]
    return models[0] if models else platform.machine()


# -- source --------------------------------------------------------------------------------------------


def source_hash() -> str:
    """Short hash of the library's source: results of different sources must not be mixed unnoticed."""
    return _hash(sorted(PACKAGE.rglob("*.py")))


@cache
def modules_hash(names: tuple[str, ...]) -> str:
    """Short hash of some modules and of all that these import when they are loaded.

    A row depends on the modules that compute it: a change of the command line or of the report page leaves
    most rows as they are. Of a package only the modules count that define the names imported from it. Imports
    inside functions do not count; who needs such a module names it.

    Parameters
    ----------
    names
        Modules relative to the library, such as ``"tasks.decompose"``, or packages, which stand for all
        that is in them. None: what is measured does not depend on the library.
    """
    return _hash(sorted(_closure(names)))


def _hash(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(str(file.relative_to(PACKAGE)).encode())
        digest.update(_code(file).encode())
    return digest.hexdigest()[:12]


def _code(file: Path) -> str:
    """A file without docstrings, lines of comment and empty lines: what they say changes no result.

    Lines are left out of the text itself, since what `ast` prints differs between versions of Python.
    """
    text = file.read_text(encoding="utf-8")
    said: set[int] = set()
    in_strings: set[int] = set()  # where a line that looks like a comment is none
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                said.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
            case ast.Constant(value=str()) | ast.JoinedStr():
                in_strings.update(range(node.lineno + 1, (node.end_lineno or node.lineno) + 1))
    return "\n".join(
        line
        for number, line in enumerate(text.splitlines(), 1)
        if number not in said and (number in in_strings or line.partition("#")[0].strip())
    )


def _closure(names: Iterable[str]) -> set[Path]:
    """Files of the modules, and of those that they import, and so on."""
    found: set[Path] = set()
    waiting: list[Path] = []
    for name in names:
        file = _file_of(tuple(name.split(".")))
        if file is None:
            raise ValueError(f"the library has no module {name!r}")
        waiting.extend(file.parent.rglob("*.py") if file.name == "__init__.py" else [file])
    while waiting:
        if (file := waiting.pop()) not in found:
            found.add(file)
            waiting.extend(_imported_files(file))
    return found


def _file_of(parts: tuple[str, ...]) -> Path | None:
    """The file of a module; None where there is none, or where it is the library's own list of names."""
    place = PACKAGE.joinpath(*parts)
    candidates = (place.with_suffix(".py"), place / "__init__.py") if parts else ()
    return next((c for c in candidates if c.is_file()), None)


@cache
def _imported_files(file: Path) -> tuple[Path, ...]:
    """Files of our own that define what a module imports when it is loaded."""
    files: list[Path] = []
    for origins in _imported_names(file).values():
        for base, name in origins:
            files += _definers(base, name)
    return tuple(files)


@cache
def _imported_names(file: Path) -> dict[str, list[tuple[tuple[str, ...], str]]]:
    """What a module imports from our own ones when it is loaded: by its name here, module and name there."""
    inside = file.relative_to(PACKAGE).with_suffix("").parts
    package = inside[:-1]  # also of `__init__`, whose own name is the last part
    found: dict[str, list[tuple[tuple[str, ...], str]]] = {}
    for node in _loaded_imports(ast.parse(file.read_text(encoding="utf-8"))):
        base = (*package[: len(package) - node.level + 1], *(node.module or "").split("."))
        origin = tuple(part for part in base if part)
        for alias in node.names:
            found.setdefault(alias.asname or alias.name, []).append((origin, alias.name))
    return found


def _definers(base: tuple[str, ...], name: str) -> list[Path]:
    """Files that a name imported from a module depends on.

    A package that only passes a name on does not count, nor do the other names in its list: whoever takes the
    sweeps of `contraction` does not depend on its sums.
    """
    if module := _file_of((*base, name)):
        return [module]
    file = _file_of(base)
    if file is None:
        return []
    if file.name == "__init__.py":
        passed = _imported_names(file).get(name, [])
        if len(passed) == 1:
            return _definers(*passed[0])
    return [file]


def _loaded_imports(tree: ast.Module) -> Iterator[ast.ImportFrom]:
    """Relative imports outside functions, without those for type checkers."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.ImportFrom) and node.level:
            yield node
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            for_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
            waiting.extend(() if for_types else ast.iter_child_nodes(node))
