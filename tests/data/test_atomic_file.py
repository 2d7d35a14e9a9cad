"""Whatever writes a file: all of it gets its name or nothing does, and nothing else is left."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow.data.array_files import write_array
from tensorgrow.data.atomic_file import replacing
from tests.oracles import random_network
from tests.storage import file_size_limit

posix = pytest.mark.skipif(os.name != "posix", reason="permissions and limits of files")
RING = tg.Structure.tensor_ring((4, 3, 5, 4), (2, 3, 2, 3))
LARGE = tg.Structure.rank_one((30_000, 2))
PICTURE = np.random.default_rng(0).random((200, 200))


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def write(path, text="new"):
    with replacing(path) as temporary:
        temporary.write_text(text)


# -- permissions and links ---------------------------------------------------------------------------------


@posix
@pytest.mark.parametrize("mask, expected", [(0o027, 0o640), (0o077, 0o600), (0o000, 0o666)])
def test_new_files_get_what_the_umask_allows(tmp_path, mask, expected):
    before = os.umask(mask)
    try:
        random_network(RING, 0).save(tmp_path / "net.safetensors")
        write_array(tmp_path / "x.npy", np.ones(3))
    finally:
        assert os.umask(before) == mask
    assert mode(tmp_path / "net.safetensors") == mode(tmp_path / "x.npy") == expected


@posix
def test_the_umask_of_the_process_is_never_set(tmp_path, monkeypatch):
    """Files that another thread makes meanwhile would be open to everybody."""
    monkeypatch.setattr(os, "umask", lambda _: pytest.fail("the umask was set"))
    random_network(RING, 0).save(tmp_path / "net")


@posix
@pytest.mark.parametrize("before", [0o600, 0o664])
def test_an_existing_file_keeps_its_permissions(tmp_path, before):
    path = tmp_path / "net.safetensors"
    path.write_text("old")
    path.chmod(before)
    with replacing(path) as temporary:
        assert mode(temporary) == 0o600  # nobody else reads it while it is written
        temporary.write_text("new")
    assert mode(path) == before
    random_network(RING, 0).save(path)
    assert mode(path) == before


@posix
@pytest.mark.parametrize("exists", [True, False])
def test_a_symbolic_link_stays_one(tmp_path, exists):
    (tmp_path / "elsewhere").mkdir()
    real, link = tmp_path / "elsewhere" / "real.npy", tmp_path / "x.npy"
    if exists:
        real.write_text("old")
    link.symlink_to(real)
    write_array(link, np.ones(3))
    assert link.is_symlink()
    assert np.array_equal(np.load(real), np.ones(3))
    assert sorted(os.listdir(tmp_path)) == ["elsewhere", "x.npy"]
    assert os.listdir(tmp_path / "elsewhere") == ["real.npy"]


@posix
def test_a_pipe_is_written_to(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    read = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_text()))
    reader.start()
    write(tmp_path / "pipe")
    reader.join(10)
    assert read == ["new"]
    assert os.listdir(tmp_path) == ["pipe"]


# -- full disks --------------------------------------------------------------------------------------------


def save_page(path):
    tg.decompose(np.eye(4), max_steps=0, random_state=0).report(path)


WRITERS = {
    "net.safetensors": lambda path: random_network(LARGE, 0).save(path),
    "x.npy": lambda path: write_array(path, PICTURE),
    "x.npz": lambda path: write_array(path, PICTURE),
    "x.mat": lambda path: write_array(path, PICTURE),
    "x.h5": lambda path: write_array(path, PICTURE),
    "x.zarr": lambda path: write_array(path, PICTURE),
    "x.png": lambda path: write_array(path, PICTURE),
    "page.html": save_page,
}


@posix
@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("exists", [True, False])
def test_a_full_disk_is_one_line_and_leaves_what_was_there(tmp_path, name, exists):
    for package in {"x.mat": ["scipy"], "x.h5": ["h5py"], "x.zarr": ["zarr"], "x.png": ["PIL"]}.get(name, []):
        pytest.importorskip(package)
    path = tmp_path / name
    if exists:
        write_array(path, np.ones((2, 2))) if name[0] == "x" else path.write_text("old")

    def content():
        return {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}

    before = content()
    with file_size_limit(10_000), pytest.raises(tg.WriteError) as caught:
        WRITERS[name](path)
    said = str(caught.value)
    assert said.startswith(f"cannot write {path}: ")
    assert said.endswith("choose another folder")
    assert "\n" not in said
    assert isinstance(caught.value, OSError)
    assert content() == before
    assert os.listdir(tmp_path) == ([name] if exists else [])
    WRITERS[name](path)
    assert content() != before
    assert os.listdir(tmp_path) == [name]


def test_errors_that_are_not_about_the_disk_stay_as_they_are(tmp_path):
    with pytest.raises(KeyError), replacing(tmp_path / "x") as temporary:
        temporary.write_text("half")
        raise KeyError
    assert os.listdir(tmp_path) == []


def test_folders(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(tg.WriteError, match="it is a folder; give the name of a file"):
        write(tmp_path / "folder")
    with pytest.raises(FileNotFoundError, match=r"the folder .*nowhere does not exist"):
        write(tmp_path / "nowhere" / "x")


def test_names_as_long_as_they_may_be(tmp_path):
    path = tmp_path / ("ü" * 100 + "x" * 50 + ".txt")
    write(path)
    write(path, "newer")
    assert path.read_text() == "newer"
    assert len(os.listdir(tmp_path)) == 1


# -- killed processes --------------------------------------------------------------------------------------

CHILD = """
import os, sys
from tensorgrow.data.atomic_file import replacing
with replacing(sys.argv[1]) as temporary:
    temporary.write_text("half")
    os._exit(9)  # as if killed
"""


@posix
def test_what_killed_processes_left_is_removed_by_the_next_write(tmp_path):
    path = tmp_path / "x.npy"
    path.write_text("old")
    for _ in range(2):
        assert subprocess.run([sys.executable, "-c", CHILD, str(path)]).returncode == 9
        assert len(os.listdir(tmp_path)) == 2  # the second one removed what the first one left
    assert path.read_text() == "old"
    stale = next(p for p in tmp_path.iterdir() if p != path)
    machine, process, token = stale.stem.split("-")[2:]
    mine = stale.with_name(stale.name.replace(f"-{process}-", f"-{os.getpid()}-"))
    elsewhere = stale.with_name(stale.name.replace(machine, "0" * len(machine)))
    other_file = stale.with_name(stale.name.replace(stale.stem.split("-")[1], "0" * 12))
    aged = stale.with_name(elsewhere.name.replace(token, "0" * len(token)))
    for kept in (mine, elsewhere, other_file, aged):
        kept.write_text("half")
    os.utime(aged, (0, 0))
    write_array(path, np.ones(3))
    assert set(tmp_path.iterdir()) == {path, mine, elsewhere, other_file}


def test_threads_that_write_the_same_file_do_not_disturb_each_other(tmp_path):
    nets = [random_network(RING, k, torch.float32) for k in range(4)]

    def save(net):
        for _ in range(10):
            net.save(tmp_path / "net")

    threads = [threading.Thread(target=save, args=(net,)) for net in nets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = tg.load(tmp_path / "net").cores[0]
    assert any(torch.equal(found, net.cores[0]) for net in nets)
    assert os.listdir(tmp_path) == ["net"]
