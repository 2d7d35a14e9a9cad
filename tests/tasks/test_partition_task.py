"""Observations in partitions: the results of observations in memory, whoever holds the partitions."""

from __future__ import annotations

import os
import signal
import threading

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow.data.holdout import draw_by_position
from tensorgrow.data.partitions.parts import ThreadParts
from tensorgrow.data.partitions.tables import PartitionedObservations
from tests.clusters import two_workers
from tests.oracles import assert_close

pytest.importorskip("pyarrow")
pandas = pytest.importorskip("pandas")
dd = pytest.importorskip("dask.dataframe")
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
# A ridge for which rows are in double precision.
FAST = tg.GreedyOptions.for_completion("fast").replace(ridge=1e-5, final_sweeps=5)
RUN = {"random_state": 0, "max_steps": 3, "options": FAST}


def path(result: tg.Result) -> list:
    return [(s.kind, s.edge, s.structure) for s in result.history]


# -- whole runs ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data():
    hidden = tg.Structure.tensor_ring((9, 8, 7, 6), 2)
    x = tg.TensorNetwork.random(hidden, random_state=1).to_dense().numpy()
    rng = np.random.default_rng(0)
    x = x / x.std() + 0.1 * rng.standard_normal(x.shape)
    where = np.argwhere(rng.random(x.shape) < 0.5)
    rng.shuffle(where)
    return x, where


@pytest.fixture(scope="module")
def frame(data):
    x, where = data
    columns = {name: where[:, k] for k, name in enumerate("abcd")}
    return pandas.DataFrame(columns | {"value": x[tuple(where.T)]})


@pytest.fixture(scope="module")
def reference(data):
    """In memory, with the entries held out that partitions hold out."""
    x, where = data
    held_out = np.zeros(x.shape, dtype=bool)
    held_out[tuple(where[draw_by_position(where, 0.1, 0)].T)] = True
    return tg.complete(tg.Observations(where, x[tuple(where.T)], x.shape), validation=held_out, **RUN)


def parquet(folder, frame, parts: int) -> str:
    size = -(-len(frame) // parts)
    for k in range(parts):
        frame.iloc[k * size : (k + 1) * size].to_parquet(folder / f"part{k}.parquet")
    return str(folder)


@pytest.mark.parametrize("parts", [1, 4])
def test_threads_take_the_path_of_observations_in_memory(parts, frame, reference, tmp_path):
    result = tg.complete(dd.from_pandas(frame, npartitions=parts), **RUN)
    assert path(result) == path(reference)
    for name in ("relative_error", "train_error", "validation_error"):
        assert getattr(result, name) == pytest.approx(getattr(reference, name), abs=1e-10)
    assert result.info["num_held_out"] == reference.info["num_held_out"]
    assert result.info["partitions"] == parts
    folder = parquet(tmp_path, frame, parts)
    for given in (folder, folder + "/*.parquet"):
        again = tg.complete(given, **RUN)
        assert path(again) == path(reference)
        assert again.relative_error == pytest.approx(reference.relative_error, abs=1e-10)


def test_rows_in_single_precision_take_the_same_path(data, frame):
    x, where = data
    held_out = np.zeros(x.shape, dtype=bool)
    held_out[tuple(where[draw_by_position(where, 0.1, 0)].T)] = True
    arguments = {"random_state": 0, "max_steps": 3, "effort": "fast"}
    expected = tg.complete(
        tg.Observations(where, x[tuple(where.T)], x.shape), validation=held_out, **arguments
    )
    result = tg.complete(dd.from_pandas(frame, npartitions=3), **arguments)
    assert path(result) == path(expected)
    assert result.relative_error == pytest.approx(expected.relative_error, abs=1e-7)


@pytest.fixture(scope="module")
def client():
    with two_workers(default=False) as client:
        yield client


SHORT = RUN | {"max_steps": 1}


@pytest.fixture(scope="module")
def short(frame):
    where = PartitionedObservations.from_frame(dd.from_pandas(frame, npartitions=4), threads=1)
    return tg.complete(where, **SHORT)


@pytest.mark.parametrize("parts", [1, 4])
def test_a_cluster_of_two_processes(client, parts, frame, reference, short, tmp_path):
    with client.as_current():
        result = tg.complete(dd.from_pandas(frame, npartitions=parts), **SHORT)
    assert path(result)[:2] == path(reference)[:2]
    assert path(result) == path(short)
    assert result.relative_error == pytest.approx(short.relative_error, abs=1e-10)
    if parts == 4:  # the same partitions: the same bits
        again = tg.complete(
            PartitionedObservations.from_parquet(parquet(tmp_path, frame, 4), client=client), **SHORT
        )
        assert again.relative_error == short.relative_error
        assert all(map(torch.equal, again.network.cores, short.network.cores))


def test_a_worker_that_dies_takes_nothing_along(client, frame, short):
    victim = min(client.run(os.getpid).values())

    def kill_soon(step):
        if step.index == 0:
            threading.Timer(0.05, os.kill, (victim, signal.SIGKILL)).start()

    where = PartitionedObservations.from_frame(dd.from_pandas(frame, npartitions=4), client=client)
    result = tg.complete(where, callbacks=kill_soon, **SHORT)
    client.wait_for_workers(2, timeout=60)
    assert all(map(torch.equal, result.network.cores, short.network.cores))


def test_a_cluster_names_the_partition(client, frame, tmp_path):
    folder = parquet(tmp_path, frame, 2)
    (tmp_path / "part1.parquet").write_bytes(b"damaged")
    with pytest.raises(tg.DataError, match=r"the file .*part1.parquet cannot be read"):
        tg.complete(PartitionedObservations.from_parquet(folder, client=client), **RUN)


# -- what is held out ------------------------------------------------------------------------------------


def test_holding_out_depends_on_positions_only():
    where = np.argwhere(np.ones((40, 30, 20)))
    chosen = draw_by_position(where, 0.1, 3)
    assert chosen.mean() == pytest.approx(0.1, abs=0.01)
    shuffled = np.random.default_rng(0).permutation(len(where))
    assert np.array_equal(draw_by_position(where[shuffled], 0.1, 3), chosen[shuffled])
    other = draw_by_position(where, 0.1, 4)
    assert (chosen & other).sum() == pytest.approx(0.01 * len(where), rel=0.3)  # independent
    for k, d in enumerate((40, 30, 20)):  # no slice is preferred
        shares = np.bincount(where[chosen, k], minlength=d) / np.bincount(where[:, k])
        assert abs(shares - 0.1).max() < 6 * np.sqrt(0.09 / (24_000 / d))
    assert not draw_by_position(where, 0.0, 0).any()


def test_slices_keep_their_only_entry():
    rng = np.random.default_rng(0)
    where = np.concatenate([np.argwhere(rng.random((6, 6, 6)) < 0.8), [[k, k, 6 + k] for k in range(6)]])
    # Slices 6 to 11 of the last mode have one entry each; some of those would be held out.
    assert draw_by_position(where[-6:], 0.5, 0).any()
    frame = pandas.DataFrame({"i": where[:, 0], "j": where[:, 1], "k": where[:, 2], "value": 1.0})
    x = dd.from_pandas(frame, npartitions=3)
    result = tg.complete(x, validation=0.5, random_state=0, max_steps=0)
    assert result.predict(where[-6:]).tolist() == pytest.approx([1.0] * 6, rel=1e-2)


def test_held_out_entries_may_be_named_by_a_column(data, frame):
    x, where = data
    marked = frame.assign(test=where[:, 1] == 3)
    result = tg.complete(dd.from_pandas(marked, npartitions=2), validation="test", **RUN)
    held_out = np.zeros(x.shape, dtype=bool)
    held_out[:, 3] = True
    with pytest.warns(tg.DataWarning, match="without any observation"):
        pass_through = tg.complete(
            dd.from_pandas(frame[where[:, 1] != 3], npartitions=2), max_steps=0, effort="fast"
        )
    assert pass_through.structure.dims == (9, 8, 7, 6)
    expected = tg.complete(tg.Observations(where, x[tuple(where.T)], x.shape), validation=held_out, **RUN)
    assert path(result) == path(expected)
    assert result.validation_error == pytest.approx(expected.validation_error, abs=1e-10)


def test_nothing_held_out_and_too_little_to_hold_out(frame):
    x = dd.from_pandas(frame, npartitions=2)
    free = tg.complete(x, validation=False, max_steps=1, random_state=0)
    assert free.validation_error is None
    assert free.info["num_held_out"] == 0
    few = dd.from_pandas(frame.iloc[:5], npartitions=2)
    with pytest.warns(tg.DataWarning) as caught:
        tg.complete(few, random_state=0)
    assert any("only 5 observations" in str(w.message) for w in caught)


# -- weights, duplicates, shapes, scales -----------------------------------------------------------------


def test_weights_and_repeated_positions(frame):
    """Repeated in one partition: averaged. In several: the fit is that of their average."""
    rng = np.random.default_rng(1)
    noisy = frame.assign(weight=rng.uniform(0.5, 2.0, len(frame)))
    twice = noisy.assign(value=noisy["value"] + 0.01 * rng.standard_normal(len(frame)))
    everything = pandas.concat([noisy, twice], ignore_index=True)
    arguments = RUN | {"validation": False, "max_steps": 1}
    with pytest.warns(tg.DataWarning, match="entries are listed more than once"):
        expected = tg.complete(
            tg.Observations.from_frame(everything, weights="weight", value="value"), **arguments
        )
    with pytest.warns(tg.DataWarning, match="entries are listed more than once"):
        one = tg.complete(dd.from_pandas(everything, npartitions=1), weights="weight", **arguments)
    assert one.relative_error == pytest.approx(expected.relative_error, abs=1e-12)
    two = tg.complete(
        PartitionedObservations.from_frame(
            dd.concat([dd.from_pandas(f, npartitions=1) for f in (noisy, twice)]), weights="weight"
        ),
        **arguments,
    )
    assert two.info["num_observations"] == 2 * len(frame)
    assert_close(two.network.to_dense(), expected.network.to_dense(), 1e-6)


def test_shapes_scales_and_empty_partitions(frame):
    huge = frame.assign(value=1e9 * frame["value"])
    x = dd.from_pandas(huge, npartitions=4)
    empty = dd.concat([x, dd.from_pandas(huge.iloc[:0], npartitions=1)])
    with pytest.warns(tg.DataWarning, match="1 of 10 along mode 0"):
        result = tg.complete(
            PartitionedObservations.from_frame(empty, shape=(10, 8, 7, 6), index=list("abcd")), **SHORT
        )
    assert result.structure.dims == (10, 8, 7, 6)
    with pytest.warns(tg.DataWarning):
        plain = tg.complete(
            PartitionedObservations.from_frame(dd.from_pandas(frame, npartitions=4), shape=(10, 8, 7, 6)),
            **SHORT,
        )
    assert result.validation_error == pytest.approx(plain.validation_error, rel=1e-6)
    swapped = PartitionedObservations.from_frame(x, index=["b", "a", "c", "d"])
    assert tg.complete(swapped, max_steps=0, random_state=0).structure.dims == (8, 9, 7, 6)
    zero = tg.complete(dd.from_pandas(frame.assign(value=0.0), npartitions=2))
    assert zero.relative_error == 0.0
    single = tg.complete(x, dtype="float32", max_steps=1, random_state=0)
    assert single.network.dtype == torch.float32


def test_fit_truth_and_checkpoints(data, frame, tmp_path):
    x, _ = data
    parts = dd.from_pandas(frame, npartitions=3)
    structure = tg.Structure.tensor_ring(x.shape, 2)
    fitted = tg.fit(parts, structure, ridge=1e-6, truth=x, random_state=0)
    assert fitted.structure == structure
    seen = np.zeros(x.shape, dtype=bool)
    seen[tuple(frame[list("abcd")].to_numpy().T)] = True
    rest = (fitted.network.to_dense().numpy() - x)[~seen]
    assert fitted.test_error == pytest.approx(np.linalg.norm(rest) / np.linalg.norm(x[~seen]))
    file = tmp_path / "run.safetensors"
    tg.complete(parts, checkpoint=file, **(RUN | {"max_steps": 0}))
    resumed = tg.complete(parts, checkpoint=file, **SHORT)
    straight = tg.complete(parts, **SHORT)
    assert resumed.relative_error == pytest.approx(straight.relative_error, rel=1e-12)
    assert path(resumed) == path(straight)
    with pytest.raises(tg.TensorgrowError):
        tg.complete(dd.from_pandas(frame.iloc[1:], npartitions=3), checkpoint=file, **SHORT)
    flipped = frame.assign(value=np.where(np.arange(len(frame)) % 2, frame["value"], -frame["value"]))
    with pytest.raises(tg.OptionError, match="belongs to another run: its observations"):
        tg.complete(dd.from_pandas(flipped, npartitions=3), checkpoint=file, **SHORT)


def test_partitions_that_do_not_fit_are_read_again(frame, short, tmp_path):
    folder = parquet(tmp_path, frame, 4)
    limit = 9 * 2**27  # above what sums take, but the entries are too many for half of what is left
    where = PartitionedObservations.from_parquet(folder, threads=1)
    kept = tg.complete(where, **SHORT)
    import tensorgrow.tasks.partition_data as preparing

    share, preparing.KEEP_SHARE = preparing.KEEP_SHARE, 0.0
    try:
        again = tg.complete(where, memory_limit=limit, **SHORT)
    finally:
        preparing.KEEP_SHARE = share
    assert all(map(torch.equal, again.network.cores, kept.network.cores))
    assert again.relative_error == short.relative_error


def test_what_comes_back_does_not_grow_with_the_entries(frame, monkeypatch):
    """The bound on the memory of the process that runs the search: sums of one core, however many entries."""
    from tensorgrow.data.parallel import dask_client as cluster

    largest = []
    plain = ThreadParts.map

    def watched(self, task):
        for found in plain(self, task):
            largest[-1] = max(largest[-1], cluster.count_bytes(found))
            yield found

    monkeypatch.setattr(ThreadParts, "map", watched)
    for share in (0.5, 1.0):
        largest.append(0)
        some = frame.iloc[: int(share * len(frame))]
        where = PartitionedObservations.from_frame(
            dd.from_pandas(some, npartitions=2), shape=(9, 8, 7, 6), threads=1
        )
        result = tg.complete(where, **(SHORT | {"options": FAST.replace(sweeps=2)}))
        s = result.structure
        widest = max(s.leg_dim(k) * (s.bond_product(k) + 1) ** 2 for k in range(s.num_nodes))
        # Normal equations of new slices come for all edges at once, in runs of at most `GRAM_BYTES`.
        assert largest[-1] <= 8 * widest * 6 + 1000
    assert largest[0] == largest[1]


# -- errors ----------------------------------------------------------------------------------------------


def spoiled(frame, column: str, row: int, value) -> object:
    bad = frame.copy()
    bad[column] = bad[column].astype(object if isinstance(value, str) else "float64")
    bad.loc[bad.index[row], column] = value
    return bad


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        (
            "a",
            np.nan,
            r"part1.parquet: 1 of \d+ rows have no value in the index column 'a'; the first is row 5",
        ),
        ("b", 1.5, "part1.parquet: the index column 'b' has other values than whole numbers"),
        ("c", -1, r"part1.parquet: 1 of \d+ positions lie outside"),
        ("c", 7, r"part1.parquet: 1 of \d+ positions lie outside the shape \(9, 8, 7, 6\)"),
        ("value", np.inf, "part1.parquet: 1 of .* values are not finite, the first is number 5"),
    ],
)
def test_bad_rows_are_named_with_their_partition(column, value, message, frame, tmp_path):
    folder = parquet(tmp_path, frame, 2)
    size = -(-len(frame) // 2)
    spoiled(frame.iloc[size:], column, 5, value).to_parquet(tmp_path / "part1.parquet")
    with pytest.raises(tg.DataError, match=message):
        tg.complete(PartitionedObservations.from_parquet(folder, shape=(9, 8, 7, 6)), **RUN)


def test_other_bad_input(frame, tmp_path):
    parts = dd.from_pandas(frame, npartitions=2)
    names = dd.from_pandas(frame.assign(a=frame["a"].astype(str)), npartitions=2)
    with pytest.raises(
        tg.DataError,
        match=r"partition 0 of the dask dataframe: the column 'a' holds .* whole.* shape is given",
    ):
        tg.complete(PartitionedObservations.from_frame(names, shape=(9, 8, 7, 6)), **RUN)
    with pytest.raises(tg.DataError, match="no parquet file"):
        tg.complete(str(tmp_path / "nothing"))
    with pytest.raises(tg.DataError, match=r"\['e'\] are missing"):
        tg.complete(PartitionedObservations.from_frame(parts, value="e"), **RUN)
    with pytest.raises(tg.DataError, match="3 axes"):
        tg.complete(PartitionedObservations.from_frame(parts, shape=(9, 8, 7)), **RUN)
    with pytest.raises(tg.DataError, match="no observations"):
        tg.complete(dd.from_pandas(frame.iloc[:0], npartitions=1), **RUN)
    with pytest.raises(tg.DataError, match="a dask dataframe is needed"):
        PartitionedObservations.from_frame(frame)
    with pytest.raises(tg.OptionError, match="mask"):
        tg.complete(parts, np.ones(3, dtype=bool))
    with pytest.raises(tg.OptionError, match="name of a column"):
        tg.complete(parts, weights=np.ones(len(frame)))
    with pytest.raises(tg.OptionError, match="poisson"):
        tg.complete(parts, loss="poisson")
    with pytest.raises(tg.OptionError, match="threads"):
        PartitionedObservations.from_frame(parts, threads=0)
    with pytest.raises(tg.OptionError, match="holds out 0 of"):
        tg.complete(dd.from_pandas(frame.assign(h=False), npartitions=2), validation="h", **RUN)
    with pytest.raises(tg.DataError, match="must hold True and False"):
        tg.complete(dd.from_pandas(frame.assign(h=1), npartitions=2), validation="h", **RUN)

    def fail(part):
        raise RuntimeError("broken")

    with pytest.raises(tg.DataError, match=r"partition 0 of the dask dataframe cannot be computed"):
        tg.complete(parts.map_partitions(fail, meta=frame.iloc[:0]), **RUN)
