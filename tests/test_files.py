from __future__ import annotations

import json
import os
import zlib

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

import tensorgrow as tg
from tensorgrow import files as io
from tensorgrow.errors import FileFormatError, TensorgrowError
from tensorgrow.files import FORMAT_VERSION, HEADER_KEY, read_file, write_file
from tensorgrow.network import NETWORK_KIND, TensorNetwork
from tensorgrow.structure import Structure
from tests.oracles import random_network
from tests.strategies import networks

RING = Structure.tensor_ring((4, 3, 5, 4), (2, 3, 2, 3))


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("files")


def load(path):
    header, tensors = read_file(path, (NETWORK_KIND,))
    return TensorNetwork.unpack(header["network"], tensors, "core")


def to_bytes(tensor):
    return torch.view_as_real(tensor).numpy().tobytes() if tensor.is_complex() else tensor.numpy().tobytes()


def assert_same_network(a, b):
    assert a.structure == b.structure
    assert [c.dtype for c in a.cores] == [c.dtype for c in b.cores]
    assert [to_bytes(c) for c in a.cores] == [to_bytes(c) for c in b.cores]


def write_raw(path, document, tensors=None):
    save_file(tensors or {"x": torch.ones(2)}, str(path), metadata={HEADER_KEY: json.dumps(document)})


# -- there and back ----------------------------------------------------------------------------------------


@settings(max_examples=15)
@given(st.data())
def test_networks_come_back_to_the_bit(folder, dtype, data):
    net = data.draw(networks(dtype))
    net.save(folder / "net.safetensors")
    assert_same_network(load(folder / "net.safetensors"), net)


def test_special_values_come_back_to_the_bit(tmp_path, dtype):
    structure = Structure((7,))
    tiny = torch.finfo(dtype).tiny / 4
    values = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), tiny, 1e30], dtype=dtype)
    net = TensorNetwork(structure, [values])
    net.save(tmp_path / "net")
    assert_same_network(load(tmp_path / "net"), net)


def test_views_conjugates_and_gradients_are_stored_as_values(tmp_path):
    base = torch.randn(5, 4, dtype=torch.complex128, generator=torch.Generator().manual_seed(0))
    structure = Structure((2, 5), {(0, 1): 2})
    cores = [base[:2, :2].conj(), base.T[:2].T.requires_grad_()]
    TensorNetwork(structure, cores).save(tmp_path / "net")
    again = load(tmp_path / "net")
    for a, b in zip(again.cores, cores):
        assert torch.equal(a, b.detach().resolve_conj())
        assert not a.requires_grad


def test_cores_that_share_memory_can_be_stored(tmp_path):
    core = torch.arange(6.0).reshape(3, 2)
    TensorNetwork(Structure((3, 3), {(0, 1): 2}), [core, core]).save(tmp_path / "net")
    assert all(torch.equal(c, core) for c in load(tmp_path / "net").cores)


def test_saving_from_the_device(tmp_path, device, dtype):
    net = random_network(RING, 0, dtype)
    net.to(device).save(tmp_path / "net")
    again = load(tmp_path / "net")
    assert again.device.type == "cpu"
    assert_same_network(again, net)


def test_any_header_and_tensors_come_back(tmp_path):
    header = {"network": {"a": [1, None, "ü"]}, "number": 1.5}
    tensors = {"a": torch.arange(3), "b": torch.ones(2, 2, dtype=torch.complex64), "c": torch.tensor(2.0)}
    write_file(str(tmp_path / "file"), "thing", header, tensors)
    found, values = read_file(str(tmp_path / "file"), ("other", "thing"))
    assert found["network"] == header["network"]
    assert found["number"] == 1.5
    assert found["kind"] == "thing"
    assert found["format_version"] == FORMAT_VERSION
    assert sorted(values) == ["a", "b", "c"]
    for name, tensor in tensors.items():
        assert torch.equal(values[name], tensor)
        assert values[name].dtype == tensor.dtype


def test_a_file_without_tensors(tmp_path):
    write_file(tmp_path / "file", "thing", {"x": 1}, {})
    header, tensors = read_file(tmp_path / "file", ("thing",))
    assert header["x"] == 1
    assert tensors == {}


# -- files that are not ours -------------------------------------------------------------------------------


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no such file.*nothing"):
        read_file(tmp_path / "nothing", (NETWORK_KIND,))


@settings(max_examples=60)
@given(data=st.data())
def test_truncated_file(folder, data):
    path = folder / "whole"
    random_network(RING, 0).save(path)
    content = path.read_bytes()
    cut = folder / "cut"
    cut.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    with pytest.raises(FileFormatError, match="damaged"):
        read_file(cut, (NETWORK_KIND,))


@given(st.binary(max_size=300))
def test_random_bytes(folder, content):
    path = folder / "noise"
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match="not a tensorgrow file"):
        read_file(path, (NETWORK_KIND,))


@settings(max_examples=300)
@given(st.data())
def test_one_wrong_byte_in_the_header_is_either_harmless_or_a_clear_error(folder, data):
    path = folder / "whole complex"
    random_network(Structure((2, 3), {(0, 1): 2}), 0, torch.complex64).save(path)
    content = bytearray(path.read_bytes())
    start = 8
    end = start + int.from_bytes(content[:8], "little")
    where = data.draw(st.integers(start, end - 1))
    content[where] = data.draw(st.integers(32, 126))
    broken = folder / "broken"
    broken.write_bytes(content)
    try:
        load(broken)
    except TensorgrowError:
        pass
    except KeyError as error:
        assert error.args == ("network",)  # the name of our own entry, asked for by this test


def test_foreign_safetensors_file(tmp_path):
    save_file({"weight": torch.ones(2)}, str(tmp_path / "bare"))
    save_file({"weight": torch.ones(2)}, str(tmp_path / "other"), metadata={"format": "pt"})
    for name in ("bare", "other"):
        with pytest.raises(FileFormatError, match="not one written by tensorgrow"):
            read_file(tmp_path / name, (NETWORK_KIND,))


def test_newer_format(tmp_path):
    write_raw(
        tmp_path / "file",
        {"format_version": FORMAT_VERSION + 1, "library_version": "99.0", "kind": "network"},
    )
    with pytest.raises(FileFormatError, match=r"format version 3, written by tensorgrow 99\.0.*Upgrade"):
        read_file(tmp_path / "file", (NETWORK_KIND,))


def test_wrong_kind(tmp_path):
    random_network(RING, 0).save(tmp_path / "net")
    with pytest.raises(FileFormatError, match="holds a network; result or checkpoint is needed"):
        read_file(tmp_path / "net", ("result", "checkpoint"))


@pytest.mark.parametrize(
    "document",
    [
        [],
        "text",
        3,
        None,
        {},
        {"format_version": "one", "kind": "network", "complex": []},
        {"format_version": 1},
        {"format_version": 1, "kind": ["network"], "complex": []},
        {"format_version": 1, "kind": "network"},
        {"format_version": 1, "kind": "network", "complex": ["y"]},
        {"format_version": 1, "kind": "network", "complex": 5},
        {"format_version": 1, "kind": "network", "complex": ["odd"]},
        {"format_version": 1, "kind": "network", "complex": ["whole"]},
    ],
    ids=str,
)
def test_headers_that_make_no_sense(tmp_path, document):
    tensors = {"x": torch.ones(2), "odd": torch.ones(3), "whole": torch.ones(2, dtype=torch.int64)}
    write_raw(tmp_path / "file", document, tensors)
    with pytest.raises(FileFormatError):
        read_file(tmp_path / "file", (NETWORK_KIND,))


def test_header_that_is_not_json(tmp_path):
    save_file({"x": torch.ones(2)}, str(tmp_path / "file"), metadata={HEADER_KEY: "{oops"})
    with pytest.raises(FileFormatError, match="damaged"):
        read_file(tmp_path / "file", (NETWORK_KIND,))


def test_network_with_a_core_missing_or_misshapen():
    net = random_network(RING, 0)
    header, tensors = net.pack("core")
    lacking = {k: v for k, v in tensors.items() if k != "core.2"}
    with pytest.raises(FileFormatError, match=r"core\.2"):
        TensorNetwork.unpack(header, lacking, "core")
    with pytest.raises(TensorgrowError):
        TensorNetwork.unpack(header, tensors | {"core.2": torch.ones(3)}, "core")


# -- writing -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", ["while writing", "before renaming"])
def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch, moment):
    path = tmp_path / "net"
    old, new = random_network(RING, 0), random_network(RING, 1)
    old.save(path)
    content = path.read_bytes()

    def half(tensors, filename, metadata):
        with open(filename, "wb") as file:
            file.write(content[:50])
        raise OSError("disk full")

    def refuse(source, destination):
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        if moment == "while writing":
            patch.setattr(io, "save_file", half)
        else:
            patch.setattr(os, "replace", refuse)
        with pytest.raises(OSError, match="disk full"):
            new.save(path)
    assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["net"]
    new.save(path)
    assert_same_network(load(path), new)
    assert os.listdir(tmp_path) == ["net"]


def test_a_header_that_cannot_be_written_leaves_the_old_file(tmp_path):
    path = tmp_path / "net"
    random_network(RING, 0).save(path)
    content = path.read_bytes()
    with pytest.raises(TypeError):
        write_file(path, "thing", {"x": object()}, {})
    assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["net"]


def test_the_file_is_complete_before_it_gets_its_name(tmp_path, monkeypatch):
    path = tmp_path / "net"
    net = random_network(RING, 0)
    seen = []
    replace = os.replace

    def watch(source, destination):
        assert os.path.dirname(source) == os.path.dirname(destination)
        assert not path.exists()
        assert_same_network(load(source), net)
        seen.append(str(destination))
        replace(source, destination)

    monkeypatch.setattr(os, "replace", watch)
    net.save(path)
    assert seen == [str(path)]


def test_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"folder .*nowhere does not exist"):
        random_network(RING, 0).save(tmp_path / "nowhere" / "net")


@pytest.mark.parametrize("length", range(0, 16, 4))
def test_complex_numbers_from_a_file_are_aligned(length, tmp_path):
    """Where they begin in the file depends on the length of the header; torch crashes on odd addresses."""
    file = tmp_path / "x.safetensors"
    x = torch.complex(torch.arange(6.0), torch.ones(6)).to(torch.complex128)
    write_file(file, "network", {"padding": "x" * length}, {"x": x})
    found = read_file(file, ("network",))[1]["x"]
    assert found.data_ptr() % 16 == 0
    torch.testing.assert_close(found, x, rtol=0, atol=0)


# -- every kind --------------------------------------------------------------------------------------------


def test_load_reads_every_kind_and_names_what_it_cannot_read(tmp_path):
    x = random_network(RING, 0).to_dense().abs()
    run = tg.decompose(x, max_steps=0, random_state=0, checkpoint=tmp_path / "checkpoint")
    density = tg.learn_density([[0, 1], [1, 0], [1, 1]], validation=False, max_steps=0)
    for saved in (run.network, run, density, density.model):
        saved.save(tmp_path / "file")
        again = tg.load(tmp_path / "file")
        assert type(again) is type(saved)
        cores = [getattr(kept, "network", kept) for kept in (again, saved)]
        assert_same_network(*cores)
    with pytest.raises(FileFormatError, match=r"holds a checkpoint; .*network.* is needed"):
        tg.load(tmp_path / "checkpoint")


# -- entries of the header that are stored compressed -------------------------------------------------------


def test_packed_entries_come_back(tmp_path):
    header = {"network": {"a": 1}, "history": [{"step": k} for k in range(1000)]}
    write_file(tmp_path / "a", NETWORK_KIND, header, {"x": torch.ones(2)}, packed=("history",))
    write_file(tmp_path / "b", NETWORK_KIND, header, {"x": torch.ones(2)})
    (first, tensors), (second, _) = (read_file(tmp_path / name, (NETWORK_KIND,)) for name in "ab")
    assert first == second and list(tensors) == ["x"]
    assert (tmp_path / "a").stat().st_size < (tmp_path / "b").stat().st_size / 2


@pytest.mark.parametrize("content", [b"no zlib", zlib.compress(b"[1")[:-6], zlib.compress(bytes(1 << 27))])
def test_packed_entries_that_are_damaged_or_huge(tmp_path, content):
    document = {"format_version": 2, "kind": NETWORK_KIND, "complex": [], "packed": ["history"]}
    packed = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    write_raw(tmp_path / "a", document, {"packed.history": packed})
    with pytest.raises(FileFormatError, match="is damaged"):
        read_file(tmp_path / "a", (NETWORK_KIND,))
