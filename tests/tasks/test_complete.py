from __future__ import annotations

import math
import warnings
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse
import torch

import tensorgrow as tg
from tensorgrow import GreedyOptions, Structure, TensorNetwork
from tensorgrow import StopReason as Stop
from tensorgrow.files import read_file, write_file
from tensorgrow.objectives import ObservedLeastSquares
from tensorgrow.search import EdgePolicy, Problem
from tensorgrow.search import grow as growth
from tensorgrow.search.grow import _most_gaining, grow_once, refit
from tensorgrow.search.reduce import exchange
from tensorgrow.search.score import Candidate, cost_of, score_of
from tests.oracles import dense, random_network

DIMS = (5,) * 4
STRUCTURES = {
    "train": Structure.tensor_train(DIMS, 2),
    "ring": Structure.tensor_ring(DIMS, 2),
    "triangle": Structure((8, 8, 8), {(0, 1): 2, (1, 2): 2, (0, 2): 2}),
}
SMALL = Structure.tensor_train((5, 6, 5), 2)
FAST = {"effort": "fast", "random_state": 0}


def planted(structure: Structure = SMALL, seed: int = 1, dtype: torch.dtype = torch.float64) -> np.ndarray:
    x = dense(structure, random_network(structure, seed, dtype).cores)
    return x / np.abs(x).max()


def noisy(structure: Structure = SMALL, level: float = 0.1, seed: int = 1) -> np.ndarray:
    x = planted(structure, seed)
    return x + level * np.random.default_rng(seed).standard_normal(x.shape) * x.std()


def some(shape, share: float, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random(shape) < share


def rebuilt(result: tg.Result) -> np.ndarray:
    return dense(result.structure, result.network.cores)


def error_at(result: tg.Result, x: np.ndarray, where: np.ndarray) -> float:
    """Relative error on some entries, by plain NumPy."""
    return float(np.linalg.norm((rebuilt(result) - x)[where]) / np.linalg.norm(x[where]))


def is_finite(result: tg.Result) -> bool:
    return bool(np.isfinite(rebuilt(result)).all()) and math.isfinite(result.relative_error)


def assert_same(a: tg.Result, b: tg.Result, *, moves: bool = True) -> None:
    assert a.structure == b.structure
    assert a.stop is b.stop
    for name in ("relative_error", "train_error", "validation_error", "test_error"):
        one, two = getattr(a, name), getattr(b, name)
        assert (one is None) is (two is None)
        assert one is None or one == pytest.approx(two, rel=1e-6, abs=1e-9), name
    np.testing.assert_allclose(rebuilt(a), rebuilt(b), atol=1e-7 * np.abs(rebuilt(a)).max())
    if moves:
        steps = [[(s.index, s.kind, s.edge, s.structure) for s in r.history] for r in (a, b)]
        assert steps[0] == steps[1]


@pytest.fixture(scope="module", params=STRUCTURES)
def recovered(request):
    """A planted network, 60 % observed, completed without any hint."""
    structure = STRUCTURES[request.param]
    x, mask = planted(structure), some(structure.dims, 0.6)
    return structure, x, mask, tg.complete(x, mask, random_state=0, truth=x)


@pytest.fixture(scope="module")
def plain():
    """A quick run on noisy data that stops by validation."""
    x, mask = noisy(), some(SMALL.dims, 0.8)
    return x, mask, tg.complete(x, mask, truth=x, **FAST)


# -- recovery ----------------------------------------------------------------------------------------------


def test_recovers_a_planted_network(recovered):
    structure, x, mask, result = recovered
    assert result.num_parameters <= structure.num_parameters
    assert error_at(result, x, ~mask) < 1e-6
    assert result.stop is Stop.TARGET_REACHED


def test_reported_errors(recovered):
    _, x, mask, result = recovered
    assert result.relative_error == pytest.approx(error_at(result, x, mask), rel=1e-3, abs=1e-12)
    assert result.test_error == pytest.approx(error_at(result, x, ~mask), rel=1e-3, abs=1e-12)
    assert 0 <= result.train_error < 1e-6 and 0 <= result.validation_error < 1e-6
    assert "validation" in repr(result) and "test" in repr(result)


def test_errors_of_noisy_data_are_what_numpy_finds(plain):
    x, mask, result = plain
    assert result.relative_error == pytest.approx(error_at(result, x, mask), rel=1e-6)
    assert result.test_error == pytest.approx(error_at(result, x, ~mask), rel=1e-6)
    assert result.info["num_observations"] == mask.sum()
    assert 0 < result.info["num_held_out"] < 0.25 * mask.sum()
    assert 1e-3 < result.validation_error < 1
    assert result.history[-1].kind == "refit"
    assert result.history[-1].relative_error == pytest.approx(result.relative_error)
    assert result.stop is Stop.VALIDATION


def test_steps_report_the_held_out_error(plain):
    *_, result = plain
    grown = [s for s in result.history if s.kind != "refit"]
    assert all(s.validation_error > 0 for s in grown)
    assert [s.index for s in result.history] == list(range(len(result.history)))
    assert all(a.seconds <= b.seconds for a, b in pairwise(result.history))
    # Half a standard error above the best is as good as the best.
    assert result.validation_error <= 1.3 * min(s.validation_error for s in grown)


def test_path_holds_no_pointless_networks(plain):
    *_, result = plain
    sizes = [p.num_parameters for p in result.path]
    errors = [p.relative_error for p in result.path]
    assert sizes == sorted(set(sizes)) and errors == sorted(set(errors), reverse=True)
    assert result.at(max_parameters=sizes[0]).num_parameters == sizes[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.complex128])
def test_other_number_types(dtype):
    single = dtype in (torch.float32, torch.complex64)
    x = planted(dtype=dtype if dtype.is_complex else torch.float64)
    x = x.astype(str(dtype).removeprefix("torch."))
    mask = some(x.shape, 0.8)
    result = tg.complete(x, mask, random_state=0, truth=x)
    assert result.network.dtype == dtype
    assert error_at(result, x, ~mask) < (1e-4 if single else 1e-6)
    assert result.fill(x, mask).dtype == x.dtype


def test_dtype_is_respected():
    x, mask = planted(), some(SMALL.dims, 0.8)
    result = tg.complete(x, mask, dtype="float32", max_steps=1, **FAST)
    assert result.network.dtype == torch.float32
    assert tg.complete(x, mask, dtype="complex128", max_steps=1, **FAST).network.dtype == torch.complex128


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_units_do_not_matter(scale):
    x, mask = noisy(), some(SMALL.dims, 0.8)
    options = {"max_steps": 1, **FAST}
    one, other = (tg.complete(s * x, mask, truth=s * x, **options) for s in (1.0, scale))
    assert one.structure == other.structure
    for name in ("relative_error", "train_error", "validation_error", "test_error"):
        assert getattr(other, name) == pytest.approx(getattr(one, name), rel=1e-3), name
    np.testing.assert_allclose(rebuilt(other) / scale, rebuilt(one), atol=1e-3)
    for a, b in zip(one.history, other.history):
        assert b.loss / scale == pytest.approx(a.loss, rel=1e-3)


def test_every_form_of_the_data_gives_the_same():
    x, mask = noisy(Structure.tensor_train((7, 8), 2)), some((7, 8), 0.8)
    where = np.argwhere(mask)
    forms = [
        (x, mask),
        (np.where(mask, x, np.nan),),
        (np.ma.masked_array(x, ~mask),),
        (torch.tensor(x), torch.tensor(mask)),
        (tg.Observations(where[::-1].copy(), x[mask][::-1].copy(), x.shape),),
        (scipy.sparse.coo_matrix((x[mask], where.T), shape=x.shape).tocsr(),),
        (
            torch.sparse_coo_tensor(
                torch.tensor(where).T, torch.tensor(x[mask]), x.shape, check_invariants=True
            ),
        ),
    ]
    results = [tg.complete(*form, max_steps=1, **FAST) for form in forms]
    for other in results[1:]:
        assert_same(results[0], other)


# -- limits ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("edges", ["chain", "ring", [(0, 2), (1, 3)]])
def test_edges_are_respected(edges):
    x, mask = noisy(STRUCTURES["ring"]), some(DIMS, 0.6)
    result = tg.complete(x, mask, edges=edges, max_steps=6, **FAST)
    chain = {(0, 1), (1, 2), (2, 3)}
    allowed = (
        {"chain": chain, "ring": chain | {(0, 3)}}.get(edges, set(edges))
        if isinstance(edges, str)
        else set(edges)
    )
    seen = {e for s in result.history for e in s.structure.edges}
    assert seen and seen <= allowed
    assert all(s.structure.num_nodes == 4 for s in result.history)


def test_the_ranks_of_a_chain_are_learned():
    structure = Structure.tensor_train(DIMS, (2, 3, 2))
    x, mask = planted(structure), some(DIMS, 0.7)
    result = tg.complete(x, mask, edges="chain", random_state=0)
    assert dict(result.structure.ranks) == dict(structure.ranks)
    assert error_at(result, x, ~mask) < 1e-6


@pytest.mark.parametrize("most", [16, 30, 47])
def test_max_parameters(most):
    x, mask = noisy(level=0.01), some(SMALL.dims, 0.9)
    result = tg.complete(x, mask, max_parameters=most, **FAST)
    assert result.num_parameters <= most
    assert all(s.num_parameters <= most for s in result.history)
    assert all(p.num_parameters <= most for p in result.path)


def test_a_budget_holds_while_ranks_are_exchanged():
    """Growth beyond the budget happens within one move; nothing above it is ever shown."""
    x, mask = noisy(STRUCTURES["ring"], level=0.05), some(DIMS, 0.8)
    for most in (60, 100):
        result = tg.complete(x, mask, max_parameters=most, random_state=0)
        assert result.stop is Stop.MAX_PARAMETERS
        assert all(s.num_parameters <= most for s in result.history)
        assert all(p.num_parameters <= most for p in result.path)
        plain = GreedyOptions.for_completion("balanced").replace(overshoot=0.0)
        without = tg.complete(x, mask, max_parameters=most, random_state=0, options=plain)
        assert result.validation_error <= without.validation_error * 1.01


def test_a_second_start_is_made_where_it_is_cheap_and_the_better_answer_kept():
    x, mask = noisy(level=0.2), some(SMALL.dims, 0.8)
    twice = tg.complete(x, mask, random_state=0)
    options = GreedyOptions.for_completion("balanced")
    once = tg.complete(x, mask, random_state=0, options=options.replace(starts=1))
    assert {s.start for s in twice.history} == {0, 1}
    assert {s.start for s in once.history} == {0}
    # The first start is the same; its answer is left only for one that is smaller, or measurably better.
    first = [(s.kind, s.num_parameters) for s in once.history if s.kind != "refit"]
    assert [(s.kind, s.num_parameters) for s in twice.history][: len(first)] == first
    assert twice.num_parameters <= once.num_parameters or twice.validation_error < once.validation_error
    assert twice.stop is once.stop is Stop.VALIDATION
    steps = sum(kind != "start" for kind, _ in first) + 2
    cut = tg.complete(x, mask, random_state=0, max_steps=steps)  # within the second start
    assert {s.start for s in cut.history} == {0, 1}
    assert cut.stop is Stop.VALIDATION
    assert cut.num_parameters <= once.num_parameters


def test_exact_fits_and_given_networks_are_not_started_again():
    x, mask = planted(STRUCTURES["ring"]), some(DIMS, 0.8)
    assert {s.start for s in tg.complete(x, mask, random_state=0).history} == {0}
    x, mask = noisy(level=0.2), some(SMALL.dims, 0.8)
    init = TensorNetwork.random(Structure.rank_one(SMALL.dims), random_state=1)
    assert {s.start for s in tg.complete(x, mask, random_state=0, init=init).history} == {0}


def test_ranks_are_exchanged_within_a_budget():
    """A rank spent on the wrong pair of legs is given up for one on the right pair."""
    x, mask = planted(Structure(SMALL.dims, {(0, 1): 3})), some(SMALL.dims, 0.9)
    held = torch.from_numpy(some(SMALL.dims, 0.2, seed=5)[mask])
    objective = ObservedLeastSquares(
        torch.from_numpy(np.argwhere(mask)), torch.from_numpy(x[mask]), x.shape, held_out=held, ridge=1e-8
    )
    wrong = random_network(Structure(SMALL.dims, {(0, 1): 2, (1, 2): 3}), seed=3)
    problem = Problem(
        objective,
        GreedyOptions.for_completion("balanced"),
        EdgePolicy(None),
        torch.Generator().manual_seed(0),
        max_parameters=wrong.num_parameters,
    )
    before = refit(problem, wrong)
    found = exchange(problem, before)
    assert found is not None
    assert found.size <= wrong.num_parameters
    assert problem.max_parameters == wrong.num_parameters
    assert found.network.structure.rank(0, 1) == 3
    assert found.measure < 1e-3 * before.measure


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_max_steps(steps):
    x, mask = planted(STRUCTURES["ring"]), some(DIMS, 0.8)
    result = tg.complete(x, mask, max_steps=steps, **FAST)
    assert sum(s.kind == "grow" for s in result.history) == steps
    assert result.stop is Stop.MAX_STEPS
    assert is_finite(result)


def test_max_seconds():
    x, mask = noisy(STRUCTURES["ring"]), some(DIMS, 0.8)
    result = tg.complete(x, mask, max_seconds=0, **FAST)
    assert result.stop is Stop.MAX_SECONDS
    assert result.num_parameters == 20 and is_finite(result)
    assert tg.complete(x, mask, max_seconds=600, max_steps=1, **FAST).stop is Stop.MAX_STEPS


def test_max_error_is_on_the_held_out_entries():
    grids = np.meshgrid(*(np.linspace(0, 1, 6),) * 3, indexing="ij")
    x, mask = 1.0 / (0.2 + sum(grids)), some((6, 6, 6), 0.8)
    sizes = []
    for error in (0.1, 0.01):
        result = tg.complete(x, mask, max_error=error, **FAST)
        assert result.stop is Stop.TARGET_REACHED
        assert 0 < result.validation_error <= error
        sizes.append(result.num_parameters)
    assert sizes[0] < sizes[1]


def test_overfitting_does_not_count_as_reaching_the_error():
    """The fitted entries are met far better than asked, the held-out ones are not."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((6, 6, 6))
    held = some(x.shape, 0.5)
    start = random_network(Structure.tensor_train(x.shape, 6), 0)
    options = GreedyOptions.for_completion("fast").replace(ridge=1e-6)
    result = tg.complete(
        x,
        np.ones(x.shape, bool),
        validation=held,
        init=start,
        max_error=0.5,
        max_steps=0,
        options=options,
        random_state=0,
    )
    assert result.train_error < 0.3 and result.validation_error > 0.8
    assert result.stop is Stop.MAX_STEPS


def test_saturated():
    """A full matrix cannot grow beyond its smaller side."""
    x = planted(Structure.tensor_train((3, 20), 3))
    options = GreedyOptions.for_completion("fast").replace(ridge=1e-10, patience=50)
    result = tg.complete(
        x, np.ones(x.shape, bool), validation=False, max_error=0, options=options, random_state=0
    )
    assert result.stop in (Stop.SATURATED, Stop.NO_PROGRESS)
    assert result.structure.rank(0, 1) == 3


# -- held-out entries --------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.05, 0.3, 0.8])
def test_a_share_is_held_out(share):
    x, mask = noisy(STRUCTURES["train"]), np.ones(DIMS, bool)
    result = tg.complete(x, mask, validation=share, max_steps=1, **FAST)
    assert result.info["num_held_out"] == pytest.approx(share * x.size, rel=0.05)
    assert result.info["num_observations"] == x.size


@pytest.mark.parametrize("validation", [False, None, 0, 0.0])
def test_nothing_held_out_needs_a_limit(validation):
    x, mask = noisy(), some(SMALL.dims, 0.8)
    with pytest.raises(tg.OptionError, match="when to stop"):
        tg.complete(x, mask, validation=validation, **FAST)
    result = tg.complete(x, mask, validation=validation, max_parameters=30, **FAST)
    assert result.validation_error is None and result.info["num_held_out"] == 0
    assert result.train_error == pytest.approx(result.relative_error, rel=1e-6)
    assert result.relative_error == pytest.approx(error_at(result, x, mask), rel=1e-6)
    assert all(s.validation_error is None for s in result.history)


def test_masks_of_held_out_entries():
    x, mask = noisy(), some(SMALL.dims, 0.8)
    held = some(SMALL.dims, 0.3, seed=5)
    where = np.argwhere(mask)
    listed = tg.Observations(where, x[mask], x.shape)
    options = {"max_steps": 1, **FAST}
    results = [
        tg.complete(x, mask, validation=held, **options),
        tg.complete(x, mask, validation=torch.tensor(held), **options),
        tg.complete(x, mask, validation=held.tolist(), **options),
        tg.complete(listed, validation=held, **options),
        tg.complete(listed, validation=held[mask], **options),
        tg.complete(listed, validation=torch.tensor(held[mask]), **options),
    ]
    assert results[0].info["num_held_out"] == (held & mask).sum()
    for other in results[1:]:
        assert_same(results[0], other)


def test_the_held_out_error_is_on_the_mask():
    """With no growth and no refit afterwards everything can be computed by hand."""
    x, mask = noisy(), some(SMALL.dims, 0.8)
    held = some(SMALL.dims, 0.3, seed=5)
    seen = []

    class Look:
        def on_start(self, search): ...

        def on_step(self, search, step): ...

        def on_end(self, search):
            seen.append((search.answer.network, search.problem.objective))

    result = tg.complete(x, mask, validation=held, max_steps=2, callbacks=Look(), **FAST)
    network = seen[0][0]
    inside = tg.Result(network, 0.0, (), Stop.CONVERGED)
    assert result.train_error == pytest.approx(error_at(inside, x, mask & ~held), rel=1e-6)
    assert result.validation_error == pytest.approx(error_at(inside, x, mask & held), rel=1e-6)


def test_held_out_values_reach_only_the_final_fit():
    """Changing them changes no network before the refit, as long as decisions do not depend on them."""
    x, mask = noisy(), np.ones(SMALL.dims, bool)
    held = some(SMALL.dims, 0.2, seed=3)
    other = x.copy()
    other[held] *= -1
    options = {
        "validation": held,
        "max_steps": 0,
        "options": GreedyOptions.for_completion("fast").replace(ridge=1e-3),
    }
    a, b = (tg.complete(y, mask, random_state=0, **options) for y in (x, other))
    assert a.train_error == pytest.approx(b.train_error, rel=1e-9)
    np.testing.assert_allclose(
        a.path[0].network.to_dense(), b.path[0].network.to_dense(), rtol=1e-6, atol=1e-9
    )  # fmt: skip
    assert a.validation_error < 1 < b.validation_error
    assert a.relative_error != pytest.approx(b.relative_error, rel=1e-2)


VALIDATION = {
    "all of them": (1.0, ["share", "1.0"]),
    "negative": (-0.1, ["share", "-0.1"]),
    "nan": (math.nan, ["share", "nan"]),
    "true": (True, ["mask"]),
    "text": ("0.1", ["boolean", "share"]),
    "indices": ([1, 2], ["boolean"]),
    "another shape": (np.ones((5, 6), bool), ["(5, 6)", "(5, 6, 5)"]),
    "everything": (np.ones(SMALL.dims, bool), ["some must"]),
    "nothing": (np.zeros(SMALL.dims, bool), ["0 of", "some must"]),
}


@pytest.mark.parametrize("case", VALIDATION)
def test_bad_validation(case):
    validation, words = VALIDATION[case]
    with pytest.raises(tg.OptionError) as caught:
        tg.complete(noisy(), some(SMALL.dims, 0.8), validation=validation, **FAST)
    for word in words:
        assert word.lower() in str(caught.value).lower()


def test_without_a_seed_the_same_entries_are_held_out():
    x, mask = noisy(), some(SMALL.dims, 0.8)
    options = {"max_steps": 0, "effort": "fast"}
    one, two = (tg.complete(x, mask, **options).validation_error for _ in range(2))
    assert one == pytest.approx(two, rel=3e-3)  # random starts end at about the same fit
    for seed in (1, 2, 3):  # other entries tell
        assert tg.complete(x, mask, random_state=seed, **options).validation_error != pytest.approx(
            one, rel=6e-3
        )


# -- truth -------------------------------------------------------------------------------------------------


def test_truth_as_a_tensor_or_a_list():
    x, mask = noisy(), some(SMALL.dims, 0.7)
    options = {"max_steps": 1, **FAST}
    where = np.argwhere(~mask)
    partly = x.copy()
    partly[~mask & some(SMALL.dims, 0.5, seed=9)] = np.nan
    results = [
        tg.complete(x, mask, truth=truth, **options)
        for truth in (
            x,
            torch.tensor(x),
            tg.Observations(where, x[~mask], x.shape),
            tg.Observations(np.argwhere(x < 9), x.ravel(), x.shape),
        )
    ]
    for result in results:
        assert result.test_error == pytest.approx(error_at(result, x, ~mask), rel=1e-6)
    some_truth = tg.complete(x, mask, truth=partly, **options)
    assert some_truth.test_error == pytest.approx(
        error_at(some_truth, x, ~mask & ~np.isnan(partly)), rel=1e-6
    )
    assert_same(results[0], tg.complete(x, mask, truth=x, **options))
    assert tg.complete(x, mask, **options).test_error is None


def test_truth_is_not_used_otherwise():
    x, mask = noisy(), some(SMALL.dims, 0.7)
    a, b = (tg.complete(x, mask, truth=t, max_steps=2, **FAST) for t in (x, -x))
    np.testing.assert_allclose(rebuilt(a), rebuilt(b), atol=1e-9)
    assert b.test_error > 1 > a.test_error


@pytest.mark.parametrize(
    ("truth", "word"),
    [
        (np.zeros((5, 6)), "shape"),
        (np.full(SMALL.dims, np.inf), "finite"),
        (np.full(SMALL.dims, np.nan), "observation"),
        (np.where(some(SMALL.dims, 0.7), 1.0, np.nan), "nothing to test"),
    ],
)
def test_bad_truth(truth, word):
    with pytest.raises(tg.DataError, match=word):
        tg.complete(noisy(), some(SMALL.dims, 0.7), truth=truth, **FAST)


# -- predictions -------------------------------------------------------------------------------------------


def test_fill_keeps_what_is_observed(plain):
    x, mask, result = plain
    before = x.copy()
    filled = result.fill(x, mask)
    assert isinstance(filled, np.ndarray) and filled.dtype == x.dtype
    np.testing.assert_array_equal(filled[mask], x[mask])
    np.testing.assert_allclose(filled[~mask], rebuilt(result)[~mask], rtol=1e-9)
    np.testing.assert_array_equal(x, before)
    every = result.fill(x, mask, keep_observed=False)
    np.testing.assert_allclose(every, rebuilt(result), rtol=1e-9)
    assert np.abs(every - x)[mask].max() > 1e-6


def test_fill_takes_every_form(plain):
    x, mask, result = plain
    expected = result.fill(x, mask)
    hidden = np.where(mask, x, np.nan)
    for given in (
        hidden,
        np.ma.masked_array(np.where(mask, x, 0.0), ~mask),
        hidden.tolist(),
        hidden.astype(">f8"),
    ):
        found = result.fill(given)
        assert isinstance(found, np.ndarray)
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_array_equal(result.fill(x, mask.astype(int)), expected)
    np.testing.assert_array_equal(result.fill(x, mask.tolist()), expected)
    tensor = torch.tensor(x, requires_grad=True)
    found = result.fill(tensor, torch.tensor(mask))
    assert isinstance(found, torch.Tensor) and not found.requires_grad
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)
    np.testing.assert_allclose(result.fill(torch.tensor(hidden)).numpy(), expected, rtol=1e-12)
    assert result.fill(x.astype(np.float32), mask).dtype == np.float64  # the network is in double precision
    whole = result.fill((10 * x).astype(int), mask)
    assert whole.dtype == np.float64
    np.testing.assert_array_equal(whole[mask], (10 * x).astype(int)[mask])
    np.testing.assert_allclose(whole[~mask], rebuilt(result)[~mask], rtol=1e-9)


def test_fill_refuses_other_shapes(plain):
    x, mask, result = plain
    with pytest.raises(tg.DataError, match="shape"):
        result.fill(x[1:], mask[1:])
    with pytest.raises(tg.DataError, match="mask"):
        result.fill(x, mask[1:])


def test_predict(plain):
    x, _, result = plain
    where = np.argwhere(np.ones(x.shape, bool))
    np.testing.assert_allclose(result.predict(where).numpy(), rebuilt(result).ravel(), rtol=1e-9, atol=1e-12)
    assert result.predict(torch.tensor([[1, 2, 3]])).tolist() == pytest.approx([rebuilt(result)[1, 2, 3]])


def test_save_and_load_keep_the_errors(plain, tmp_path):
    *_, result = plain
    result.save(tmp_path / "run.safetensors")
    again = tg.load(tmp_path / "run.safetensors")
    assert isinstance(again, tg.Result)
    for name in ("relative_error", "train_error", "validation_error", "test_error", "stop", "history"):
        assert getattr(again, name) == getattr(result, name), name
    np.testing.assert_array_equal(rebuilt(again), rebuilt(result))
    assert again.info["num_observations"] == result.info["num_observations"]
    assert repr(again) == repr(result)


# -- seeds, checkpoints, interruption ----------------------------------------------------------------------


def test_a_seed_reproduces_a_run(plain):
    x, mask, result = plain
    assert_same(result, tg.complete(x, mask, truth=x, **FAST))
    other = tg.complete(x, mask, truth=x, effort="fast", random_state=1)
    assert other.validation_error != result.validation_error


class StopAfter:
    def __init__(self, steps: int, error: BaseException | None = None) -> None:
        self.left, self.error = steps, error

    def __call__(self, step: tg.Step) -> bool:
        self.left -= 1
        if self.left <= 0 and self.error is not None:
            raise self.error
        return self.left <= 0


RUNS = {
    "noisy": (noisy(), {"max_steps": 6}),
    "two starts": (noisy(level=0.2), {"effort": "balanced"}),
    "exact": (planted(), {}),
    "lookahead": (noisy(), {"effort": "thorough", "max_steps": 5}),
    "held by a mask": (noisy(), {"validation": some(SMALL.dims, 0.2, seed=4), "max_steps": 3}),
    "nothing held out": (noisy(), {"validation": False, "max_parameters": 40}),
    "complex": (noisy() + 1j * noisy(seed=2), {"effort": "fast", "max_steps": 4}),
}


@pytest.mark.parametrize("name", RUNS)
def test_interrupted_runs_end_like_uninterrupted_ones(name, tmp_path):
    x, options = RUNS[name]
    mask = some(x.shape, 0.8)
    options = {"random_state": 3, "effort": "fast", **options}
    whole = tg.complete(x, mask, truth=x, **options)
    steps = len([s for s in whole.history if s.kind != "refit"])
    later = [k for k, s in enumerate(whole.history, 1) if s.start > 0 and s.kind != "refit"]
    assert later or name != "two starts"
    for k in sorted({(steps + 1) // 2, *later[:2], steps}):
        file = tmp_path / f"{k}.ckpt"
        part = tg.complete(x, mask, checkpoint=file, callbacks=StopAfter(k), **options)
        assert part.stop is Stop.CALLBACK and is_finite(part)
        resumed = tg.complete(x, mask, truth=x, checkpoint=file, **options)
        assert_same(resumed, whole)
    finished = tg.complete(x, mask, truth=x, checkpoint=file, **options)
    assert_same(finished, whole)


@pytest.mark.parametrize("length", range(0, 16, 4))
def test_complex_numbers_from_a_file_are_aligned(length, tmp_path):
    """Where they begin in the file depends on the length of the header; torch crashes on odd addresses."""
    file = tmp_path / "x.safetensors"
    x = torch.complex(torch.arange(6.0), torch.ones(6)).to(torch.complex128)
    write_file(file, "network", {"padding": "x" * length}, {"x": x})
    found = read_file(file, ("network",))[1]["x"]
    assert found.data_ptr() % 16 == 0
    torch.testing.assert_close(found, x, rtol=0, atol=0)


def test_more_steps_go_on_from_a_checkpoint(tmp_path):
    x, mask = noisy(), some(SMALL.dims, 0.8)
    options = {"random_state": 3, "effort": "fast", "max_parameters": 40}
    whole = tg.complete(x, mask, **options)
    for steps in (1, None):
        result = tg.complete(x, mask, checkpoint=tmp_path / "c", max_steps=steps, **options)
    assert_same(result, whole)


def test_ctrl_c_returns_the_best_so_far(plain, tmp_path):
    x, mask, whole = plain
    file = tmp_path / "run.ckpt"
    result = tg.complete(
        x, mask, truth=x, checkpoint=file, callbacks=StopAfter(2, KeyboardInterrupt()), **FAST
    )
    assert result.stop is Stop.INTERRUPTED
    assert len([s for s in result.history if s.kind != "refit"]) == 2
    assert is_finite(result) and result.test_error is not None
    assert_same(tg.complete(x, mask, truth=x, checkpoint=file, **FAST), whole)


@pytest.mark.parametrize("call", [1, 3, 7])
def test_ctrl_c_within_a_move(plain, call, monkeypatch, tmp_path):
    """Between the growth of a network and the choice of its ridge, for example: the move is made again."""
    x, mask, whole = plain
    calls = 0
    real = growth.als

    def interrupted(*arguments, **keywords):
        nonlocal calls
        calls += 1
        if calls == call:
            raise KeyboardInterrupt
        return real(*arguments, **keywords)

    file = tmp_path / "run.ckpt"
    with monkeypatch.context() as patch:
        patch.setattr(growth, "als", interrupted)
        if call == 1:  # there is nothing to return yet
            with pytest.raises(KeyboardInterrupt):
                tg.complete(x, mask, checkpoint=file, **FAST)
        else:
            result = tg.complete(x, mask, checkpoint=file, **FAST)
            assert result.stop is Stop.INTERRUPTED and is_finite(result)
    assert calls == call
    assert_same(tg.complete(x, mask, truth=x, checkpoint=file, **FAST), whole)


def test_other_errors_come_through():
    x, mask = noisy(), some(SMALL.dims, 0.8)
    with pytest.raises(RuntimeError, match="mine"):
        tg.complete(x, mask, callbacks=StopAfter(2, RuntimeError("mine")), **FAST)


CHANGES = {
    "values": lambda x, mask: ((-x, mask), {}),
    "one value": lambda x, mask: (
        (np.where(np.arange(x.size).reshape(x.shape) == np.flatnonzero(mask)[0], 2 * x, x), mask),
        {},
    ),
    "mask": lambda x, mask: ((x, mask ^ (np.arange(x.size).reshape(x.shape) == 17)), {}),
    "mask of the same size": lambda x, mask: ((x, np.roll(mask, 1)), {}),
    "weights": lambda x, mask: ((x, mask), {"weights": np.linspace(1, 2, x.size).reshape(x.shape)}),
    "share": lambda x, mask: ((x, mask), {"validation": 0.3}),
    "nothing held out": lambda x, mask: ((x, mask), {"validation": False, "max_steps": 2}),
    "held-out entries": lambda x, mask: ((x, mask), {"random_state": 1}),
    "edges": lambda x, mask: ((x, mask), {"edges": "chain"}),
    "budget": lambda x, mask: ((x, mask), {"max_parameters": 30}),
    "error": lambda x, mask: ((x, mask), {"max_error": 0.1}),
    "effort": lambda x, mask: ((x, mask), {"effort": "balanced"}),
    "dtype": lambda x, mask: ((x, mask), {"dtype": "float32"}),
}


@pytest.fixture(scope="module")
def checkpoint_of_another_run(tmp_path_factory):
    file = tmp_path_factory.mktemp("run") / "run.ckpt"
    x = noisy(level=0.3)
    tg.complete(x, some(SMALL.dims, 0.8), checkpoint=file, max_steps=1, **FAST)
    return x, file


@pytest.mark.parametrize("change", CHANGES)
def test_checkpoints_of_another_run_are_refused(change, checkpoint_of_another_run):
    x, file = checkpoint_of_another_run
    content = file.read_bytes()
    arguments, options = CHANGES[change](x, some(SMALL.dims, 0.8))
    with pytest.raises(tg.OptionError, match="another run"):
        tg.complete(*arguments, checkpoint=file, **(FAST | options))
    assert file.read_bytes() == content


def test_a_transposed_dataset_is_another_one(tmp_path):
    """Constant values: only the positions tell."""
    mask = some((6, 6), 0.5)
    options = {"max_steps": 1, "validation": False, "effort": "fast", "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tg.DataWarning)
        tg.complete(
            tg.Observations([[0, 1], [1, 2], [2, 0]], [1.0] * 3, (3, 3)), checkpoint=tmp_path / "a", **options
        )
        with pytest.raises(tg.OptionError, match="another run"):
            other = tg.Observations([[0, 2], [1, 0], [2, 1]], [1.0] * 3, (3, 3))
            tg.complete(other, checkpoint=tmp_path / "a", **options)
        tg.complete(np.ones((6, 6)), mask, checkpoint=tmp_path / "b", **options)
        with pytest.raises(tg.OptionError, match="another run"):
            tg.complete(np.ones((6, 6)), mask.T, checkpoint=tmp_path / "b", **options)


def test_a_dense_run_is_another_one(tmp_path):
    x = noisy()
    tg.decompose(x, max_steps=1, checkpoint=tmp_path / "run", random_state=0)
    with pytest.raises(tg.OptionError, match="another run"):
        tg.complete(x, np.ones(x.shape, bool), checkpoint=tmp_path / "run", max_steps=1, random_state=0)


# -- memory, device, start ---------------------------------------------------------------------------------


def test_memory_limits():
    x, mask = noisy(), some(SMALL.dims, 0.8)
    with pytest.raises(tg.MemoryLimitError, match=r"\(5, 6, 5\).*GB"):
        tg.complete(x, mask, memory_limit=1000, **FAST)
    with pytest.raises(tg.MemoryLimitError, match="GB"):
        tg.fit(x, SMALL, mask, memory_limit=1000)
    for limit in (-1, math.nan, "1GB"):
        with pytest.raises(tg.OptionError, match="memory_limit"):
            tg.complete(x, mask, memory_limit=limit, **FAST)
    assert tg.complete(x, mask, memory_limit=4e9, max_steps=1, **FAST).stop is Stop.MAX_STEPS


def test_growth_stops_at_the_memory_limit():
    x, mask = noisy(), some(SMALL.dims, 0.8)
    where = torch.tensor(np.argwhere(mask))
    objective = ObservedLeastSquares(where, torch.tensor(x[mask]), x.shape)
    first = objective.memory_needed(Structure.rank_one(x.shape))
    result = tg.complete(x, mask, memory_limit=first + 1, **FAST)
    assert result.stop is Stop.MEMORY_LIMIT
    assert result.num_parameters == sum(x.shape) and is_finite(result)


def test_devices(device):
    x, mask = noisy(), some(SMALL.dims, 0.8)
    result = tg.complete(x, mask, device=device, truth=x, max_steps=2, **FAST)
    assert result.network.device.type == device
    assert result.predict([[0, 0, 0]]).device.type == device
    filled = result.fill(x, mask)
    np.testing.assert_array_equal(filled[mask], x[mask])
    there = tg.complete(
        torch.tensor(x, device=device), torch.tensor(mask, device=device), max_steps=2, **FAST
    )
    assert there.network.device.type == device
    assert there.structure == result.structure
    for bad in ("tpu", "meta"):
        with pytest.raises(tg.OptionError, match="device"):
            tg.complete(x, mask, device=bad, **FAST)


def test_init():
    x, mask = planted(), some(SMALL.dims, 0.8)
    start = random_network(SMALL, 5)
    cores = [c.clone() for c in start.cores]
    result = tg.complete(x, mask, init=start, random_state=0)
    assert result.history[0].structure == SMALL
    assert error_at(result, x, ~mask) < 1e-6
    for a, b in zip(start.cores, cores):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
    for bad, word in [
        ([1], "init"),
        (random_network(Structure.rank_one((5, 6)), 0), r"\(5, 6\)"),
        (random_network(SMALL, 0, torch.complex128), "complex"),
        (TensorNetwork(SMALL, [c * math.nan for c in cores]), "finite"),
    ]:
        with pytest.raises(tg.OptionError, match=word):
            tg.complete(x, mask, init=bad, **FAST)
    with pytest.raises(tg.OptionError, match="max_parameters=20"):
        tg.complete(x, mask, init=start, max_parameters=20, **FAST)


def test_callbacks_and_options():
    x, mask = noisy(), some(SMALL.dims, 0.8)
    seen = []
    result = tg.complete(x, mask, callbacks=lambda step: seen.append(step), max_steps=2, **FAST)
    assert [s.index for s in seen] == [s.index for s in result.history if s.kind != "refit"]
    with pytest.raises(tg.OptionError, match="GreedyOptions"):
        tg.complete(x, mask, options={"ridge": 1.0})
    with pytest.raises(tg.OptionError, match="effort"):
        tg.complete(x, mask, effort="heroic")
    with pytest.raises(TypeError, match="bogus"):
        tg.complete(x, mask, bogus=1)
    options = GreedyOptions.for_completion("fast").replace(ridge=0.25)
    assert tg.complete(x, mask, options=options, max_steps=1, random_state=0).info["ridge"] == 0.25


@pytest.mark.parametrize(
    "options",
    [
        GreedyOptions.paper().replace(sweeps=5),
        GreedyOptions.for_completion("fast").replace(scoring="full"),
        GreedyOptions.for_completion("fast").replace(slice_init="random", lookahead=3),
        GreedyOptions.for_completion("fast").replace(rank_increment=2),
        GreedyOptions.for_completion("fast").replace(transfer=False),
        GreedyOptions.for_completion("fast").replace(edge_score=lambda before, after, added: before - after),
        GreedyOptions(),
    ],
    ids=["paper", "full", "random slices", "two ranks", "no transfer", "own score", "dense defaults"],
)
def test_rarer_options(options):
    x, mask = noisy(), some(SMALL.dims, 0.8)
    result = tg.complete(x, mask, options=options, max_steps=2, random_state=0)
    assert is_finite(result) and result.validation_error < 1.0
    assert len(result.history) >= 2


def test_max_degree():
    x, mask = noisy(STRUCTURES["ring"]), some(DIMS, 0.8)
    options = GreedyOptions.for_completion("fast").replace(max_degree=1)
    result = tg.complete(x, mask, options=options, max_steps=5, random_state=0)
    assert all(len(n) <= 1 for s in result.history for n in s.structure.neighbours)


# -- weights -----------------------------------------------------------------------------------------------


def test_weights_decide_whom_to_believe():
    x, mask = planted(), some(SMALL.dims, 0.9)
    bad = some(SMALL.dims, 0.2, seed=7) & mask
    given = np.where(bad, x + 5.0, x)
    weights = np.where(bad, 1e-9, 1.0)
    trusted = tg.fit(
        given, SMALL, mask, weights=weights, ridge=1e-12, max_sweeps=500, tolerance=1e-9, random_state=0
    )
    assert error_at(trusted, x, ~mask) < 1e-4
    naive = tg.fit(given, SMALL, mask, ridge=1e-12, random_state=0)
    assert error_at(naive, x, ~mask) > 0.1
    dropped = tg.complete(given, mask, weights=np.where(bad, 0.0, 1.0), random_state=0)
    assert dropped.info["num_observations"] == (mask & ~bad).sum()
    assert error_at(dropped, x, ~mask | bad) < 1e-6


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("size", [1e-300, 1e60])
def test_only_ratios_of_weights_matter(size, kind):
    x, mask = noisy().astype(kind), some(SMALL.dims, 0.8)
    weights = np.random.default_rng(0).uniform(0.5, 2.0, x.shape)
    one, other = (
        tg.complete(x, mask, weights=s * weights, max_steps=1, truth=x, **FAST) for s in (1.0, size)
    )
    assert one.structure == other.structure
    for name in ("relative_error", "train_error", "validation_error", "test_error"):
        assert getattr(other, name) == pytest.approx(getattr(one, name), rel=2e-2), name


def test_losses_are_in_the_units_of_the_weights():
    x, mask = noisy(), some(SMALL.dims, 0.8)
    for factor in (4.0, 1e20):
        result = tg.complete(x, mask, weights=np.full(x.shape, factor), max_steps=1, **FAST)
        norm = np.linalg.norm(x[mask])
        assert result.history[-1].loss == pytest.approx(
            math.sqrt(factor) * result.relative_error * norm, rel=1e-6
        )


# -- a structure that is already known ---------------------------------------------------------------------


@pytest.mark.parametrize("structure", STRUCTURES.values(), ids=STRUCTURES)
def test_fit_recovers(structure):
    x, mask = planted(structure), some(structure.dims, 0.7)
    runs = (tg.fit(x, structure, mask, truth=x, random_state=s) for s in (1, 2))  # ALS has local optima
    best = min(runs, key=lambda r: r.validation_error)
    assert best.structure == structure
    assert best.test_error < 1e-5
    assert best.test_error == pytest.approx(error_at(best, x, ~mask), rel=1e-3, abs=1e-12)


def test_fit_with_a_ridge_holds_nothing_out():
    x, mask = noisy(), some(SMALL.dims, 0.8)
    result = tg.fit(x, SMALL, mask, ridge=1e-2, random_state=0)
    assert result.validation_error is None and result.info["num_held_out"] == 0
    assert result.train_error == pytest.approx(result.relative_error, rel=1e-6)
    assert result.relative_error == pytest.approx(error_at(result, x, mask), rel=1e-6)
    assert result.info["ridge"] == 1e-2
    strong = tg.fit(x, SMALL, mask, ridge=1.0, random_state=0)
    assert strong.relative_error > result.relative_error


def test_fit_takes_every_form():
    x, mask = noisy(), some(SMALL.dims, 0.8)
    where = np.argwhere(mask)
    forms = [
        (tg.Observations(where, x[mask], x.shape), None),
        (
            torch.sparse_coo_tensor(
                torch.tensor(where).T, torch.tensor(x[mask]), x.shape, check_invariants=True
            ),
            None,
        ),
        (torch.tensor(x), torch.tensor(mask)),
    ]
    first = tg.fit(x, SMALL, mask, ridge=1e-3, random_state=0)
    for data, seen in forms:
        assert_same(first, tg.fit(data, SMALL, seen, ridge=1e-3, random_state=0))


def test_a_full_mask_fits_like_the_dense_tensor():
    x = noisy(level=0.3)
    start = random_network(SMALL, 0)
    sweeps = {"max_sweeps": 400, "tolerance": 1e-10, "init": start}
    whole = tg.fit(x, SMALL, **sweeps)
    masked = tg.fit(x, SMALL, np.ones(x.shape, bool), ridge=0.0, **sweeps)
    assert masked.relative_error == pytest.approx(whole.relative_error, rel=1e-5)
    np.testing.assert_allclose(rebuilt(masked), rebuilt(whole), atol=1e-3)


@pytest.mark.parametrize("validation", [False, 0.1])
def test_max_sweeps_is_a_maximum(validation, monkeypatch):
    x, mask = noisy(), some(SMALL.dims, 0.8)
    most = 0
    real = growth.als

    def counted(*arguments, **keywords):
        nonlocal most
        fitted = real(*arguments, **keywords)
        most = max(most, fitted.num_sweeps)
        return fitted

    monkeypatch.setattr(growth, "als", counted)
    for sweeps in (1, 3):
        most = 0
        tg.fit(x, SMALL, mask, validation=validation, max_sweeps=sweeps, tolerance=0.0, random_state=0)
        assert most == sweeps


def test_fit_stops_at_the_error():
    x, mask = planted(), some(SMALL.dims, 0.9)
    assert tg.fit(x, SMALL, mask, max_error=0.5, random_state=0).stop is Stop.TARGET_REACHED
    noise = np.random.default_rng(0).standard_normal(SMALL.dims)
    result = tg.fit(noise, SMALL, mask, max_error=1e-3, random_state=0)
    assert result.stop is Stop.CONVERGED
    assert tg.fit(noise, SMALL, mask, max_seconds=0, random_state=0).stop in (
        Stop.CONVERGED,
        Stop.MAX_SECONDS,
    )


def test_fit_goes_on_from_a_network():
    truth = random_network(SMALL, 1)
    x = truth.to_dense().numpy()
    mask = some(SMALL.dims, 0.8)
    result = tg.fit(x, SMALL, mask, init=truth, ridge=0.0)
    assert error_at(result, x, ~mask) < 1e-8
    with pytest.raises(tg.OptionError, match="init"):
        tg.fit(x, SMALL, mask, init=random_network(Structure.rank_one(SMALL.dims), 0))


@pytest.mark.parametrize(
    ("options", "kind", "word"),
    [
        ({"structure": Structure.rank_one((5, 6))}, tg.DataError, r"\(5, 6\)"),
        ({"structure": "tt"}, tg.StructureError, "str"),
        ({"max_sweeps": 0}, tg.OptionError, "max_sweeps"),
        ({"tolerance": -1}, tg.OptionError, "tolerance"),
        ({"ridge": -1.0}, tg.OptionError, "ridge"),
        ({"ridge": math.nan}, tg.OptionError, "ridge"),
        ({"max_error": -1}, tg.OptionError, "max_error"),
        ({"mask": np.ones((5, 6), bool)}, tg.DataError, "mask"),
        ({"truth": np.ones((5, 6))}, tg.DataError, "truth"),
        ({"weights": np.ones((5, 6))}, tg.DataError, "weights"),
        ({"validation": 2.0}, tg.OptionError, "validation"),
        ({"mask": None, "weights": np.ones(SMALL.dims)}, tg.OptionError, "weights"),
        ({"mask": None, "ridge": 1.0}, tg.OptionError, "ridge"),
        ({"mask": None, "truth": np.ones(SMALL.dims)}, tg.OptionError, "truth"),
    ],
)
def test_bad_fit(options, kind, word):
    arguments = {"structure": SMALL, "mask": some(SMALL.dims, 0.8)} | options
    with pytest.raises(kind, match=word):
        tg.fit(noisy(), **arguments)


# -- data that leaves things open --------------------------------------------------------------------------


def test_slices_without_observations():
    x, mask = planted(), some(SMALL.dims, 0.9)
    mask[2], mask[:, 4], mask[:, 1] = False, False, False
    with pytest.warns(tg.DataWarning, match=r"1 of 5 along mode 0, 2 of 6 along mode 1\)"):
        result = tg.complete(x, mask, random_state=0)
    assert is_finite(result)
    known = np.delete(np.delete(np.ones(SMALL.dims, bool), 2, 0), [1, 4], 1)
    got = np.delete(np.delete(rebuilt(result), 2, 0), [1, 4], 1)
    true = np.delete(np.delete(x, 2, 0), [1, 4], 1)
    assert known.shape == got.shape
    assert np.linalg.norm(got - true) < 1e-5 * np.linalg.norm(true)
    assert np.abs(rebuilt(result)).max() < 100 * np.abs(x).max()


def test_a_fibre_without_observations():
    x, mask = planted(), np.ones(SMALL.dims, bool)
    mask[2, 3, :] = mask[:, 0, 0] = False
    result = tg.complete(x, mask, random_state=0)  # no warning: every slice has entries
    assert error_at(result, x, ~mask) < 1e-6


def test_one_observation_per_slice():
    d = np.arange(12)
    with pytest.warns(tg.DataWarning, match="degrees of freedom"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "every slice", tg.DataWarning)
        result = tg.complete(tg.Observations(np.stack([d, d, d], 1), 1.0 + d, (12, 12, 12)), random_state=0)
    assert is_finite(result)
    assert result.num_parameters == 36  # nothing can be held out, so nothing speaks for a larger network
    assert result.info["num_held_out"] == 0 and result.validation_error is None
    assert np.abs(rebuilt(result)).max() < 1e4


def test_nothing_to_hold_out_is_said():
    d = np.arange(12)
    listed = tg.Observations(np.stack([d, d], 1), 1.0 + d, (12, 12))
    with pytest.warns(tg.DataWarning) as caught:
        tg.complete(listed, random_state=0)
    assert any("none is held out" in str(w.message) for w in caught)


@pytest.mark.parametrize("n", [1, 2, 9, 10, 11])
def test_few_observations(n):
    rng = np.random.default_rng(n)
    where = np.stack(np.unravel_index(rng.permutation(64)[:n], (4, 4, 4)), 1)
    listed = tg.Observations(where, rng.uniform(1, 2, n), (4, 4, 4))
    with pytest.warns(tg.DataWarning) if n < 10 else warnings.catch_warnings():
        warnings.simplefilter("always" if n < 10 else "ignore")
        limited = tg.complete(listed, max_parameters=20, **FAST)
        unlimited = tg.complete(listed, **FAST)
    for r in (limited, unlimited):
        assert is_finite(r)
        assert r.info["num_observations"] == n
        assert r.info["num_held_out"] == 0 or n >= 10
    assert limited.num_parameters <= 20
    if unlimited.info["num_held_out"] == 0:
        assert unlimited.num_parameters == 12  # as the warning says
    else:
        assert n >= 10 and unlimited.validation_error is not None


@pytest.mark.parametrize("value", [1.0, -3.5, 1e-3, 1e5, 2 - 1j])
def test_constant_values(value):
    mask = some((4, 5, 6), 0.5)
    result = tg.complete(np.full((4, 5, 6), value), mask, random_state=0)
    assert result.num_parameters == 15
    np.testing.assert_allclose(rebuilt(result), value, rtol=1e-5)


def test_an_outlier_is_pointed_out():
    x, mask = planted(), some(SMALL.dims, 0.8)
    x[tuple(np.argwhere(mask)[3])] = 1e6
    with pytest.warns(tg.DataWarning, match="outliers"):
        result = tg.complete(x, mask, max_steps=1, **FAST)
    assert is_finite(result)


def test_outliers():
    x, mask = planted(), some(SMALL.dims, 0.8)
    given = x.copy()
    where = np.argwhere(mask)[[3, 40]]
    given[tuple(where.T)] = 1e6
    result = tg.complete(given, mask, random_state=0)
    assert is_finite(result)
    assert np.abs(rebuilt(result)).max() < 1e8


@pytest.mark.parametrize("dtype", [np.float32, np.complex128, np.int64])
def test_all_zero(dtype):
    x, mask = np.zeros((4, 5, 6), dtype), some((4, 5, 6), 0.5)
    result = tg.complete(x, mask, random_state=0, truth=np.ones((4, 5, 6)))
    assert result.relative_error == result.train_error == result.validation_error == 0
    assert result.test_error == pytest.approx(1.0)
    np.testing.assert_array_equal(result.network.to_dense().numpy(), 0)
    np.testing.assert_array_equal(result.fill(x, mask), 0)
    fitted = tg.fit(x, Structure.tensor_train((4, 5, 6), 2), mask, truth=np.ones((4, 5, 6)))
    assert fitted.relative_error == 0 and fitted.test_error == pytest.approx(1.0)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("shape", [(6, 6), (4, 5, 6)])
def test_one_entry_that_is_not_zero(shape, seed):
    """The held-out entries are all zero, so that their norm is."""
    x = np.zeros(shape)
    x[(2,) * len(shape)] = 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tg.DataWarning)  # it looks like an outlier
        result = tg.complete(x, np.ones(shape, bool), random_state=seed)  # with all of its phases
    assert is_finite(result)
    assert math.isfinite(result.validation_error)
    assert 0 <= result.relative_error <= 1.0 + 1e-9


def test_all_that_is_not_zero_is_held_out():
    x = np.zeros((5, 6))
    x[1, 2] = x[3, 3] = 1.0
    result = tg.complete(x, np.ones(x.shape, bool), validation=x > 0, random_state=0)
    assert is_finite(result)
    assert result.validation_error == pytest.approx(1.0)
    assert result.train_error == pytest.approx(0.0, abs=1e-6)


def test_vectors():
    x, mask = np.arange(1.0, 31.0), np.arange(30) % 3 > 0
    with pytest.warns(tg.DataWarning, match="10 of 30 along mode 0"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(every slice|20 observations)", tg.DataWarning)
        result = tg.complete(x, mask, random_state=0)
    assert result.num_parameters == 30 and is_finite(result)
    filled = result.fill(x, mask)
    np.testing.assert_array_equal(filled[mask], x[mask])
    np.testing.assert_allclose(filled[~mask], x[mask].mean(), rtol=0.05)


def test_matrix_completion():
    structure = Structure.tensor_train((20, 25), 3)
    x, mask = planted(structure), some((20, 25), 0.6)
    result = tg.complete(x, mask, random_state=0)
    assert dict(result.structure.ranks) == {(0, 1): 3}
    assert error_at(result, x, ~mask) < 1e-6


def test_noise_is_not_fitted():
    x = np.random.default_rng(0).standard_normal((6, 6, 6))
    result = tg.complete(x, some(x.shape, 0.7), random_state=0)
    assert result.stop is Stop.VALIDATION
    assert result.num_parameters < 60


def test_a_mode_of_size_one():
    x = planted(SMALL).reshape(5, 1, 6, 5)
    mask = some(x.shape, 0.8)
    result = tg.complete(x, mask, random_state=0)
    assert error_at(result, x, ~mask) < 1e-6


def test_single_entry_tensor():
    with pytest.warns(tg.DataWarning, match="only 1 observations"):
        result = tg.complete(np.array([[3.0]]), np.array([[True]]), random_state=0)
    assert rebuilt(result)[0, 0] == pytest.approx(3.0, rel=0.05)


def test_a_huge_tensor_with_few_entries():
    """Dense it would take 800 GB."""
    dims, n = (10_000, 10_000, 1_000), 20_000
    rng = np.random.default_rng(0)
    where = np.stack([d // 100 * rng.integers(0, 100, n) for d in dims], 1)  # in a hundredth of the slices
    factors = [rng.uniform(0.5, 1.5, d) for d in dims]
    values = np.prod([f[where[:, k]] for k, f in enumerate(factors)], axis=0)
    listed = tg.Observations(where, values, dims)
    with pytest.warns(tg.DataWarning, match="9900 of 10000 along mode 0"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*degrees of freedom", tg.DataWarning)
        result = tg.complete(listed, max_steps=0, memory_limit=3e9, **FAST)
    assert result.num_parameters == 21_000
    new = np.stack([d // 100 * rng.integers(0, 100, 200) for d in dims], 1)
    true = np.prod([f[new[:, k]] for k, f in enumerate(factors)], axis=0)
    np.testing.assert_allclose(result.predict(new).numpy(), true, rtol=0.05)
    assert np.isfinite(result.predict([[9_999, 9_999, 999]]).numpy()).all()


@pytest.mark.parametrize(("modes", "n"), [(9, 400), (20, 300)])
def test_a_tensor_of_many_modes(modes, n):
    """Positive, almost constant and of rank one; but a random start has random signs in every mode."""
    rng = np.random.default_rng(0)
    where = rng.integers(0, 2, (n, modes))
    factors = rng.uniform(0.9, 1.1, (modes, 2))
    values = np.prod(factors[np.arange(modes), where], axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tg.DataWarning)  # some are listed twice
        result = tg.complete(tg.Observations(where, values, (2,) * modes), max_steps=0, **FAST)
    new = rng.integers(0, 2, (50, modes))
    true = np.prod(factors[np.arange(modes), new], axis=1)
    np.testing.assert_allclose(result.predict(new).numpy(), true, rtol=0.05)


@pytest.mark.parametrize("shape", [(30, 40), (6, 7, 8)])
def test_inputs_are_never_modified(shape):
    rng = np.random.default_rng(0)
    x, mask, held, weights = (
        rng.standard_normal(shape),
        some(shape, 0.7),
        some(shape, 0.2, 1),
        rng.random(shape) + 0.5,
    )
    truth = x + 0.0
    before = [a.copy() for a in (x, mask, held, weights, truth)]
    for a in (x, mask, held, weights, truth):
        a.setflags(write=False)
    tg.complete(x, mask, validation=held, weights=weights, truth=truth, max_steps=1, **FAST)
    for a, b in zip((x, mask, held, weights, truth), before):
        np.testing.assert_array_equal(a, b)


# -- the choice of an edge ----------------------------------------------------------------------------------


# Edge, added parameters, score, gain; the best score first.
GAINS = [(1, 2, 0.5, 1.0), (2, 10, 0.2, 2.0), (3, 100, 0.1, 10.0), (4, 50, 0.1, 5.0)]


def test_edges_that_gain_most_are_compared_with_the_best_scored():
    made = [Candidate((0, k), None, None, 1.0, a, float(a), score, gain) for k, a, score, gain in GAINS]
    assert [c.edge[1] for c in _most_gaining(made)] == [1, 3, 4, 2]


def test_a_growth_that_costs_next_to_nothing_counts_as_a_share_of_the_network():
    structure = Structure((50, 50, 2, 2), {(0, 1): 4})
    assert structure.growth_cost(2, 3) == 4
    assert cost_of(structure, (2, 3), 0.0) == 4
    assert cost_of(structure, (2, 3), 0.02) == 0.02 * structure.num_parameters > 4
    assert cost_of(structure, (0, 1), 0.02) == structure.growth_cost(0, 1)
    options = GreedyOptions.for_completion("balanced")
    costs = [cost_of(structure, e, options.least_growth) for e in ((0, 1), (2, 3))]
    gains = (0.1, 0.005)  # the cheap edge has more per parameter, and less that counts
    scores = [score_of(options, 1.0, math.exp(-g), 1, c) for g, c in zip(gains, costs)]
    assert scores == pytest.approx([g / c for g, c in zip(gains, costs)])
    assert scores[0] > scores[1]
    assert gains[0] / structure.growth_cost(0, 1) < gains[1] / structure.growth_cost(2, 3)


def test_a_costly_edge_that_gains_most_after_a_refit_is_taken():
    """With every edge refitted beside the best-scored, the choice is about the best there is."""
    x = planted(Structure.tensor_ring((6, 6, 6, 6), 3))
    mask = some(x.shape, 0.7)
    where = torch.from_numpy(np.argwhere(mask))
    held = torch.zeros(len(where), dtype=torch.bool)
    held[::10] = True
    objective = ObservedLeastSquares(where, torch.from_numpy(x[mask]), x.shape, held_out=held, ridge=1e-2)
    options = tg.GreedyOptions.for_completion("balanced")
    problem = Problem(
        objective, options, EdgePolicy.parse("all", 4), torch.Generator().manual_seed(0), doubt=5
    )
    start = tg.TensorNetwork.random(tg.Structure.rank_one(x.shape), random_state=0)
    first = refit(problem, start)
    grown, edge = grow_once(problem, first)
    per_parameter = {}
    for other in problem.policy.growable(first.network.structure):
        policy = EdgePolicy.parse([other], 4)
        alone = Problem(objective, options, policy, torch.Generator().manual_seed(0))
        trial, _ = grow_once(alone, first)
        per_parameter[other] = math.log(first.measure / trial.measure) / (trial.size - first.size)
    best = max(per_parameter.values())
    assert per_parameter[edge] >= 0.8 * best
    assert grown.measure < first.measure


def test_ctrl_c_during_the_last_fit_keeps_what_there_is(monkeypatch):
    from tensorgrow.tasks import task as running

    x = np.einsum("i,j,k->ijk", *(np.linspace(1, 2, n) for n in (5, 6, 7)))
    mask = np.random.default_rng(0).random(x.shape) < 0.7

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "als", interrupted)
    result = tg.complete(x, mask, random_state=0)
    assert result.stop is tg.StopReason.INTERRUPTED
    assert np.abs(result.fill(x, mask) - x).max() < 1e-3
