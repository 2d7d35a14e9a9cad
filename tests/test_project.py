from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import tensorgrow as tg
from tests.optional import OPTIONAL

SOURCE = Path(tg.__file__).parent
ROOT = SOURCE.parents[1]


def python(code: str) -> str:
    env = os.environ | {"PYTHONPATH": str(SOURCE.parent)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, env=env, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_works_without_the_optional_packages():
    out = python(f"""
import sys
for name in {OPTIONAL}:
    sys.modules[name] = None
import json
import numpy as np, torch
import tensorgrow as tg
torch.set_num_threads(1)
found = {{}}
for dtype in ("float64", "complex128"):
    rng = np.random.default_rng(0)
    a, b, c = (rng.standard_normal(s).astype(dtype) for s in ((4, 2), (2, 5, 3), (3, 6)))
    x = np.einsum("ia,ajb,bk->ijk", a, b, c)
    r = tg.decompose(x, max_error=1e-8, random_state=0)
    error = float(np.linalg.norm(x - r.network.to_dense().numpy()) / np.linalg.norm(x))
    found[dtype] = [r.num_parameters, error]
f = tg.fit(x, r.structure, random_state=0)
try:
    tg.decompose(x, max_error=0.1, progress=True)
except tg.OptionError as error:
    found["progress"] = str(error)
try:
    tg.TNRegressor
except tg.MissingPackageError as error:
    found["learn"] = str(error)
print(json.dumps(found))
""")
    found = json.loads(out)
    for dtype in ("float64", "complex128"):
        size, error = found[dtype]
        assert size == 4 * 2 + 2 * 5 * 3 + 3 * 6
        assert error <= 1e-8
    assert "rich" in found["progress"]
    assert 'pip install -e ".[learn]"' in found["learn"]


def test_import_takes_only_what_it_needs():
    out = python(f"""
import sys, json
import numpy, torch, opt_einsum, safetensors.torch
before = set(sys.modules)
import tensorgrow
tensorgrow.decompose
added = {{name.split(".")[0] for name in set(sys.modules) - before}}
print(json.dumps([sorted(added & set({[*OPTIONAL, "IPython", "pandas"]})), sorted(added)]))
""")
    unwanted, added = json.loads(out)
    assert unwanted == []
    assert "tensorgrow" in added


def test_import_writes_nothing():
    assert python("import tensorgrow") == ""


def test_public_names():
    assert len(set(tg.__all__)) == len(tg.__all__)
    for name in tg.__all__:
        assert hasattr(tg, name), name
        assert name == "__version__" or getattr(tg, name).__doc__, name
    assert {"decompose", "fit", "load", "Structure", "TensorNetwork", "Result", "GreedyOptions"} <= set(
        tg.__all__
    )
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", tg.__version__)


def test_dir_shows_the_surface_only():
    assert set(dir(tg)) == {*tg.__all__, "TNClassifier", "TNImputer", "TNRegressor"}


def test_import_is_quick_because_torch_comes_with_the_first_use():
    out = python("""
import sys
import tensorgrow, tensorgrow.errors, tensorgrow.cli
print("torch" in sys.modules, "numpy" in sys.modules, tensorgrow.__version__)
tensorgrow.structure, tensorgrow.decompose, tensorgrow.nn.TNLinear
print("torch" in sys.modules)
""")
    assert out.split() == ["False", "False", tg.__version__, "True"]


def test_estimators_are_named_but_not_loaded():
    assert "TNRegressor" in dir(tg)
    assert "TNRegressor" not in tg.__all__  # a star import works without scikit-learn
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        tg.nothing  # noqa: B018


def test_errors_are_ours_and_of_the_usual_kinds():
    for name in ("DataError", "OptionError", "StructureError", "FileFormatError"):
        assert issubclass(getattr(tg, name), (tg.TensorgrowError, ValueError))
        assert issubclass(getattr(tg, name), ValueError)
        assert issubclass(getattr(tg, name), tg.TensorgrowError)
    assert issubclass(tg.MemoryLimitError, MemoryError)
    assert issubclass(tg.MemoryLimitError, tg.TensorgrowError)


# Modules that run what they read, or start processes; and what of others does.
UNSAFE = {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml", "subprocess"}
UNSAFE |= {"pty", "runpy", "eval", "exec", "compile", "__import__", "torch.load", "torch.jit.load"}
UNSAFE |= {"torch.hub", "read_pickle", "allow_pickle", "shell"}
OF_OS = re.compile(
    r"(os|posix|asyncio)\.(system|popen|startfile|fork|forkpty|(exec|spawn|posix_spawn|create_sub)\w*)"
)


def dangers(tree: ast.AST) -> set[str]:
    """What in a module could run code that comes from data, or a program."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {part for a in node.names for part in (a.name, a.name.split(".")[0])}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names |= {node.module, node.module.split(".")[0]}
            names |= {f"{node.module}.{a.name}" for a in node.names}
        elif isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute):
            names |= {ast.unparse(node), node.attr} - {"eval", "compile"}  # model.eval(), re.compile()
        elif isinstance(node, ast.keyword) and ast.unparse(node.value) != "False":
            names.add(node.arg or "")
    return {n for n in names if n in UNSAFE or OF_OS.fullmatch(n)}


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from marshal import loads",
        "import subprocess as s",
        "from os import system",
        "import os\nos.popen('x')",
        "os.execv('x', [])",
        "call = eval",
        "exec(text)",
        "torch.load(path)",
        "from torch import load",
        "np.load(path, allow_pickle=True)",
        "np.load(path, allow_pickle=flag)",
        "run(x, shell=True)",
        "import yaml",
        "pandas.read_pickle(path)",
        "builtins.exec(text)",
    ],
)
def test_what_could_run_code_is_seen(text):
    assert dangers(ast.parse(text))


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_modules(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    # main() runs an empty string after Ctrl-C; it says why.
    allowed = {"exec"} if path == SOURCE / "cli" / "__init__.py" else set()
    assert dangers(tree) <= allowed
    assert not allowed or ast.unparse(tree).count("exec") == ast.unparse(tree).count("exec('')") == 1
    calls = {n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    assert not calls & {"print", "breakpoint"}
    top = {a.name.split(".")[0] for n in tree.body if isinstance(n, ast.Import) for a in n.names} | {
        n.module.split(".")[0] for n in tree.body if isinstance(n, ast.ImportFrom) and n.level == 0
    }
    # Loaded as a whole, only when an estimator or the command line is asked for.
    if not {"estimators", "cli"} & set(path.parts):
        assert not top & set(OPTIONAL)  # optional packages are imported where they are used
    if path.name != "_version.py":
        assert ast.get_docstring(tree)


def test_dependencies_are_the_four_promised():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {re.match(r"[A-Za-z_]+", d)[0] for d in project["dependencies"]}
    assert names == {"numpy", "torch", "opt_einsum", "safetensors"}


def test_readme_has_the_two_commands():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "make demo" in readme
    assert "make test" in readme
    makefile = (ROOT / "Makefile").read_text()
    for target in ("install", "demo", "test", "lint", "bench"):
        assert re.search(rf"^{target}:", makefile, re.M), target


@pytest.mark.parametrize("failing", [None, "ruff", "mypy", "lint-imports", "pytest"])
def test_make_test_counts_what_every_tool_says(failing, tmp_path):
    make = shutil.which("make") or pytest.skip("needs make")
    tools = tmp_path / ".venv" / "bin"
    tools.mkdir(parents=True)
    for name in ("ruff", "mypy", "lint-imports", "pytest"):
        said = f"echo {name} was here; exit {int(name == failing)}"
        (tools / name).write_text(f"#!/bin/sh\n{said}\n")
        (tools / name).chmod(0o755)
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / ".venv" / ".installed").touch()  # newer than what is installed
    done = subprocess.run([make, "test"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode == 0) is (failing is None)
    assert "pytest was here" in done.stdout and f"{failing or 'lint-imports'} was here" in done.stdout


@pytest.mark.parametrize(
    "name", ["LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "constraints.txt", "CITATION.cff", ".ci/run"]
)
def test_project_files(name):
    assert (ROOT / name).read_text(encoding="utf-8").strip()
    if name == ".ci/run":
        assert "make test" in (ROOT / name).read_text()
        assert os.access(ROOT / name, os.X_OK)
