"""The house stays as it is: few modules in the root, nouns for names, one map."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests import house

TESTS = Path(__file__).parent
CONTRIBUTING = (house.ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_the_root_holds_few_modules():
    assert len(house.root_modules()) <= 12


def test_imports_have_few_levels():
    assert house.levels() <= 17


def test_a_module_name_stands_in_two_folders_at_most():
    assert house.names_in_many_folders() == {}


def test_modules_are_nouns():
    # `plotting` is the public name of the pictures.
    assert house.gerunds() == ["plotting"]


def test_constants_are_few():
    # 5.7 in a thousand lines when the limit was a number, 250 in 44,000 lines.
    assert 1000 * sum(house.numeric_constants().values()) <= 5.5 * house.lines()


def test_signatures_are_short():
    assert house.long_signatures() == []


def test_the_map_names_every_folder_and_root_module():
    rooms = {p.name for p in house.SOURCE.iterdir() if p.is_dir() and (p / "__init__.py").exists()}
    rooms |= {name for name in house.root_modules() if not name.startswith("_")}
    shown = set(re.findall(r"`([a-z_]+)/?`", CONTRIBUTING))
    assert rooms - shown == set()
    nested = {p.parent.name for p in house.SOURCE.rglob("__init__.py")} - {"tensorgrow"}
    assert nested - shown == set()


def test_paths_in_the_map_exist():
    for path in re.findall(r"`((?:src/tensorgrow|tests)/[\w/.]+)`", CONTRIBUTING):
        assert (house.ROOT / path).exists(), path
    for path in re.findall(r"`((?:[a-z_]+/)+[a-z_]+)`", CONTRIBUTING):
        assert (house.SOURCE / f"{path}.py").exists() or (house.SOURCE / path).is_dir(), path


@pytest.mark.parametrize("layer", ["search", "solvers", "tasks", "callbacks"])
def test_no_any_for_problem_state_objective_or_network(layer):
    words = {"problem", "state", "objective", "network", "search"}
    for path in (house.SOURCE / layer).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
                name = node.arg if isinstance(node, ast.arg) else getattr(node.target, "id", "")
                text = ast.unparse(node.annotation)
                assert name not in words or "Any" not in re.findall(r"\w+", text), (
                    f"{path.name}: {name}: {text}"
                )


def test_tests_mirror_the_package():
    folders = {p.relative_to(TESTS) for p in TESTS.rglob("*") if p.is_dir() and list(p.glob("test_*.py"))}
    for folder in folders:
        assert (house.SOURCE / folder).is_dir(), folder


@pytest.mark.parametrize("path", sorted(TESTS.rglob("*.py")), ids=lambda p: str(p.relative_to(TESTS)))
def test_files_of_tests_are_short_and_look_from_outside(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 500
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tensorgrow"):
            private = [a.name for a in node.names if a.name.startswith("_") and not a.name.startswith("__")]
            assert not private, private
