"""The gallery: each script runs as it is, prints something, and holds what it asserts."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
# What must hold after a script, by the names it leaves behind.
OUTCOMES = {
    "add_snapshots": lambda v: (
        max(v["off"].values()) < 5e-3 and 2 * v["rounded"].num_parameters < v["film"].num_parameters
    ),
    "compare_formats": lambda v: 3 * v["ours"].num_parameters < v["rivals"]["TT-SVD"].num_parameters,
    "complete_photo": lambda v: v["result"].test_error < v["rival_error"] < 0.26,
    "complete_table": lambda v: v["error"] < 0.6 * v["plain"],
    "compress_cnn": lambda v: v["tuned"] > 0.9 and v["size"] < 6000,
    "adapt_model": lambda v: v["accuracy"](v["merged"]) > v["accuracy"](v["base"]) + 0.1,
    "compress_layer": lambda v: v["tuned"] > 0.8 and len(list(v["small"].model.parameters())) > 4,
    "compress_simulation": lambda v: v["field"].nbytes > 50 * v["result"].num_bytes,
    "custom_loss": lambda v: v["learned"] < 0.5 < v["plain"],
    "decompose_image": lambda v: 4 * v["result"].num_parameters < v["picture"].size,
    "export_quimb": lambda v: v["change"] < 0.05 and v["back"].num_parameters < v["network"].num_parameters,
    "faulty_sensors": lambda v: v["off"]["absolute"] < 0.2,
    "impute_table": lambda v: min(v["errors"], key=v["errors"].get) == "network",
    "learn_function": lambda v: v["error"] < 2e-4 and v["evaluations"] < 10_000,
    "learn_distribution": lambda v: {(0, 2), (1, 2), (4, 5)} <= set(v["result"].structure.edges),
    "quantum_state": lambda v: v["free"].num_parameters < v["chain"].num_parameters,
    "recover_structure": lambda v: v["result"].structure == v["hidden"],
    "round_state": lambda v: 3 * v["found"]["circuit"][1] < v["found"]["circuit"][0],
    "stream": lambda v: v["streamed"] < 1.1 * v["at_once"] and v["window"].structure.dims == (15, 28, 24),
    "resume_run": lambda v: len(v["first"].history) == 6 < len(v["second"].history),
}


@pytest.mark.parametrize("name", sorted(OUTCOMES))
def test_examples_run_and_find_something(name, capsys, tmp_path, monkeypatch):
    for package in ("matplotlib", "quimb"):
        pytest.importorskip(package)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.chdir(tmp_path)
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("Agg")
    monkeypatch.setattr(pyplot, "show", lambda: None)  # Agg warns that it cannot show anything
    try:
        values = runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    finally:
        pyplot.close("all")
    assert capsys.readouterr().out.strip()
    assert list(tmp_path.iterdir()) == []  # examples write to temporary folders only
    assert OUTCOMES[name](values)


def test_every_example_is_tested():
    assert len(OUTCOMES) >= 12
    assert {p.stem for p in EXAMPLES.glob("*.py")} == {*OUTCOMES, "growth_picture"}
