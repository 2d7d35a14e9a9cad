"""A wheel without extras: it imports, works, and says what the command line needs."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.test_project import OPTIONAL, ROOT

pytest.importorskip("hatchling")


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The folder that the wheel is unpacked into, as pip does it."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (wheel,) = folder.glob("tensorgrow-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def python(site: Path, code: str) -> subprocess.CompletedProcess[str]:
    hidden = "".join(f"sys.modules[{name!r}] = None\n" for name in OPTIONAL)
    return subprocess.run(
        [sys.executable, "-c", f"import sys\n{hidden}{code}"],
        env=os.environ | {"PYTHONPATH": str(site)},
        cwd=site,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_it_imports_and_works_without_extras(installed):
    code = """
import numpy as np
import tensorgrow as tg
print(tg.__file__)
x = np.einsum("i,j,k->ijk", *(np.arange(1.0, n) for n in (4, 5, 6)))
print(tg.decompose(x, max_error=1e-8, random_state=0).num_parameters)
"""
    done = python(installed, code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(installed / "tensorgrow" / "__init__.py"), "12"]


def test_the_command_says_what_it_needs(installed):
    done = python(installed, "from tensorgrow.cli import main; main()")
    said = 'error: the command line needs typer and rich: pip install "tensorgrow[cli]"\n'
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


def test_it_holds_all_that_the_package_has(installed):
    def files(folder: Path) -> set[str]:
        return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file() and p.suffix != ".pyc"}

    assert files(installed / "tensorgrow") == files(ROOT / "src" / "tensorgrow")
    (entries,) = installed.glob("*.dist-info/entry_points.txt")
    assert "tensorgrow = tensorgrow.cli:main" in entries.read_text(encoding="utf-8")
