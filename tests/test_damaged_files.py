"""Damage is noticed and hostile files are refused, always in one line; see also `data/test_array_files`."""

from __future__ import annotations

import json
import random
import warnings

import pytest
import torch
from safetensors.torch import save_file

import tensorgrow as tg
from tensorgrow.errors import TensorgrowError
from tensorgrow.files import HEADER_KEY, read_file, write_file
from tests.saved_files import write
from tests.test_saved_files import FACTS, MODELS, VERSIONS

NEWEST = VERSIONS[-1]
KINDS = ("network", "result", "density", "grown model", "compressed model", "checkpoint")
RUNS = {"checkpoint": write.decomposition, "checkpoint-completion": write.completion}
NAMES = [*FACTS[NEWEST], *RUNS]


def use(name, path):
    """Load a file, or resume from it, and look at what comes back."""
    if name in RUNS:
        return repr(RUNS[name](checkpoint=path, callbacks=lambda step: True))
    model = MODELS[name]() if name in MODELS else None
    thing = tg.load(path, model)
    return repr(thing) + json.dumps(write.describe(thing))


def one_line(caught) -> str:
    text = str(caught.value)
    assert text
    assert "\n" not in text
    assert len(text) < 1000
    return text


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A file of every kind as this version writes it, with a checksum: header and tensors by name."""
    folder, contents = tmp_path_factory.mktemp("saved"), {}
    for name in NAMES:
        header, tensors = read_file(NEWEST / f"{name}.safetensors", KINDS)
        contents[name] = {k: v for k, v in header.items() if k not in ("complex", "kind")}, tensors
        write_file(folder / name, header["kind"], contents[name][0], tensors)
    return folder, contents


# -- damage ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_every_changed_byte_is_noticed(saved, tmp_path, name):
    whole = (saved[0] / name).read_bytes()
    begin = 8 + int.from_bytes(whole[:8], "little")
    random_bytes = random.Random(name)
    path = tmp_path / "file"
    body = [random_bytes.randrange(begin, len(whole)) for _ in range(6)]
    header = [random_bytes.randrange(begin) for _ in range(14)]
    harmless = 0
    for where in body + header:
        damaged = bytearray(whole)
        damaged[where] ^= 1 << random_bytes.randrange(8)
        path.write_bytes(damaged)
        try:
            use(name, path)
        except tg.FileFormatError as error:
            assert str(path) in str(error)
            assert "\n" not in str(error)
        else:  # the name of the checksum itself, or blanks at the end of the header
            harmless += 1
            assert where in header
    assert harmless <= 2


@pytest.mark.parametrize("name", ["network", "result", "checkpoint"])
def test_a_truncated_file_is_refused(saved, tmp_path, name):
    whole = (saved[0] / name).read_bytes()
    for length in (0, 7, 8, 100, len(whole) // 2, len(whole) - 1):
        (tmp_path / "file").write_bytes(whole[:length])
        with pytest.raises(tg.FileFormatError, match="damaged") as caught:
            use(name, tmp_path / "file")
        one_line(caught)


def test_a_changed_number_that_still_makes_sense_is_noticed(tmp_path):
    path = tmp_path / "net"
    tg.TensorNetwork.random(tg.Structure((3, 4), {(0, 1): 2}), random_state=0).save(path)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(tg.FileFormatError, match=r"do not match their checksum\. Copy or download it again"):
        tg.load(path)


def test_files_without_a_checksum_are_read(tmp_path):
    """Earlier versions wrote none."""
    header = {"format_version": 2, "kind": "network", "complex": [], "network": tg.Structure((3,)).to_dict()}
    save_file({"core.0": torch.ones(3)}, str(tmp_path / "net"), metadata={HEADER_KEY: json.dumps(header)})
    assert tg.load(tmp_path / "net").structure.dims == (3,)


# -- hostile headers ---------------------------------------------------------------------------------------

NONSENSE = [None, True, -1, 0, 1.5, 10**9, 10**30, 1e308, float("nan"), "", "x", [], {}, [[]], {"a": 1}, [-1]]


def leaves(value, place=()):
    """Every place in a document."""
    yield place
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in items:
        yield from leaves(below, (*place, key))


def change(document, place, value, *, remove):
    document = json.loads(json.dumps(document))
    inside = document
    for key in place[:-1]:
        inside = inside[key]
    if remove:
        del inside[place[-1]]
    else:
        inside[place[-1]] = value
    return document


@pytest.mark.parametrize("name", NAMES)
def test_hostile_headers_never_end_in_a_raw_error(saved, tmp_path, name):
    header, tensors = saved[1][name]
    kind = read_file(saved[0] / name, KINDS)[0]["kind"]
    draw = random.Random(name)
    places = [p for p in leaves(header) if p and p[0] != "library_version"]
    refused = 0
    for place in draw.sample(places, min(45, len(places))):
        damaged = change(header, place, draw.choice(NONSENSE), remove=draw.random() < 0.2)
        write_file(tmp_path / "file", kind, damaged, tensors)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                use(name, tmp_path / "file")
        except TensorgrowError as error:
            assert "\n" not in str(error), (place, error)
            refused += 1
    assert refused >= 10  # other values are numbers that may be so, such as times


@pytest.mark.parametrize("size", [10**4, 10**9, 10**30])
def test_sizes_in_a_header_take_no_memory(tmp_path, size):
    net = tg.TensorNetwork.random(tg.Structure((3, 4), {(0, 1): 2}), random_state=0)
    header, tensors = net.pack("core")
    for name, value in (("num_nodes", size), ("dims", [3, size]), ("ranks", [[0, 1, size]])):
        write_file(tmp_path / "file", "network", {"network": header | {name: value}}, tensors)
        with pytest.raises(tg.FileFormatError, match=str(tmp_path)) as caught:
            tg.load(tmp_path / "file")
        one_line(caught)


def test_deeply_nested_headers_are_refused(tmp_path):
    text = (
        '{"format_version": 2, "kind": "network", "complex": [], "network": '
        + "[" * 10**5
        + "]" * 10**5
        + "}"
    )
    save_file({"x": torch.ones(2)}, str(tmp_path / "file"), metadata={HEADER_KEY: text})
    with pytest.raises(tg.FileFormatError, match="damaged") as caught:
        tg.load(tmp_path / "file")
    one_line(caught)
