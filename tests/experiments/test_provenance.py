"""Rows know the source they depend on."""

from __future__ import annotations

import subprocess
import sys

import pytest
from benchmarks import registry

from tensorgrow.experiments import provenance

FILES = {
    "__init__.py": "from .tasks import solve\n",
    "errors.py": "",
    "linalg.py": "from .errors import Bad\n",
    "moves/__init__.py": (
        "from .cut import cut\nfrom .growth import edge as grow\nfrom .limits import LIMIT\n"
    ),
    "moves/cut.py": "",
    "moves/growth/__init__.py": "from .edge import edge\nfrom .node import node\n",
    "moves/growth/edge.py": "",
    "moves/growth/node.py": "",
    "moves/limits/__init__.py": "from ..cut import most\nLIMIT = 3\n",
    "page.py": "",
    "types_only.py": "",
    "tasks/__init__.py": "from .solve import solve\n",
    "tasks/solve.py": (
        "from typing import TYPE_CHECKING\n"
        "from .. import linalg\n"
        "from ..moves import grow, LIMIT\n"
        "if TYPE_CHECKING:\n    from ..types_only import T\n"
        "def show():\n    from ..page import draw\n"
    ),
}


@pytest.fixture
def package(tmp_path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(provenance, "PACKAGE", tmp_path)
    return tmp_path


def forget():
    provenance.modules_hash.cache_clear()
    provenance._imported_files.cache_clear()
    provenance._imported_names.cache_clear()


@pytest.mark.parametrize(
    ("changed", "matters"),
    [
        ("tasks/solve.py", True),
        ("linalg.py", True),
        ("errors.py", True),
        ("moves/__init__.py", False),
        ("moves/growth/__init__.py", False),
        ("moves/growth/edge.py", True),
        ("moves/growth/node.py", False),
        ("moves/limits/__init__.py", True),
        ("moves/cut.py", True),  # what a package defines itself may need all that it imports
        ("page.py", False),
        ("types_only.py", False),
        ("__init__.py", False),
    ],
)
@pytest.mark.parametrize("name", ["tasks.solve", "tasks"])
def test_only_what_is_imported_on_loading_counts(package, name, changed, matters):
    forget()
    before = provenance.modules_hash((name,))
    (package / changed).write_text(FILES[changed] + "CHANGED = 1\n")
    forget()
    assert (provenance.modules_hash((name,)) != before) == matters
    forget()


SOLVE = 'def solve(x):\n    return x + 1\n\nSTYLE = """\na\n# b\n"""\n'


@pytest.mark.parametrize(
    ("text", "matters"),
    [
        ('"""What it is for."""\n\n# why\n' + SOLVE, False),
        (SOLVE.replace("    return", '    """Add one."""\n\n    # and no more\n    return'), False),
        (SOLVE.replace("x + 1", "x + 2"), True),
        (SOLVE.replace("# b", "# c"), True),
        (SOLVE.replace("    return", "        return"), True),
    ],
)
def test_docstrings_and_comments_leave_rows_as_they_are(package, text, matters):
    (package / "linalg.py").write_text(SOLVE)
    forget()
    before = provenance.modules_hash(("linalg",))
    (package / "linalg.py").write_text(text)
    forget()
    assert (provenance.modules_hash(("linalg",)) != before) == matters
    forget()


def test_a_name_that_does_not_exist_is_refused(package):
    forget()
    with pytest.raises(ValueError, match="no module 'tasks"):
        provenance.modules_hash(("tasks.nothing",))


def test_the_modules_of_a_task_are_those_that_python_loads():
    """Packages load all their names; what a task depends on is a part of that."""
    forget()
    script = (
        "import sys, tensorgrow.tasks.fit; print(*(getattr(m, '__file__', '') for m in sys.modules.values()))"
    )
    loaded = set(
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout.split()
    )
    found = {str(f) for f in provenance._closure(("tasks.fit",))}
    assert found <= loaded
    assert str(provenance.PACKAGE / "solvers" / "als.py") in found
    assert not any("/cli/" in f or "/report/" in f or "/nn/" in f for f in found)


@pytest.mark.skipif(not (registry.ROOT / ".git").exists(), reason="needs the repository")
def test_commits():
    here = registry.commit_of_source()
    assert here is None or registry.commit_exists(here)
    assert not registry.commit_exists("0" * 40)


def test_a_machine_without_the_repository_is_told_the_commit(monkeypatch):
    monkeypatch.setenv(provenance.COMMIT_VARIABLE, "abc123")
    assert provenance.environment()["commit"] == "abc123"
