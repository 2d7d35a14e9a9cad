"""What the README and the docstrings show must run."""

import doctest
import functools
import importlib
import re
from pathlib import Path

import numpy as np
import pytest

import tensorgrow as tg

README = Path(__file__).parent.parent / "README.md"


def test_the_quickstart_of_the_readme_runs_and_says_the_truth(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # it writes a report
    first, *rest = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, object] = {}
    exec(first, names)
    result = names["r"]
    assert result.num_parameters == 511
    assert dict(result.structure.ranks) == {(0, 1): 2, (0, 4): 5, (1, 2): 3, (2, 3): 4, (3, 4): 5}
    pytest.importorskip("sklearn")
    for block in rest:
        exec(block, names)


def test_the_readme_is_a_first_page_with_a_film():
    pillow = pytest.importorskip("PIL.Image")
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 120
    (shown,) = re.findall(r"!\[.*?\]\((.*?)\)", text)
    path = README.parent / shown
    assert path.stat().st_size < 500_000
    with pillow.open(path) as film:
        assert film.n_frames > 10


# What a page takes for granted, where its blocks do not say everything.
PRELUDES = {
    "pictures": """
import pytest
matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
""",
    "scale": """
import tempfile
import numpy as np, pytest
zarr, _ = pytest.importorskip("zarr"), pytest.importorskip("distributed")
folder = tempfile.mkdtemp()
small = np.random.default_rng(0).random((4, 5, 6))
axes = np.ogrid[0:1:120j, 0:1:100j, 0:1:90j]
stored = zarr.create_array(f"{folder}/simulation.zarr", shape=(120, 100, 90), chunks=(20, 50, 45), dtype="f4")
pandas, _ = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
import os
os.mkdir(f"{folder}/measurements")
rng = np.random.default_rng(0)
y = np.einsum("ia,ja,ka->ijk", *(rng.random((n, 2)) for n in (30, 20, 10)))
for k, where in enumerate(np.array_split(rng.permutation(np.argwhere(rng.random(y.shape) < 0.4)), 3)):
    named = {name: where[:, m] for m, name in enumerate("ijk")} | {"value": y[tuple(where.T)]}
    pandas.DataFrame(named).to_parquet(f"{folder}/measurements/{k}.parquet")
stored[:] = 1 / (1 + axes[0] + 2 * axes[1] + 3 * axes[2]) + 0.1 * np.sin(9 * axes[0]) * np.cos(7 * axes[2])
""",
    "completion": """
import numpy as np, pytest, torch
import tensorgrow as tg
pandas, scipy = pytest.importorskip("pandas"), pytest.importorskip("scipy.sparse")
rng = np.random.default_rng(0)
x = np.einsum("i,j,k->ijk", *(rng.random(n) + 0.5 for n in (5, 6, 7)))
mask = rng.random(x.shape) < 0.8
x_with_nans = np.where(mask, x, np.nan)
indices, values, shape = np.argwhere(mask), x[mask], x.shape
sparse = scipy.coo_array(x[0] * mask[0])
frame = pandas.DataFrame({"i": indices[:, 0], "j": indices[:, 1], "k": indices[:, 2], "value": values})
counts, clicks = rng.poisson(x).astype(float), (rng.random(x.shape) < x / x.max()).astype(float)
""",
    "adapters": """
import torch
import tensorgrow as tg
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64))
train_data = torch.randn(64, 64), torch.randint(64, (64,))
held_out = torch.randn(32, 64), torch.randint(64, (32,))
""",
    "layers": """
import torch
import tensorgrow as tg
torch.manual_seed(0)
model = torch.nn.Sequential(tg.nn.TNLinear(4, 4, in_dims=(2, 2), out_dims=(2, 2), random_state=0))
linear = torch.nn.Linear(16, 16)
trained = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
trained[0].weight.data = torch.outer(torch.randn(64), torch.randn(64))  # compresses at once
x, x_held_out = torch.randn(64, 4), torch.randn(32, 4)
y, y_held_out = (torch.zeros(len(rows), dtype=torch.int64) for rows in (x, x_held_out))
""",
    "tutorial-pictures": """
import matplotlib
import numpy as np
from PIL import Image
matplotlib.use("Agg")
rows, columns = np.mgrid[0:32, 0:32] / 32
photo = 0.5 + 0.4 * np.sin(6 * rows) * np.cos(4 * columns) * (rows > columns)
Image.fromarray(np.rint(255 * photo).astype(np.uint8)).save("photo.png")
Image.fromarray(255 * (np.random.default_rng(0).random((32, 32)) < 0.6).astype(np.uint8)).save("mask.png")
""",
    "tutorial-simulation": "import matplotlib; matplotlib.use('Agg')",
    "tutorial-tables": "import matplotlib; matplotlib.use('Agg')",
}
NEEDS = {
    "baselines": ["tensorly", "pymoo"],
    "classification": ["sklearn"],
    "imputation": ["sklearn"],
    "regression": ["sklearn"],
    "labels": ["pandas", "xarray"],
    "interop": ["quimb", "tensorly", "networkx"],
    "report": ["PIL"],
    "tutorial-layers": ["sklearn"],
    "tutorial-pictures": ["typer", "PIL", "matplotlib"],
    "tutorial-simulation": ["typer", "xarray", "h5netcdf", "tensorly", "matplotlib"],
    "tutorial-tables": ["typer", "pandas", "matplotlib"],
}
PAGES = sorted(p.stem for p in (README.parent / "docs").glob("*.md") if "```python" in p.read_text("utf-8"))


def run_commands(block: str) -> None:
    from tensorgrow.cli import run

    for line in re.findall(r"^\$ tensorgrow (.*)$", block, re.MULTILINE):
        typed = line.replace("--max-seconds 30", "--max-seconds 1").split()
        if typed[0] in ("decompose", "complete", "compare"):
            typed += ["--effort", "fast", "--quiet"]
        assert run(typed) == 0, line


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.filterwarnings("ignore::tensorgrow.DataWarning")
def test_code_of_the_pages_runs(page, tmp_path, monkeypatch):
    for package in NEEDS.get(page, []):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)  # some save files
    text = (README.parent / "docs" / f"{page}.md").read_text(encoding="utf-8")
    if "assert " not in text:  # as the commands; a page that claims something must find it as it stands
        monkeypatch.setattr(tg, "complete", functools.partial(tg.complete, effort="fast"))
    names: dict[str, object] = {}
    exec(PRELUDES.get(page, ""), names)
    for kind, block in re.findall(r"^```(python|console)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        if kind == "python":
            exec(block, names)
        elif page.startswith("tutorial"):  # the commands of other pages need files of their own
            run_commands(block)
    if "matplotlib" in names:
        importlib.import_module("matplotlib.pyplot").close("all")


def test_commands_of_the_page_run(tmp_path, monkeypatch, capsys):
    pytest.importorskip("typer")
    pillow = pytest.importorskip("PIL.Image")
    from tensorgrow.cli import run

    monkeypatch.chdir(tmp_path)
    t = np.linspace(0, 3, 32)
    colours = np.stack([np.sin(t[:, None]) * np.cos(k * t) for k in range(3)], 2)
    pillow.fromarray(np.rint(127 + 120 * colours).astype(np.uint8)).save("photo.png")
    pillow.fromarray((np.random.default_rng(0).random((32, 32)) < 0.6).astype(np.uint8) * 255).save(
        "mask.png"
    )
    x = tg.TensorNetwork.random(tg.Structure.tensor_ring((4, 5, 6), 2), random_state=0).to_dense().numpy()
    np.save("x.npy", x)
    np.savez("two.npz", a=x, b=x[0])
    np.save("holes.npy", np.where(np.random.default_rng(0).random(x.shape) < 0.2, np.nan, x))
    table = pytest.importorskip("pandas").DataFrame(
        {"station": list("abcdef") * 4, "year": range(2000, 2024)}
    )
    table.assign(rain=[None, *range(23)]).to_csv("rain.csv", index=False)
    page = (README.parent / "docs" / "command-line.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\$ tensorgrow (.*)$", page, re.MULTILINE)
    assert len(lines) > 10
    for line in lines:
        if line != "demo":  # it has a test of its own
            quick = ["--effort", "fast"] if line.startswith(("decompose", "complete")) else []
            typed = re.sub(r"--max-seconds \d+", "--max-seconds 1", line).split()
            assert run([*typed, *quick]) == 0, line
    assert {"back.png", "filled.npy", "small.png", "smaller.npy", "photo-completed.png"} <= {
        p.name for p in tmp_path.iterdir()
    }


# Characters that fit the column of the site beside its contents, in Chromium.
COLUMN = 88


def test_lines_of_code_fit_the_column():
    too_long = []
    for page in sorted((README.parent / "docs").glob("*.md")):
        for block in re.findall(r"^```\w+\n(.*?)^```", page.read_text(encoding="utf-8"), re.S | re.M):
            too_long += [f"{page.name}: {line}" for line in block.splitlines() if len(line) > COLUMN]
    for script in sorted((README.parent / "examples").glob("*.py")):
        lines = script.read_text(encoding="utf-8").splitlines()
        too_long += [f"{script.name}: {line}" for line in lines if len(line) > COLUMN]
    assert too_long == []


def test_every_page_is_in_the_contents():
    index = (README.parent / "docs" / "index.md").read_text(encoding="utf-8")
    listed = set(
        re.findall(r"^[a-z_-]+$", "".join(re.findall(r"```{toctree}(.*?)```", index, re.DOTALL)), re.M)
    )
    assert listed == {p.stem for p in (README.parent / "docs").glob("*.md")} - {"index"}


SOURCE = Path(tg.__file__).parent
WITH_EXAMPLES = sorted(p.relative_to(SOURCE) for p in SOURCE.rglob("*.py") if ">>> " in p.read_text("utf-8"))


@pytest.mark.parametrize("module", [".".join(p.with_suffix("").parts) for p in WITH_EXAMPLES])
def test_examples_in_docstrings(module):
    needed = {"estimators": "sklearn", "interop": "networkx"}.get(module.split(".")[0])
    if needed:
        pytest.importorskip(needed)
    found = importlib.import_module(f"tensorgrow.{module}")
    outcome = doctest.testmod(found)
    assert outcome.attempted > 0
    assert outcome.failed == 0


def test_every_link_in_the_documentation_leads_somewhere():
    root = README.parent
    for page in [README, *root.glob("docs/*.md"), root / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if target.startswith("gallery/"):
                continue  # made while the site is built
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
            if page.parent.name == "docs":  # the site can offer files, but has no page of a folder
                assert (page.parent / target).is_file(), f"{page.name} links to the folder {target}"
