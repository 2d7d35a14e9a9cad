from __future__ import annotations

import math
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow import GreedyOptions, Structure, TensorNetwork
from tensorgrow import StopReason as Stop
from tests.oracles import dense, random_network

SHAPE = (4, 5, 6)
X = np.random.default_rng(0).standard_normal(SHAPE)
ONE = Structure.rank_one(SHAPE)
INIT = random_network(ONE, 0)


def _with(values: dict[tuple[int, ...], complex], dtype: type = np.float64) -> np.ndarray:
    x = X.astype(dtype)
    for where, value in values.items():
        x[where] = value
    return x


def _times(factor: float) -> TensorNetwork:
    return TensorNetwork(ONE, [c * factor for c in INIT.cores])


def _csr() -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls the layout beta
        return torch.eye(4).to_sparse_csr()


def decompose(x=X, **options):
    return tg.decompose(x, **({"max_error": 0.5} | options))


def fit(x=X, structure=ONE, **options):
    return tg.fit(x, structure, **options)


NAN, INF = math.nan, math.inf
DATA = {
    "one nan": (_with({(1, 2, 3): NAN}), ["1 of 120", "1 nan", "0 infinite", "(1, 2, 3)"]),
    "first of several": (
        _with({(3, 4, 5): INF, (2, 0, 1): -INF, (2, 4, 0): NAN}),
        ["3 of 120", "1 nan", "2 infinite", "(2, 0, 1)"],
    ),
    "inf and -inf": (_with({(0, 0, 0): INF, (0, 0, 1): -INF}), ["2 of 120", "0 nan", "(0, 0, 0)"]),
    "complex nan": (_with({(0, 1, 0): complex(0, NAN)}, complex), ["1 of 120", "1 nan", "(0, 1, 0)"]),
    "float32 inf": (_with({(0, 1, 5): INF}, np.float32), ["1 infinite", "(0, 1, 5)"]),
    "torch nan": (torch.from_numpy(_with({(1, 2, 3): NAN})), ["1 nan", "(1, 2, 3)"]),
    "all nan": (np.full((2, 3), NAN), ["6 of 6", "6 nan", "(0, 0)"]),
    "empty list": ([], ["empty", "(0,)"]),
    "a size of zero": (np.zeros((3, 0, 4)), ["empty", "(3, 0, 4)"]),
    "a number": (3.0, ["single number", "axis"]),
    "order zero": (np.array(2.0), ["single number", "axis"]),
    "torch order zero": (torch.tensor(2.0), ["single number", "axis"]),
    "None": (None, ["object", "numbers"]),
    "objects": (np.array([[1, None], [2, 3]]), ["object", "numbers"]),
    "numbers as objects": (X.astype(object), ["object", "numbers"]),
    "text": ("hello", ["numbers"]),
    "array of text": (np.array([["a", "b"]]), ["numbers"]),
    "dates": (np.zeros((2, 2), "datetime64[s]"), ["datetime64", "numbers"]),
    "records": (np.zeros((2, 2), [("a", float)]), ["numbers"]),
    "ragged": ([[1, 2], [3]], ["list"]),
    "a dict": ({"a": 1}, ["numbers"]),
    "masked": (np.ma.masked_array(X, X > 1), [str(int((X > 1).sum())), "masked"]),
    "meta": (torch.empty(3, 4, device="meta"), ["meta"]),
}


# For a fit, what is NaN or masked is missing; where other entries are bad or none is left, these are named.
GAPS = {"one nan": None, "complex nan": None, "torch nan": None, "masked": None}
GAPS |= {"first of several": ["2 of 119", "not finite"], "all nan": ["at least one observation"]}


@pytest.mark.parametrize("call", [decompose, fit], ids=["decompose", "fit"])
@pytest.mark.parametrize("case", DATA)
def test_bad_data(call, case):
    data, words = DATA[case]
    if call is fit and case in GAPS:
        words = GAPS[case]
        if words is None:
            assert math.isfinite(fit(data, random_state=0).relative_error)
            return
    _refused(partial(call, data), tg.DataError, words)


@pytest.mark.parametrize("form", ["coo_array", "csr_matrix"])
def test_sparse_data_of_scipy_says_how_to_go_on(form):
    sparse = pytest.importorskip("scipy.sparse")
    _refused(partial(decompose, getattr(sparse, form)(X[0])), tg.DataError, [form, "toarray()", "complete"])


@pytest.mark.parametrize("case", ["one nan", "masked"])
def test_what_is_missing_is_for_complete(case):
    _refused(partial(decompose, DATA[case][0]), tg.DataError, ["tensorgrow.complete"])


@pytest.mark.parametrize("data", [torch.eye(4).to_sparse(), _csr()], ids=["coo", "csr"])
def test_sparse_data_is_not_taken_for_dense(data):
    _refused(partial(decompose, data), tg.DataError, ["sparse", "to_dense"])


OPTIONS = {
    "nothing says when to stop": ({"max_error": None}, ["max_error", "max_parameters", "max_seconds"]),
    "negative error": ({"max_error": -0.1}, ["max_error", "-0.1"]),
    "nan error": ({"max_error": NAN}, ["max_error", "nan"]),
    "text error": ({"max_error": "0.1"}, ["max_error", "number"]),
    "bool error": ({"max_error": True}, ["max_error", "number"]),
    "complex error": ({"max_error": 0.1j}, ["max_error", "number"]),
    "negative budget": ({"max_parameters": -5}, ["max_parameters", "-5"]),
    "no budget": ({"max_parameters": 0}, ["max_parameters", "0"]),
    "broken budget": ({"max_parameters": 20.5}, ["max_parameters", "whole"]),
    "nan budget": ({"max_parameters": NAN}, ["max_parameters", "nan"]),
    "infinite budget": ({"max_parameters": INF}, ["max_parameters", "inf"]),
    "below rank one": ({"max_parameters": 14}, ["max_parameters=14", "15"]),
    "below init": (
        {"max_parameters": 20, "init": random_network(Structure(SHAPE, {(0, 1): 2}), 0)},
        ["max_parameters=20", "24"],
    ),
    "negative steps": ({"max_steps": -1}, ["max_steps", "-1"]),
    "broken steps": ({"max_steps": 1.5}, ["max_steps", "whole"]),
    "infinite steps": ({"max_steps": INF}, ["max_steps", "inf"]),
    "negative time": ({"max_seconds": -2}, ["max_seconds", "-2"]),
    "nan time": ({"max_seconds": NAN}, ["max_seconds", "nan"]),
    "unknown effort": ({"effort": "heroic"}, ["effort", "heroic", "balanced"]),
    "unknown effort beside options": ({"effort": "heroic", "options": GreedyOptions()}, ["effort", "heroic"]),
    "unknown edges": ({"edges": "star"}, ["edges", "star", "chain", "ring"]),
    "no edges": ({"edges": []}, ["edges", "empty"]),
    "edges as a number": ({"edges": 5}, ["edges", "5"]),
    "edges as None": ({"edges": None}, ["edges", "None"]),
    "edge of three": ({"edges": [(0, 1, 2)]}, ["pairs", "(0, 1, 2)"]),
    "edge outside": ({"edges": [(0, 3)]}, ["(0, 3)", "0..2"]),
    "negative edge": ({"edges": [(-1, 0)]}, ["(-1, 0)"]),
    "loop": ({"edges": [(1, 1)]}, ["(1, 1)"]),
    "flat edges": ({"edges": [0, 1]}, ["pairs"]),
    "unknown device": ({"device": "tpu"}, ["device", "tpu", "cpu"]),
    "device without data": ({"device": "meta"}, ["device", "meta"]),
    "unknown dtype": ({"dtype": "float12"}, ["dtype", "float12", "float64"]),
    "whole dtype": ({"dtype": "int32"}, ["dtype", "int32", "float64"]),
    "half dtype": ({"dtype": torch.float16}, ["dtype", "float16", "float32"]),
    "dtype drops a part": ({"x": X + 1j, "dtype": "float64"}, ["imaginary", "complex"]),
    "negative memory": ({"memory_limit": -1}, ["memory_limit", "-1"]),
    "nan memory": ({"memory_limit": NAN}, ["memory_limit", "nan"]),
    "text memory": ({"memory_limit": "1GB"}, ["memory_limit", "1GB"]),
    "init is no network": ({"init": [1, 2]}, ["init", "list"]),
    "init of another shape": (
        {"init": random_network(Structure.rank_one((4, 6, 5)), 0)},
        ["init", "(4, 6, 5)", "(4, 5, 6)"],
    ),
    "init of another order": ({"init": random_network(Structure.rank_one((4, 5)), 0)}, ["init", "(4, 5)"]),
    "complex init": ({"init": random_network(ONE, 0, torch.complex128)}, ["init", "complex", "real"]),
    "nan init": ({"init": _times(NAN)}, ["init"]),
    "infinite init": ({"init": _times(INF)}, ["init"]),
    "callback": ({"callbacks": 5}, ["callback", "5"]),
    "callbacks": ({"callbacks": [print, "x"]}, ["callback", "'x'"]),
    "options as a dict": ({"options": {"sweeps": 3}}, ["options", "GreedyOptions"]),
    "random state": ({"random_state": "abc"}, ["random_state", "abc"]),
    "legacy random state": ({"random_state": np.random.RandomState(0)}, ["random_state"]),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_bad_options(case):
    options, words = OPTIONS[case]
    _refused(partial(decompose, **options), tg.OptionError, words)


FIT = {
    "no structure": ({"structure": "tt"}, tg.StructureError, ["structure", "str"]),
    "another shape": ({"structure": Structure.rank_one((4, 5))}, tg.DataError, ["(4, 5, 6)", "(4, 5)"]),
    "no sweeps": ({"max_sweeps": 0}, tg.OptionError, ["max_sweeps", "0"]),
    "broken sweeps": ({"max_sweeps": 2.5}, tg.OptionError, ["max_sweeps", "2.5"]),
    "negative tolerance": ({"tolerance": -1}, tg.OptionError, ["tolerance", "-1"]),
    "nan tolerance": ({"tolerance": NAN}, tg.OptionError, ["tolerance", "nan"]),
    "negative error": ({"max_error": -1}, tg.OptionError, ["max_error", "-1"]),
    "negative time": ({"max_seconds": -1}, tg.OptionError, ["max_seconds", "-1"]),
    "init of another structure": (
        {"init": random_network(Structure(SHAPE, {(0, 1): 2}), 0)},
        tg.OptionError,
        ["init", "(0, 1): 2"],
    ),
    "init is no network": ({"init": [1]}, tg.OptionError, ["init", "list"]),
    "complex init": ({"init": random_network(ONE, 0, torch.complex128)}, tg.OptionError, ["complex", "real"]),
    "nan init": ({"init": _times(NAN)}, tg.OptionError, ["init"]),
    "memory": ({"memory_limit": 100}, tg.MemoryLimitError, ["GB", "memory_limit"]),
    "unknown device": ({"device": "tpu"}, tg.OptionError, ["tpu"]),
    "unknown dtype": ({"dtype": "int8"}, tg.OptionError, ["int8"]),
}


@pytest.mark.parametrize("case", FIT)
def test_bad_fit(case):
    options, kind, words = FIT[case]
    _refused(partial(fit, **options), kind, words)


def _refused(call, kind, words):
    with pytest.raises(kind) as caught:
        call()
    assert isinstance(caught.value, tg.TensorgrowError)
    message = str(caught.value)
    for word in words:
        assert word.lower() in message.lower(), f"{word!r} is not in {message!r}"


@pytest.mark.parametrize("name", ["bogus", "max_eror", "rank"])
def test_unknown_keywords(name):
    with pytest.raises(TypeError, match=name):
        decompose(**{name: 1})
    with pytest.raises(TypeError, match=name):
        GreedyOptions(**{name: 1})


# -- memory ------------------------------------------------------------------------------------------------


def test_memory_limit_is_a_memory_error_with_the_numbers():
    with pytest.raises(MemoryError) as caught:
        decompose(memory_limit=1000)
    assert isinstance(caught.value, tg.MemoryLimitError)
    assert "(4, 5, 6)" in str(caught.value)
    big = torch.ones(1).expand(256, 256, 256)
    with pytest.raises(tg.MemoryLimitError, match=r"0\.[1-9]\d GB.*0\.001 GB"):
        fit(big, Structure.rank_one(big.shape), memory_limit=1e6)


def test_growth_stops_at_the_memory_limit():
    x = np.random.default_rng(0).standard_normal((6,) * 4)
    enough = tg.decompose(x, max_error=0.5, random_state=0, memory_limit=1e9)
    assert enough.stop is Stop.TARGET_REACHED
    limits = [40_000, 60_000]
    results = [tg.decompose(x, max_error=0.01, random_state=0, memory_limit=m) for m in limits]
    assert [r.stop for r in results] == [Stop.MEMORY_LIMIT] * 2
    assert results[0].num_parameters <= results[1].num_parameters
    assert all(0 < r.relative_error < 1 for r in results)


# -- files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"\x10\0\0\0\0\0\0\0{}", b"PK\x03\x04" * 20])
def test_foreign_checkpoints(tmp_path, content):
    file = tmp_path / "run.ckpt"
    file.write_bytes(content)
    with pytest.raises(tg.FileFormatError, match=r"run\.ckpt"):
        decompose(checkpoint=file)
    assert file.read_bytes() == content  # it is somebody else's
    with pytest.raises(tg.FileFormatError, match=r"run\.ckpt"):
        tg.load(file)


def test_a_network_is_no_checkpoint(tmp_path):
    file = tmp_path / "net.safetensors"
    INIT.save(file)
    with pytest.raises(tg.FileFormatError, match=r"network.*checkpoint"):
        decompose(checkpoint=file)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("run") / "run.ckpt"
    decompose(checkpoint=file, random_state=0)
    return file


def test_truncated_checkpoints(checkpoint, tmp_path):
    file, whole = tmp_path / "run.ckpt", checkpoint.read_bytes()
    for length in (4, 100, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:length])
        with pytest.raises(tg.FileFormatError, match="damaged"):
            decompose(checkpoint=file)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"x": X[:, ::-1]}, "data"),
        ({"x": -X}, "data"),
        ({"x": 2 * X}, "data"),
        ({"x": X[:3]}, "shape"),
        ({"dtype": "float32"}, "dtype"),
        ({"max_error": 0.4}, "max_error"),
        ({"max_parameters": 60}, "max_parameters"),
        ({"edges": "chain"}, "edges"),
        ({"split_nodes": False}, "split_nodes"),
        ({"effort": "fast"}, "options"),
    ],
    ids=lambda v: "" if isinstance(v, str) else "-".join(v),
)
def test_checkpoints_of_another_run(checkpoint, change, word):
    file, content = checkpoint, checkpoint.read_bytes()
    with pytest.raises(tg.OptionError, match=f"another run.*{word}"):
        decompose(checkpoint=file, random_state=0, **change)
    assert file.read_bytes() == content


@pytest.mark.parametrize("checkpoint", [3, b"run.safetensors", True])
def test_checkpoints_that_are_no_path(checkpoint):
    with pytest.raises(tg.OptionError, match=r"checkpoint=.*must be the path of a file"):
        decompose(checkpoint=checkpoint)


def test_missing_folders(tmp_path):
    missing = tmp_path / "no" / "such" / "file"
    with pytest.raises(FileNotFoundError, match="no/such"):
        decompose(checkpoint=missing)
    with pytest.raises(FileNotFoundError, match="no/such"):
        decompose(random_state=0).save(missing)
    with pytest.raises(FileNotFoundError, match="no/such"):
        tg.load(missing)


# -- impossible, but with an obvious answer ----------------------------------------------------------------

# Without the guard a search that does not notice would hang the tests.
GUARD = {"max_seconds": 100}
ENDS = {Stop.NO_PROGRESS, Stop.SATURATED}


def _finite(result, x):
    rebuilt = dense(result.structure, result.network.cores)  # in double precision
    assert np.isfinite(rebuilt).all()
    error = np.linalg.norm(rebuilt - x) / np.linalg.norm(x)
    assert result.relative_error == pytest.approx(error, rel=1e-3, abs=1e-15)


@pytest.mark.parametrize("target", ["random", "planted"])
def test_single_precision_cannot_reach_1e_12(target):
    x = X
    if target == "planted":
        x = random_network(Structure.tensor_train(SHAPE, 2), 0).to_dense().numpy()
    x = x.astype(np.float32)
    result = tg.decompose(x, max_error=1e-12, random_state=0, **GUARD)
    assert result.stop in ENDS
    assert result.relative_error < 1e-5
    _finite(result, x)


def test_zero_error_in_double_precision():
    x = random_network(Structure.tensor_train(SHAPE, 2), 0).to_dense().numpy()
    result = tg.decompose(x, max_error=0, random_state=0, **GUARD)
    assert result.stop in ENDS
    assert result.relative_error < 1e-12
    _finite(result, x)


@pytest.mark.parametrize("edges", [[(0, 1)], [(1, 2)]])
def test_too_few_edges(edges):
    result = tg.decompose(X, max_error=1e-6, edges=edges, random_state=0, **GUARD)
    assert result.stop in ENDS
    assert 1e-6 < result.relative_error < 1
    assert set(result.structure.edges) <= set(edges)
    _finite(result, X)


def test_chain_of_a_random_tensor_is_exact_only_when_full():
    x = np.random.default_rng(1).standard_normal((3, 3, 3, 3))
    result = tg.decompose(x, max_error=1e-9, edges="chain", random_state=0, **GUARD)
    assert result.stop is Stop.TARGET_REACHED
    assert dict(result.structure.ranks) == {(0, 1): 3, (1, 2): 9, (2, 3): 3}


@pytest.mark.parametrize("limits", [{"max_error": 0.1}, {"max_parameters": 20}, {"max_steps": 3}])
@pytest.mark.parametrize("dtype", [np.float32, np.complex128, np.int64, bool])
def test_all_zero(limits, dtype):
    x = np.zeros(SHAPE, dtype)
    result = tg.decompose(x, random_state=0, **limits)
    assert result.relative_error == 0
    assert result.stop is Stop.TARGET_REACHED
    assert result.num_parameters == sum(SHAPE)
    np.testing.assert_array_equal(result.network.to_dense().numpy(), 0)
    assert result.at(max_error=0).num_parameters == sum(SHAPE)


def test_all_zero_fit():
    structure = Structure.tensor_train(SHAPE, 2)
    result = tg.fit(np.zeros(SHAPE), structure)
    assert result.relative_error == 0
    assert result.structure == structure
    np.testing.assert_array_equal(result.network.to_dense().numpy(), 0)


@pytest.mark.parametrize("call", [decompose, fit, lambda x: tg.complete(x, max_steps=1)])
def test_names_of_files_are_no_arrays(call, tmp_path):
    # `complete` and `fit` read parquet files where they get a path that is no text.
    for path in ("file.npy", *([tmp_path / "file.npy"] if call is decompose else [])):
        with pytest.raises(tg.DataError, match=r"file\.npy.*tensorgrow\.read"):
            call(path)


def test_a_network_has_no_missing_entries():
    with pytest.raises(tg.DataError, match=r"TensorNetwork.*to_dense\(\)"):
        tg.complete(INIT, max_steps=1)


@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e5m2"])
def test_numbers_of_eight_bits_are_computed_in_single_precision(kind):
    x = torch.from_numpy(X).to(getattr(torch, kind))
    result = decompose(x, max_steps=1, random_state=0)
    assert result.network.dtype == torch.float32
    same = decompose(x.float(), max_steps=1, random_state=0)
    assert result.relative_error == same.relative_error
    assert tg.complete(x, X > -1.0, max_steps=1, random_state=0).relative_error < 1.0


def test_modes_too_long_for_memory():
    entries = tg.Observations([[0, 1], [2**61, 2]], [1.0, 2.0], (2**62, 3))
    for call in (lambda: tg.complete(entries), lambda: tg.fit(entries, Structure.rank_one((2**62, 3)))):
        with pytest.raises(
            tg.MemoryLimitError, match=r"\(4611686018427387904, 3\) needs about 36,893,488,147"
        ):
            call()
