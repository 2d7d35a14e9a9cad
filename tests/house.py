"""What the house looks like: counts over the source that say how easily one finds one's way in it.

``python -m tests.house [FOLDER]`` prints them for a package, by default for the installed one.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "tensorgrow"

# What users call takes the common keywords by name; their lists are long on purpose.
PUBLIC_VERBS = {
    "approximate",
    "decompose",
    "complete",
    "fit",
    "learn",
    "learn_density",
    "regress",
    "classify",
    "grow",
    "fine_tune",
    "compress",
}
PUBLIC_VERBS |= {"TNRegressor.__init__", "TNClassifier.__init__", "TNImputer.__init__"}
# Command-line functions take an option a parameter; typer wants them so.
COMMANDS = "cli"


def modules(source: Path = SOURCE) -> list[Path]:
    """Every module of the package."""
    return sorted(p for p in source.rglob("*.py") if "__pycache__" not in p.parts)


def root_modules(source: Path = SOURCE) -> list[str]:
    """Modules in the package root."""
    return sorted(p.stem for p in source.glob("*.py"))


def names_in_many_folders(source: Path = SOURCE, most: int = 2) -> dict[str, int]:
    """Module names that stand in more than `most` folders."""
    folders: dict[str, set[Path]] = defaultdict(set)
    for path in modules(source):
        if path.stem not in ("__init__", "__main__", "base"):
            folders[path.stem].add(path.parent)
    return {name: len(where) for name, where in folders.items() if len(where) > most}


def gerunds(source: Path = SOURCE) -> list[str]:
    """Modules and folders that are named by a gerund."""
    names = {p.stem for p in modules(source)} | {p.name for p in source.rglob("*") if p.is_dir()}
    return sorted(n for n in names if re.search(r"ing(_|s?$)", n) and n not in ("string", "ring"))


def numeric_constants(source: Path = SOURCE) -> dict[str, int]:
    """How many numbers stand in capital letters at the top of each module."""
    found: dict[str, int] = {}
    for path in modules(source):
        count = 0
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    names = target.elts if isinstance(target, ast.Tuple) else [target]
                    values = (
                        node.value.elts if isinstance(node.value, ast.Tuple) else [node.value] * len(names)
                    )
                    values = values if len(values) == len(names) else [node.value] * len(names)
                    count += sum(_is_constant(n) and _is_number(v) for n, v in zip(names, values))
        if count:
            found[str(path.relative_to(source))] = count
    return found


def _is_constant(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id.isupper()


def _is_number(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float) and not isinstance(node.value, bool)
    if isinstance(node, ast.UnaryOp):
        return _is_number(node.operand)
    return isinstance(node, ast.BinOp) and _is_number(node.left) and _is_number(node.right)


def long_signatures(source: Path = SOURCE, most: int = 12) -> list[str]:
    """Functions with more than `most` parameters that are neither public verbs nor commands."""
    found = []
    for path in modules(source):
        if COMMANDS in path.relative_to(source).parts:
            continue
        for name, node in _functions(ast.parse(path.read_text(encoding="utf-8"))):
            a = node.args
            count = len(a.posonlyargs) + len(a.args) + len(a.kwonlyargs) - (name.count(".") > 0)
            if count > most and name not in PUBLIC_VERBS:
                found.append(f"{path.relative_to(source)}:{name} ({count})")
    return found


def _functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            yield prefix + node.name, node


def lines(source: Path = SOURCE) -> int:
    """Lines of all modules."""
    return sum(len(p.read_text(encoding="utf-8").splitlines()) for p in modules(source))


def levels(project: Path = ROOT / "pyproject.toml") -> int:
    """Levels of imports that the linter knows."""
    contracts = tomllib.loads(project.read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    return len(next(c for c in contracts if c["type"] == "layers")["layers"])


def main(source: Path) -> None:
    """Print all counts."""
    rows = {
        "root modules": len(root_modules(source)),
        "import levels": levels(source.parents[1] / "pyproject.toml"),
        "names in several folders": len(names_in_many_folders(source, 1)),
        "names in more than two folders": len(names_in_many_folders(source)),
        "gerund names": len(gerunds(source)),
        "numeric constants": sum(numeric_constants(source).values()),
        "functions with more than 12 parameters": len(long_signatures(source)),
        "lines": lines(source),
    }
    for name, value in rows.items():
        print(f"{name:40} {value:>7,}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else SOURCE)
