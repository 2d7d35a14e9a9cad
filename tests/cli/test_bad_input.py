"""Bad input: exit code 2 and one clear line on standard error, nothing written."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import tensorgrow as tg
from tensorgrow.cli import run

pytest.importorskip("typer")
pillow = pytest.importorskip("PIL.Image")
for package in ("scipy", "h5py", "zarr", "xarray"):
    pytest.importorskip(package)

TABLE = [
    # command line, what the message says
    ("decompose missing.npy", "no such file: missing.npy"),
    ("complete missing.png --observed 0.1", "no such file: missing.png"),
    ("fit missing.npy -s train --rank 2", "no such file"),
    ("compare missing.npy", "no such file"),
    ("reconstruct missing.safetensors -o x.npy", "no such file"),
    ("show missing.safetensors", "no such file"),
    ("report missing.safetensors", "no such file"),
    ("decompose two.npz", "holds 2 arrays; choose one by its key: a (3x3), b (4x4)"),
    ("decompose two.npz --key c", "has no array 'c'"),
    ("decompose x.npy --key a", "holds a single array"),
    ("decompose notes.txt", "cannot read notes.txt: give a file that ends in .npy"),
    ("decompose text.npy", "is not a npy file or is damaged"),
    ("decompose text.png", "is not a picture or is damaged"),
    ("decompose text.npz", "is not a npz file or is damaged"),
    ("decompose cut.npy", "is not a npy file or is damaged"),
    ("decompose folder.npy", "is a folder"),
    ("decompose nan.npy", "Use `tensorgrow complete`"),
    ("decompose infinite.npy", "entries of infinite.npy are infinite; finite numbers are needed"),
    ("complete infinite.npy --observed 0.5", "are infinite; finite numbers are needed, or NaN"),
    ("decompose words.npy", "numbers are needed"),
    ("decompose objects.npy", "objects.npy holds Python objects; an array of numbers is needed"),
    ("decompose empty.npy", "an array with entries is needed"),
    ("decompose number.npy", "number.npy has shape (); an array with entries is needed"),
    ("decompose nothing.h5", "is not a h5 file or is damaged"),
    ("decompose nothing.zarr", "is not a zarr file or is damaged"),
    ("decompose x.npy --names a,b,b", "must be 3 different names"),
    ("decompose nothing.nc", "is not a nc file or is damaged"),
    ("decompose nothing.mat", "is not a mat file or is damaged"),
    ("decompose plain", "plain is a folder; a file is needed"),
    ("decompose x.npy -t 3x3", "its sizes must multiply to at least that"),
    ("decompose x.npy -t 99x99", "more than half would be padding"),
    ("decompose x.npy -t big", "is not a shape"),
    ("decompose x.npy -t 32x33 --order interleaved", "cannot be laid over"),
    ("decompose x.npy --order Z", "'Z' is not one of"),
    ("decompose x.npy --device tpu", "device='tpu' is not known"),
    ("decompose x.npy --edges star", "--edges 'star' is not known"),
    ("decompose x.npy --edges 0-9", "does not join two of the legs"),
    ("decompose x.npy --max-error -1", "must not be negative"),
    ("decompose x.npy --max-error much", "--max-error"),
    ("decompose x.npy --max-error nan", "max_error must be a number"),
    ("decompose x.npy --max-seconds -1", "must not be negative"),
    ("decompose x.npy --seed -1", "'--seed'"),
    ("decompose x.npy --seed 99999999999999999999", "'--seed'"),
    ("decompose x.npy -t 0x4", "whole numbers of at least 1"),
    ("decompose x.npy --max-parameters 2", "the smallest network here already has"),
    ("decompose x.npy --effort huge", "--effort"),
    ("decompose x.npy -o nowhere/x.safetensors", "the folder nowhere does not exist"),
    ("decompose x.npy -o locked/x.safetensors", "permission denied"),
    ("decompose x.npy -o x.doc", "cannot write x.doc: give a name that ends in .safetensors"),
    ("decompose x.npy -o folder.npy", "it is a folder"),
    ("decompose x.npy --report nowhere/x.html", "the folder nowhere does not exist"),
    ("decompose x.npy --report x.pdf", "the name of a page ends in .html"),
    ("decompose x.npy -e 0.1 --checkpoint network.safetensors", "checkpoint"),
    ("complete x.npy", "give --mask FILE or --observed SHARE"),
    ("complete x.npy --observed 3", "must lie between 0 and 1"),
    ("complete x.npy --mask mask.npy", "the mask mask.npy has shape (3, 3), the data (16, 16, 4)"),
    ("complete x.npy --mask gaps.npy", "the mask gaps.npy has NaN; it must be 0 or 1"),
    ("complete x.npy --mask words.npy", "the mask words.npy has dtype <U1; it must be 0 or 1"),
    ("complete nothing.npy", "none of the 8 entries"),
    ("complete nan.npy --loss cubic", "cubic"),
    ("fit x.npy -s train", "needs --rank"),
    ("fit x.npy -s star --rank 2", "--structure 'star' is not known"),
    ("fit x.npy -s ring --rank 2,3", "ranks"),
    ("fit x.npy -s network.safetensors", "the structure of network.safetensors is for (3, 3)"),
    ("fit x.npy", "Missing option '--structure'"),
    ("reconstruct cut.safetensors -o x.npy", "is not a tensorgrow file or is damaged"),
    ("reconstruct text.safetensors -o x.npy", "is not a tensorgrow file or is damaged"),
    ("reconstruct network.safetensors -o y.safetensors", "would be another network"),
    ("reconstruct network.safetensors -o y.tex", "cannot write y.tex"),
    ("reconstruct network.safetensors -o y.npy -e 0.1", "saved without a path"),
    ("reconstruct cube.safetensors -o y.png", "is no picture"),
    ("reconstruct network.safetensors", "Missing option '--output'"),
    ("show folder.npy", "folder.npy is a folder; a file is needed"),
    ("demo --folder x.npy", "cannot write to x.npy: it is a file, a folder is needed"),
    ("show cut.safetensors", "is not a tensorgrow file or is damaged"),
    ("report network.safetensors", "the result of a run is needed"),
    ("report network.safetensors -o x.npy", "the name of a page ends in .html"),
    ("compare x.npy -e 7", "must lie between 0 and 1"),
    ("reproduce nothing", "there is no experiment 'nothing'; choose one of decomposition,"),
    ("reproduce timing --processes 0", "--processes"),
    ("decompose", "Missing argument 'FILE'"),
    ("grow x.npy", "No such command 'grow'"),
    ("decompose x.npy --bogus", "No such option"),
]


@pytest.fixture(scope="module")
def bad(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bad")
    rng = np.random.default_rng(0)
    x = rng.random((16, 16, 4))
    np.save(folder / "x.npy", x)
    np.savez(folder / "two.npz", a=np.ones((3, 3)), b=np.ones((4, 4)))
    np.save(folder / "nan.npy", np.where(x < 0.1, np.nan, x))
    np.save(folder / "infinite.npy", np.where(x < 0.1, np.inf, x))
    np.save(folder / "words.npy", np.array(["a", "b"]))
    np.save(folder / "objects.npy", np.array([1, None], object), allow_pickle=True)
    np.save(folder / "empty.npy", np.ones((0, 3)))
    np.save(folder / "number.npy", np.array(3.0))
    np.save(folder / "gaps.npy", np.where(x < 0.5, np.nan, 1.0))
    for name in ("nothing.h5", "nothing.zarr", "nothing.nc", "nothing.mat"):
        (folder / name).touch()
    np.save(folder / "mask.npy", np.ones((3, 3), bool))
    np.save(folder / "nothing.npy", np.full((2, 2, 2), np.nan))
    for name in ("notes.txt", "text.npy", "text.png", "text.npz", "text.safetensors"):
        (folder / name).write_text("these are words\n")
    (folder / "cut.npy").write_bytes((folder / "x.npy").read_bytes()[:300])
    (folder / "folder.npy").mkdir()
    (folder / "plain").mkdir()
    network = tg.TensorNetwork.random(tg.Structure.tensor_train((3, 3), 2), random_state=0)
    network.save(folder / "network.safetensors")
    tg.TensorNetwork.random(tg.Structure.tensor_train((2, 2, 2), 2), random_state=0).save(
        folder / "cube.safetensors"
    )
    data = (folder / "network.safetensors").read_bytes()
    (folder / "cut.safetensors").write_bytes(data[: len(data) - 20])
    (folder / "locked").mkdir()
    (folder / "locked").chmod(0o500)
    return folder


@pytest.mark.parametrize(("line", "message"), TABLE, ids=[line for line, _ in TABLE])
def test_bad_input(bad, monkeypatch, capsys, line, message):
    if "locked" in line and os.access(bad / "locked", os.W_OK):
        allowed = os.access  # root may write anywhere
        monkeypatch.setattr("os.access", lambda p, mode: "locked" not in str(p) and allowed(p, mode))
    monkeypatch.chdir(bad)
    before = sorted(p.name for p in bad.rglob("*"))
    assert run(line.split()) == 2
    written = capsys.readouterr()
    assert written.out == ""
    lines = written.err.splitlines()
    assert len(lines) == 1, written.err
    assert lines[0].startswith("error: ")
    assert message in lines[0]
    assert sorted(p.name for p in bad.rglob("*")) == before


@pytest.mark.parametrize("package", ["typer", "rich"])
def test_without_its_packages_the_extra_is_named(monkeypatch, capsys, package):
    monkeypatch.setitem(sys.modules, package, None)
    assert run(["version"]) == 2
    said = 'error: the command line needs typer and rich: pip install -e ".[cli]" in the clone\n'
    assert capsys.readouterr() == ("", said)


@pytest.mark.parametrize(
    ("file", "package"),
    [("x.h5", "h5py"), ("x.zarr", "zarr"), ("x.nc", "xarray"), ("x.nc", "h5netcdf"), ("x.mat", "scipy")],
)
def test_without_the_package_of_a_file_the_extra_is_named(tmp_path, monkeypatch, capsys, file, package):
    monkeypatch.chdir(tmp_path)
    tg.interop  # noqa: B018 - everything is imported before packages are hidden
    if package == "h5netcdf" and find_spec("netCDF4"):
        pytest.skip("netCDF4 reads it instead")
    Path(file).write_bytes(b"anything")
    monkeypatch.setitem(sys.modules, package, None)
    assert run(["decompose", file]) == 2
    said = f'error: {Path(file).suffix} files need {package}: pip install -e ".[io]" in the clone\n'
    assert capsys.readouterr().err == said


def test_warnings_are_notes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).random((4, 4, 4)) + 1.0
    x[0] = np.nan  # a slice without entries
    np.save("x.npy", x)
    assert run(["complete", "x.npy", "--max-seconds", "1"]) == 0
    assert capsys.readouterr().err.startswith("note: ")
    assert Path("x-completed.npy").exists()
