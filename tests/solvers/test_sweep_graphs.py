"""Sweeps that the host does not watch: the same as watched ones, and replayed ones where there is a GPU."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tensorgrow.losses import as_loss
from tensorgrow.network import TensorNetwork
from tensorgrow.objectives import (
    CompressedLeastSquares,
    DenseLeastSquares,
    ObservedLeastSquares,
    Penalties,
    ReweightedLeastSquares,
    entry_grid,
)
from tensorgrow.objectives import entries as entries_module
from tensorgrow.objectives.base import Recording
from tensorgrow.priors import Nonnegative
from tensorgrow.solvers import ALSSettings, als
from tensorgrow.solvers import sweep_graphs as module
from tensorgrow.solvers.als import Sweeps
from tensorgrow.solvers.sweep_graphs import SweepGraphs
from tensorgrow.structure import Structure

DIMS = (4, 5, 3, 6)
RIDGE = 1e-14
STRUCTURES = {
    "ring": Structure.tensor_ring(DIMS, 2),
    "train": Structure.tensor_train(DIMS, (2, 3, 2)),
    "inner": Structure(DIMS, {(0, 1): 2, (1, 2): 2, (0, 3): 2, (2, 4): 2, (3, 4): 2}, num_nodes=5),
}
GPU = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
DTYPES = {"double": torch.float64, "single": torch.float32, "complex": torch.complex128}


def dense(dtype=torch.float64, device="cpu"):
    x = torch.randn(DIMS, generator=torch.Generator().manual_seed(0), dtype=dtype)
    return DenseLeastSquares(x.to(device), use_numpy=False)


def entries(dtype=torch.float64, device="cpu", **more):
    rng = np.random.default_rng(0)
    where = torch.tensor(np.argwhere(rng.random(DIMS) < 0.5))
    generator = torch.Generator().manual_seed(1)
    values = torch.randn(len(where), generator=generator, dtype=dtype)
    weights = torch.rand(len(where), generator=generator, dtype=torch.float64) + 0.5
    return ObservedLeastSquares(
        where.to(device), values.to(device), DIMS, weights=weights.to(values.real.dtype).to(device), **more
    )


def compressed(dtype=torch.float64, device="cpu"):
    core = torch.randn((2, *DIMS[1:]), generator=torch.Generator().manual_seed(0), dtype=dtype).to(device)
    basis = torch.eye(DIMS[0], 2, dtype=dtype, device=device)
    objective = CompressedLeastSquares(core, [basis, None, None, None], 0.5)
    objective._inner = DenseLeastSquares(core, use_numpy=False)
    objective.use_numpy = False
    return objective


OBJECTIVES = {"dense": dense, "entries": entries, "compressed": compressed}


def cores_of(objective, structure):
    network = TensorNetwork.random(structure, random_state=0, dtype=objective.dtype)
    return objective.to_arrays(network)


# -- unwatched ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=list(DTYPES))
@pytest.mark.parametrize("structure", STRUCTURES.values(), ids=list(STRUCTURES))
@pytest.mark.parametrize("make", OBJECTIVES.values(), ids=list(OBJECTIVES))
def test_an_unwatched_sweep_is_a_sweep(make, structure, dtype):
    objective = make(dtype)
    watched, cores = cores_of(objective, structure), cores_of(objective, structure)
    recording = objective.recording(structure, RIDGE)
    squared = recording.squared_loss(cores, float(recording.solve(cores, recording.numbers)))
    assert squared == pytest.approx(objective.sweep(structure, watched, RIDGE), rel=1e-5)
    for a, b in zip(cores, watched):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("structure", STRUCTURES.values(), ids=list(STRUCTURES))
def test_nothing_that_sweeps_share_is_left_to_the_recording(structure):
    objective = entries()
    recording = objective.recording(structure, RIDGE)
    recording.prepare()
    joined, tables = dict(objective.index.entries._joins), dict(objective.index._tables)
    for table in tables.values():
        table.sums = table.sums_by_block  # as on a GPU
    made = {k: set(vars(t)) for k, t in tables.items()}
    recording.solve(cores_of(objective, structure), recording.numbers)
    assert objective.index.entries._joins == joined and objective.index._tables == tables
    assert {k: set(vars(t)) for k, t in tables.items()} == made


def test_what_the_host_decides_on_is_not_recorded():
    squares, structure = entries(), STRUCTURES["ring"]
    assert ReweightedLeastSquares(squares, as_loss("absolute")).recording(structure, RIDGE) is None
    positive = squares.with_penalties(Penalties({0: (Nonnegative(),)}, DIMS))
    assert positive.recording(structure, RIDGE) is None
    assert DenseLeastSquares(dense().target, use_numpy=True).recording(structure, RIDGE) is None


def test_variants_with_other_ridges_share_a_recording():
    objective, structure = entries(ridge=1e-2), STRUCTURES["ring"]
    one, other = (o.recording(structure, RIDGE) for o in (objective, objective.with_ridge(3e-2)))
    assert one.key == other.key and one.numbers != other.numbers
    assert objective.with_everything().recording(structure, RIDGE).key != one.key
    cores, expected = cores_of(objective, structure), cores_of(objective, structure)
    one.solve(cores, other.numbers)  # as a replay does
    other.solve(expected, other.numbers)
    assert all(torch.equal(a, b) for a, b in zip(cores, expected))


def test_a_failed_factorisation_is_repeated_carefully():
    objective, structure = dense(), STRUCTURES["ring"]
    settings = ALSSettings(max_sweeps=5)
    sweeps = Sweeps(objective, structure, settings, math.inf, None)
    assert sweeps.recording is None  # the CPU is not waited for
    fails = objective.recording(structure, RIDGE)
    calls = []

    def solve(cores, numbers):
        calls.append(1)
        cores[0] = cores[0] * math.nan
        return torch.tensor(math.nan)

    sweeps.recording = replace(fails, solve=solve)
    cores, expected = cores_of(objective, structure), cores_of(objective, structure)
    losses = [sweeps(cores) for _ in range(2)]
    assert losses == [math.sqrt(objective.sweep(structure, expected, settings.ridge)) for _ in range(2)]
    assert len(calls) == 1 and all(torch.equal(a, b) for a, b in zip(cores, expected))


def test_on_the_cpu_nothing_is_recorded():
    objective, structure, graphs = entries(), STRUCTURES["train"], SweepGraphs()
    recording, cores = objective.recording(structure, RIDGE), cores_of(objective, structure)
    expected = float(recording.solve(list(cores), recording.numbers))
    assert graphs.sweep(recording, cores, size=1, more=100) == expected and len(graphs) == 0


def test_the_oldest_recordings_make_room(monkeypatch):
    """The bounds on recordings, which here are only counted."""
    total = SimpleNamespace(total_memory=100)
    monkeypatch.setattr(module.torch.cuda, "get_device_properties", lambda _: total)
    monkeypatch.setattr(module, "MOST_GRAPHS", 3)
    graphs, recorded, core = SweepGraphs(), [], SimpleNamespace(is_cuda=True, device="cuda")

    def record(recording, cores, size):
        recorded.append(recording.key)
        return SimpleNamespace(size=size, replay=lambda cores, numbers: 1.0)

    monkeypatch.setattr(graphs, "_record", record)

    def sweep(key, size=1, more=10):
        recording = Recording(key, (), lambda cores, numbers: torch.tensor(2.0), None)
        return graphs.sweep(recording, [core], size=size, more=more)

    assert sweep("a", more=1) == 2.0 and not recorded  # too few sweeps are left
    assert [sweep(k) for k in "aaba"] == [1.0] * 4 and recorded == ["a", "b"]
    sweep("c")
    sweep("d")  # in place of b, which was not used for longest
    assert [sweep(k) for k in "acdb"] == [1.0] * 4 and recorded == [*"abcdb"]
    assert sweep("large", size=26) == 2.0 and len(graphs) == 0  # their memory may be needed
    for key in "ef":
        sweep(key, size=20)
    assert len(graphs) == 1
    graphs.memory_limit = 30.0  # of which a sweep beside them takes a part
    assert sweep("h", size=20) == 2.0 and len(graphs) == 0
    assert [sweep(k, size=10) for k in "ij"] == [1.0] * 2 and len(graphs) == 2
    graphs.failures = module.MOST_FAILURES
    assert sweep("g") == 2.0 and sweep("j") == 1.0


# -- recorded ----------------------------------------------------------------------------------------------


@needs_gpu
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=list(DTYPES))
@pytest.mark.parametrize("structure", STRUCTURES.values(), ids=list(STRUCTURES))
@pytest.mark.parametrize("make", OBJECTIVES.values(), ids=list(OBJECTIVES))
def test_a_replay_is_a_sweep(make, structure, dtype):
    objective, graphs = make(dtype, "cuda"), SweepGraphs()
    cores, watched = (cores_of(objective, structure) for _ in range(2))
    for _ in range(3):
        recording = objective.recording(structure, RIDGE)
        explained = graphs.sweep(recording, cores, size=1, more=10)
        squared = objective.sweep(structure, watched, RIDGE)
        assert recording.squared_loss(cores, explained) == pytest.approx(squared, rel=1e-4)
    assert len(graphs) == 1 and graphs.failures == 0


@needs_gpu
def test_a_replay_makes_rounds_for_wide_cores(monkeypatch):
    for name, value in {"WIDE": 2, "LEAST_ENTRIES": 0.0, "DENSE_FACTOR": 1e9, "UNWATCHED_ROUNDS": 60}.items():
        monkeypatch.setattr(entry_grid, name, value)
    monkeypatch.setattr(entries_module, "WIDE", 2)
    test_a_replay_is_a_sweep(entries, STRUCTURES["train"], torch.float64)


@needs_gpu
def test_a_replay_takes_another_ridge():
    objective, structure, graphs = entries(device="cuda", ridge=1e-2), STRUCTURES["ring"], SweepGraphs()
    for ridge in (1e-2, 3e-1, 1e-3):
        other = objective.with_ridge(ridge)
        cores, expected = (cores_of(objective, structure) for _ in range(2))
        graphs.sweep(other.recording(structure, RIDGE), cores, size=1, more=10)
        other.sweep(structure, expected, RIDGE)
        for a, b in zip(cores, expected):
            torch.testing.assert_close(a, b)
    assert len(graphs) == 1


@needs_gpu
def test_few_recordings_are_kept(monkeypatch):
    monkeypatch.setattr(module, "MOST_GRAPHS", 2)
    objective, graphs = dense(device="cuda"), SweepGraphs()
    for _ in range(2):  # they share memory, and do not disturb each other
        for structure in STRUCTURES.values():
            recording, cores = objective.recording(structure, RIDGE), cores_of(objective, structure)
            expected = cores_of(objective, structure)
            explained = graphs.sweep(recording, cores, size=1, more=10)
            squared = objective.sweep(structure, expected, RIDGE)
            assert recording.squared_loss(cores, explained) == pytest.approx(squared)
    assert len(graphs) == 2


@needs_gpu
def test_what_waits_is_not_recorded_and_still_right():
    objective, structure, graphs = dense(device="cuda"), STRUCTURES["ring"], SweepGraphs()
    recording, cores = objective.recording(structure, RIDGE), cores_of(objective, structure)

    def solve(cores, numbers):
        explained = recording.solve(cores, numbers)
        assert math.isfinite(float(explained))  # waits
        return explained

    explained = graphs.sweep(replace(recording, solve=solve), cores, size=1, more=10)
    expected = cores_of(objective, structure)
    squared = objective.sweep(structure, expected, RIDGE)
    assert recording.squared_loss(cores, explained) == pytest.approx(squared)
    assert len(graphs) == 0 and graphs.failures == 1
    torch.randn(3, device="cuda")  # generators still work


@needs_gpu
def test_als_with_recordings_is_als():
    structure = STRUCTURES["ring"]
    fits = []
    for device in ("cpu", "cuda"):
        objective = dense(device=device)
        start = TensorNetwork.random(structure, random_state=0, dtype=torch.float64)
        settings = ALSSettings(max_sweeps=20, tolerance=-math.inf)
        fits.append(als(objective, start, settings))
    assert fits[1].losses == pytest.approx(fits[0].losses, rel=1e-6)
