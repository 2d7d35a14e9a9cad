"""What the README and the docstrings show must run."""

import doctest
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


PRELUDES = {
    "tensorisation": "",
    "learning": "",
    "density": "",
    "pictures": """
import pytest
matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
""",
    "report": "import pytest; pytest.importorskip('PIL')",
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
counts, clicks = rng.poisson(x).astype(float), (rng.random(x.shape) < 0.5).astype(float)
""",
}


@pytest.mark.parametrize("page", sorted(PRELUDES))
@pytest.mark.filterwarnings("ignore::tensorgrow.DataWarning")
def test_code_of_the_pages_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some pages write files
    text = (README.parent / "docs" / f"{page}.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert blocks
    names: dict[str, object] = {}
    for block in [PRELUDES[page], *blocks]:
        exec(block, names)
    if "matplotlib" in names:
        names["matplotlib"].pyplot.close("all")


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
    page = (README.parent / "docs" / "command-line.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\$ tensorgrow (.*)$", page, re.MULTILINE)
    assert len(lines) > 10
    for line in lines:
        if line != "demo":  # it has a test of its own
            quick = ["--effort", "fast"] if line.startswith(("decompose", "complete")) else []
            assert run([*line.split(), *quick]) == 0, line
    assert {"back.png", "filled.npy", "small.png", "smaller.npy", "photo-completed.png"} <= {
        p.name for p in tmp_path.iterdir()
    }


@pytest.mark.parametrize(
    "module",
    [
        "tensorization",
        "structure",
        "network",
        "api",
        "completion",
        "learning",
        "density_model",
        "density",
        "nn.linear",
        "estimators.regressor",
        "estimators.classifier",
    ],
)
def test_examples_in_docstrings(module):
    if module.startswith("estimators"):
        pytest.importorskip("sklearn")
    found = importlib.import_module(f"tensorgrow.{module}")
    outcome = doctest.testmod(found)
    assert outcome.attempted > 0
    assert outcome.failed == 0


def test_every_link_in_the_documentation_leads_somewhere():
    root = README.parent
    for page in [README, *root.glob("docs/*.md"), root / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
