"""TNClassifier, its feature maps and the batched products behind it."""

from __future__ import annotations

import pickle
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow.algebra import moves
from tensorgrow.contraction import product_plan
from tensorgrow.data.features import FeatureMap
from tensorgrow.objectives import Classification, Screening
from tensorgrow.tasks.classify import auto_edges
from tensorgrow.tasks.linear_classifier import (
    choose_ridge,
    fit_logistic,
    linear_network,
    spanning_tree,
    tree_ranks,
)

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

DOUBLE = torch.float64
# Chain, loops, a star around the classes, internal nodes, pieces that are not joined to the classes.
STRUCTURES = [
    {},
    {(0, 1): 2, (1, 4): 3, (2, 4): 2, (2, 3): 2},
    {(0, 1): 2, (1, 2): 3, (0, 2): 2, (2, 3): 2, (0, 3): 2},
    {(0, 1): 2, (1, 4): 2, (0, 4): 3, (2, 5): 2, (3, 5): 2, (4, 5): 2},
    {(0, 5): 2, (1, 5): 2, (3, 5): 2},
    {(0, 4): 2, (1, 4): 2, (2, 4): 2, (3, 4): 2},
]


def xor(count: int = 300, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(seed).uniform(-1, 1, (count, 2))
    return x, np.where(x[:, 0] * x[:, 1] > 0, "same", "opposite")


def quick(**changes) -> tg.TNClassifier:
    return tg.TNClassifier(**{"random_state": 0, "effort": "fast", **changes})


# -- contraction ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("ranks", STRUCTURES)
def test_products_agree_with_the_dense_weights(ranks, count):
    structure = tg.Structure((3, 3, 3, 3, 4), ranks)
    network = tg.TensorNetwork.random(structure, random_state=0)
    features = torch.randn(count, 4, 3, dtype=DOUBLE, generator=torch.Generator().manual_seed(1))
    found = product_plan(structure).run(network.cores, features)
    exact = torch.einsum("abcdk,na,nb,nc,nd->nk", network.to_dense(), *features.unbind(1))
    assert torch.allclose(found, exact, rtol=1e-12, atol=1e-12)


def test_products_can_be_differentiated():
    structure = tg.Structure((2, 2, 3), {(0, 1): 2, (1, 2): 2, (0, 2): 2})
    cores = [c.requires_grad_() for c in tg.TensorNetwork.random(structure, random_state=0).cores]
    features = torch.randn(3, 2, 2, dtype=DOUBLE, generator=torch.Generator().manual_seed(0))
    assert torch.autograd.gradcheck(lambda *c: product_plan(structure).run(c, features), cores)


def test_a_long_chain_costs_little():
    ranks = dict.fromkeys(auto_edges(201), 8)
    structure = tg.Structure((2,) * 200 + (10,), ranks)
    assert product_plan(structure).cost < 2 * 200 * 2 * 64


def test_several_edges_grow_like_one_after_the_other():
    structure = tg.Structure((2, 3, 2, 3), {(0, 1): 2, (1, 2): 2})
    network = tg.TensorNetwork.random(structure, random_state=0)
    generator = torch.Generator().manual_seed(0)

    def pair(i, j):
        sizes = [structure.leg_dim(a) * structure.bond_product(a, without=b) for a, b in ((i, j), (j, i))]
        return tuple(torch.randn(s, generator=generator, dtype=DOUBLE) for s in sizes)

    for edges in ([(0, 1)], [(0, 3)], [(0, 1), (2, 3)]):  # edges without a common node do not meet
        slices = {e: pair(*e) for e in edges}
        one = network
        for e in edges:
            one = one.grow_edge(*e, slices=slices[e])
        together = tg.TensorNetwork(*moves.grow_many(structure, network.cores, slices))
        assert together.structure == one.structure
        assert torch.allclose(together.to_dense(), one.to_dense())
    # At a common node the products of two new slices are left out.
    slices = {(0, 1): pair(0, 1), (1, 2): pair(1, 2), (1, 3): pair(1, 3)}
    together = tg.TensorNetwork(*moves.grow_many(structure, network.cores, slices)).to_dense()
    alone = sum(network.grow_edge(*e, slices=s).to_dense() - network.to_dense() for e, s in slices.items())
    assert torch.allclose(together, network.to_dense() + alone)
    linked = tg.TensorNetwork(*moves.grow_many(structure, network.cores, slices, passing=[0, 1]))
    assert int((linked.cores[1] == 1.0).sum()) == 1  # three grown edges meet here
    assert torch.equal(linked.cores[0], moves.grow_many(structure, network.cores, slices)[1][0])


# -- features ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "size"), [("cosine", 2), ("cosine", 4), ("linear", 2), ("polynomial", 4)])
def test_first_component_is_nearly_constant(kind, size):
    x = np.random.default_rng(0).uniform(-3, 5, (200, 6))
    x[:, 2] = 7.0
    fitted = FeatureMap.fit(x, kind, size)
    found = fitted(x)
    assert tuple(found.shape) == (200, 6, size)
    assert float((found[:, :, 0] - 1).abs().max()) < 0.3
    overlap = torch.einsum("nda,ndb->dab", found, found)[:, 0, 1:] / 200
    assert float(overlap.abs().max()) < 1e-9
    assert float(found[:, 2, 1:].abs().max()) < 1e-6  # a constant feature says nothing
    assert torch.isfinite(fitted(1e6 * x)).all()  # clipped to the training range
    assert fitted(x, torch.float32).dtype == torch.float32


def test_polynomials_are_orthonormal_up_to_their_sizes():
    x = np.random.default_rng(0).normal(size=(300, 8))
    x[:, 3] = x[:, 3] > 0  # two values: nothing beyond degree one
    fitted = FeatureMap.fit(x)
    assert fitted.size == 3 and FeatureMap.fit(x[:, :4]).size == 4
    assert FeatureMap.fit(np.tile(x, 2)).size == FeatureMap.fit(x, "linear").size == 2
    found = fitted(x)
    gram = torch.einsum("nda,ndb->dab", found, found) / 300
    reach = 2 / 8**0.5
    exact = torch.diag(torch.tensor([1.0, reach**2, reach**2 / 4], dtype=DOUBLE)).repeat(8, 1, 1)
    exact[3, 2, 2] = 0.0
    assert torch.allclose(gram, exact, atol=1e-9)
    x[0, 0] = 1e6
    assert float(FeatureMap.fit(x)(x)[:, 0].abs().max()) < 20  # an outlier is clipped


def test_cosine_map_before_it_is_turned():
    x = np.array([[0.0], [1.0], [4.0]])
    fitted = FeatureMap.fit(x, "cosine", 2)
    angle = np.pi / 2 * x / 4
    raw = np.stack([np.cos(angle), np.sin(angle)], -1)
    assert np.allclose(fitted(x).numpy(), np.einsum("nda,dab->ndb", raw, fitted.turn.numpy()))


# -- where growth starts -------------------------------------------------------------------------------

CHAIN = [(0, 1), (1, 2), (2, 6), (3, 6), (3, 4), (4, 5)]


@pytest.mark.parametrize("extra", [0, 2])
@pytest.mark.parametrize(
    ("size", "classes", "edges"),
    [
        (2, 2, CHAIN),
        (3, 4, CHAIN),
        (2, 10, CHAIN),
        (2, 3, [(k, 6) for k in range(6)]),
        (2, 4, [(0, 1), (1, 2), (1, 3), (3, 6), (4, 6), (4, 5)]),
        (2, 3, [(0, 6), (1, 6), (1, 2)]),
    ],
)
def test_a_tree_holds_a_linear_classifier(size, classes, edges, extra):
    generator = torch.Generator().manual_seed(0)
    dims = (size,) * 6 + (classes,)
    tree = spanning_tree(dict.fromkeys(edges, 1), 6)
    ranks = tree_ranks(dims, tree, classes - 1)
    assert max(ranks.values()) <= classes
    structure = tg.Structure(dims, {e: r + extra for e, r in ranks.items()})
    weights = torch.randn(classes, 1 + 6 * (size - 1), generator=generator, dtype=DOUBLE)
    network = linear_network(structure, weights, noise=0.0, generator=generator)
    features = torch.randn(20, 6, size, generator=generator, dtype=DOUBLE)
    features[:, :, 0] = 1.0
    joined = {node for node, _ in tree}
    for node in set(range(6)) - joined:
        features[:, node, 1:] = 0.0  # not heard at the classes
    found = product_plan(structure).run(network.cores, features).log_softmax(1)
    exact = features[:, :, 1:].flatten(1) @ weights[:, 1:].T + weights[:, 0]
    assert torch.allclose(found, exact.log_softmax(1), atol=1e-10)


def test_too_small_ranks_hold_the_leading_directions():
    generator = torch.Generator().manual_seed(0)
    structure = tg.Structure((2,) * 6 + (5,), dict.fromkeys(CHAIN, 2))
    weights = torch.randn(5, 2, generator=generator, dtype=DOUBLE) @ torch.ones(2, 7, dtype=DOUBLE)
    network = linear_network(structure, weights, noise=0.0, generator=generator)
    features = torch.randn(20, 6, 2, generator=generator, dtype=DOUBLE)
    features[:, :, 0] = 1.0
    found = product_plan(structure).run(network.cores, features).log_softmax(1)
    exact = features[:, :, 1] @ weights[:, 1:].T + weights[:, 0]  # one direction
    assert torch.allclose(found, exact.log_softmax(1), atol=1e-10)


def test_logistic_regression_agrees_with_scikit_learn():
    x, y = load_iris(return_X_y=True)
    x = StandardScaler().fit_transform(x)
    samples, labels = torch.from_numpy(x), torch.from_numpy(y)
    found = fit_logistic(samples, labels, 3, 0.01)
    # A constant feature, since scikit-learn puts no ridge on its own constants.
    theirs = LogisticRegression(C=1 / (2 * 0.01 * 150), fit_intercept=False, tol=1e-10, max_iter=5000)
    theirs.fit(np.column_stack([np.ones(150), x]), y)
    assert np.allclose(found.numpy(), theirs.coef_, atol=1e-3)
    generator = torch.Generator().manual_seed(0)
    assert choose_ridge(samples, labels, 3, generator) < 1.0  # iris can be told apart
    noise = torch.randint(0, 2, (150,), generator=generator)
    assert choose_ridge(samples, noise, 2, generator) >= 1.0


# -- objective -----------------------------------------------------------------------------------------


def small_objective() -> tuple[Classification, tg.TensorNetwork]:
    generator = torch.Generator().manual_seed(0)
    x, y = xor(200)
    features = FeatureMap.fit(x, "linear")(x)
    labels = torch.from_numpy((y == "same").astype(np.int64))
    held = torch.zeros(200, dtype=torch.bool)
    held[:50] = True
    objective = Classification(features, labels, 2, held_out=held, generator=generator)
    alone = tg.Structure.rank_one(objective.dims)
    start = linear_network(alone, torch.zeros(2, 3, dtype=DOUBLE), noise=0.03, generator=generator)
    return objective, start


def test_objective():
    objective, start = small_objective()
    assert isinstance(objective, Screening)
    assert objective.dims == (2, 2, 2) and objective.holds_out and objective.num_batches == 3
    batches = list(objective.batches())
    assert sorted(torch.cat(batches).tolist()) == list(range(150))
    values = product_plan(start.structure).run(start.cores, objective.features)
    exact = torch.nn.functional.cross_entropy(values, objective.labels)
    assert objective.total(start) == pytest.approx(float(exact))
    assert objective.total(start) == pytest.approx(np.log(2), abs=0.05)  # neutral
    held = objective.held_out_losses(start)
    assert held.shape == (50,) and objective.validate(start) == pytest.approx(float(held.mean()))


def test_the_ridge_is_on_the_whole_tensor():
    objective, start = small_objective()
    ridged = Classification(
        objective.features, objective.labels, 2, generator=torch.Generator().manual_seed(0), ridge=0.1
    )
    every = torch.arange(150)
    added = ridged.loss(start, every) - objective.loss(start, every)
    assert float(added) == pytest.approx(0.1 * float((start.to_dense() ** 2).sum()))
    assert ridged.total(start) == objective.total(start)


def test_screening_finds_the_leading_singular_pair_of_the_pair_gradient():
    objective, start = small_objective()
    edges = [(0, 1), (0, 2), (1, 2)]
    batch = torch.arange(150)
    generator = torch.Generator().manual_seed(0)
    found = objective._leading(start, edges, batch, generator)
    for edge in edges:
        shape = [start.structure.leg_dim(k) for k in edge]
        # f + <M, a b^T>: the matrix of derivatives, by autograd on the dense weights.
        rest = next(k for k in range(3) if k not in edge)
        new = torch.zeros(shape, dtype=DOUBLE, requires_grad=True)
        letters = "abc"
        added = torch.einsum(
            f"{''.join(letters[k] for k in edge)},{letters[rest]}->abc", new, start.cores[rest]
        )
        values = torch.einsum(
            "abc,na,nb->nc", start.to_dense() + added, objective.features[:, 0], objective.features[:, 1]
        )
        torch.nn.functional.cross_entropy(values, objective.labels).backward()
        value, (left, right) = found[edge]
        assert value == pytest.approx(float(torch.linalg.matrix_norm(new.grad, 2)), rel=0.05)
        assert float(left @ new.grad @ right) == pytest.approx(-value, rel=0.05)
    chosen, grown = objective.screen(start, edges, None, generator)
    assert grown.structure.ranks == {chosen[0]: 2} and len(chosen) == 1
    assert objective.total(grown) < objective.total(start)
    assert objective.screen(start, edges, 6, generator) == ([], start)  # no room


# -- estimator -----------------------------------------------------------------------------------------


def test_products_of_features_are_learned():
    x, y = xor()
    model = quick()
    assert model.fit(x, y) is model
    fresh, labels = xor(500, 1)
    assert LogisticRegression().fit(x, y).score(fresh, labels) < 0.7
    assert model.score(fresh, labels) > 0.93
    assert list(model.classes_) == ["opposite", "same"]
    assert model.n_features_in_ == 2
    assert model.structure_ == model.network_.structure == model.result_.structure
    assert model.structure_.dims == (4, 4, 2)
    assert model.history_ == model.result_.history and len(model.history_) > 1
    assert model.result_.validation_error == min(s.validation_error for s in model.history_)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict_proba(x), model.predict_proba(x))


def test_predictions_are_the_network_applied_to_the_features():
    x, y = load_iris(return_X_y=True)
    model = quick(max_steps=1, dtype="float64").fit(x, y)
    dense, features = model.network_.to_dense(), model.features_(x)
    exact = torch.einsum("abcdk,na,nb,nc,nd->nk", dense, *features.unbind(1)).numpy()
    assert np.allclose(model.decision_function(x), exact)
    chances = model.predict_proba(x)
    assert np.allclose(chances.sum(1), 1, atol=1e-12)
    assert np.allclose(np.log(chances), model.predict_log_proba(x))
    assert np.array_equal(model.predict(x), model.classes_[exact.argmax(1)])
    with np.errstate(over="ignore"):
        two = quick(max_steps=0, dtype="float64").fit(x[:100], y[:100])
    odds = two.predict_log_proba(x[:100])
    assert np.allclose(two.decision_function(x[:100]), odds[:, 1] - odds[:, 0])


def test_names_of_the_classes_do_not_matter():
    x, y = load_iris(return_X_y=True)
    first = quick(max_steps=1).fit(x, y)
    named = quick(max_steps=1).fit(x, np.array(["a", "b", "c"])[y])
    assert np.array_equal(named.predict(x), np.array(["a", "b", "c"])[first.predict(x)])
    turned = quick(max_steps=1).fit(x, 2 - y)
    assert (turned.predict(x) == 2 - first.predict(x)).mean() > 0.85  # other noise, other split


@pytest.mark.parametrize("load", [load_iris, load_wine])
def test_tables(load):
    x, y = load(return_X_y=True)
    a, b, c, d = train_test_split(x, y, test_size=0.4, random_state=0, stratify=y)
    linear = make_pipeline(StandardScaler(), LogisticRegression()).fit(a, c).score(b, d)
    assert quick(max_steps=1).fit(a, c).score(b, d) >= linear - 0.035


def test_where_products_say_nothing_the_linear_classifier_is_kept():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(200, 4))
    y = generator.uniform(size=200) < 1 / (1 + np.exp(-2 * x.sum(1)))
    model = quick(feature_map="linear").fit(x, y)
    step = model.history_[-1]
    assert step.kind == "refit" and step.structure == model.history_[0].structure
    inside = x[(np.abs(x) < 1).all(1)]  # nothing is clipped there
    middle = model.decision_function((inside[1:] + inside[:-1]) / 2)
    ends = model.decision_function(inside)
    assert np.allclose(middle, (ends[1:] + ends[:-1]) / 2, atol=1e-4)


def test_digits():
    x, y = load_digits(return_X_y=True)
    a, b, c, d = train_test_split(x, y, train_size=1000, random_state=0, stratify=y)
    linear = make_pipeline(StandardScaler(), LogisticRegression()).fit(a, c).score(b, d)
    model = quick(max_parameters=15_000, max_steps=0).fit(a, c)
    assert model.score(b, d) > linear + 0.005
    assert model.result_.num_parameters <= 15_000
    assert set(model.structure_.edges) <= set(auto_edges(65))


def test_a_fixed_structure_and_other_maps():
    x, y = xor()
    structure = tg.Structure((3, 3, 2), {(0, 1): 2, (1, 2): 2, (0, 2): 2})
    model = quick(structure=structure, map_size=3).fit(x, y)
    assert model.structure_ == structure
    assert model.score(x, y) > 0.9
    assert quick(feature_map="linear").fit(x, y).score(x, y) > 0.9
    own = quick(feature_map=lambda z: np.stack([np.ones_like(z), z, z**2], -1), map_size=3).fit(x, y)
    assert own.score(x, y) > 0.9


def test_parameters_and_clone():
    model = tg.TNClassifier(max_parameters=50, edges="chain", random_state=3, map_size=3)
    assert model.get_params()["edges"] == "chain"
    twin = clone(model)
    assert twin is not model and twin.get_params() == model.get_params()
    assert twin.set_params(max_steps=1).max_steps == 1
    x, y = xor(100)
    assert set(twin.fit(x, y).structure_.edges) <= {(0, 1), (1, 2)}
    assert twin.result_.num_parameters <= 50
    assert "max_parameters=50" in repr(model)


def test_grid_search_and_pipelines():
    x, y = load_iris(return_X_y=True)
    search = GridSearchCV(quick(), {"max_steps": [0, 1]}, cv=2).fit(x, y)
    assert search.best_score_ > 0.8
    model = make_pipeline(StandardScaler(), PCA(3), quick(max_steps=2)).fit(x, y)
    assert model.score(x, y) > 0.85
    assert model[-1].structure_.dims == (4, 4, 4, 3)


def test_random_state():
    x, y = xor(100)
    first = quick(random_state=5, max_steps=1).fit(x, y).predict_proba(x)
    assert np.array_equal(first, quick(random_state=5, max_steps=1).fit(x, y).predict_proba(x))
    states = [np.random.RandomState(5), np.random.default_rng(5), torch.Generator().manual_seed(5), None]
    for state in states:
        assert np.isfinite(quick(random_state=state, max_steps=0).fit(x, y).predict_proba(x)).all()


def test_validation_may_be_a_mask_or_nothing():
    x, y = xor(100)
    mask = np.arange(100) < 30
    assert quick(validation=mask, max_steps=1).fit(x, y).result_.validation_error is not None
    alone = quick(validation=False).fit(x, y)
    assert alone.result_.validation_error is None and len(alone.history_) == 1
    assert len(quick(validation=False, max_steps=1).fit(x, y).history_) == 2
    with pytest.warns(tg.DataWarning, match="only 8 samples"):
        quick().fit(x[:8], np.arange(8) % 2)


def test_limits_and_callbacks():
    x, y = xor(100)
    assert quick(max_error=10.0).fit(x, y).result_.stop is tg.StopReason.TARGET_REACHED
    assert quick(callbacks=lambda s: True).fit(x, y).result_.stop is tg.StopReason.CALLBACK
    with pytest.raises(tg.OptionError, match="max_parameters"):
        quick(max_parameters=5).fit(x, y)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"map_size": 1}, "map_size"),
        ({"map_size": 2.5}, "map_size"),
        ({"feature_map": "sine"}, "feature_map"),
        ({"feature_map": "linear", "map_size": 3}, "map_size"),
        ({"feature_map": lambda z: z}, "feature_map returned shape"),
        ({"feature_map": lambda z: np.full((*z.shape, 2), np.inf)}, "not finite"),
        ({"structure": tg.Structure((2, 2), {})}, "structure"),
        ({"validation": 1.5}, "validation"),
        ({"validation": np.ones(60, bool)}, "every sample"),
        ({"validation": np.ones(3, bool)}, "mask of shape"),
        ({"edges": "star"}, "edges"),
        ({"edges": 3}, "edges"),
        ({"dtype": "complex64"}, "complex"),
        ({"random_state": "a"}, "random_state"),
        ({"training": {"epochs": 3}}, "TrainingOptions"),
    ],
)
def test_bad_options_are_refused(changes, message):
    x, y = xor(60)
    with pytest.raises(tg.TensorgrowError, match=message):
        quick(**changes).fit(x, y)


def test_bad_data_is_refused():
    x, y = xor(60)
    with pytest.raises(NotFittedError):
        tg.TNClassifier().predict(x)
    with pytest.raises(tg.DataError, match="one class"):
        quick().fit(x, np.zeros(60))
    with pytest.raises(ValueError, match="NaN"):
        quick().fit(np.where(x > 0.5, np.nan, x), y)
    with pytest.raises(ValueError, match="continuous"):
        quick().fit(x, x[:, 0])
    model = quick(max_steps=0).fit(x, y)
    with pytest.raises(ValueError, match="features"):
        model.predict(np.ones((3, 3)))


def test_scikit_learn_agrees():
    # No check is expected to fail; some are skipped where pandas or array-API support is not installed.
    training = tg.TrainingOptions(learning_rate=0.03, epochs=10, patience=3, patient_steps=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about data that is meant to be bad
        found = check_estimator(quick(max_steps=1, training=training), on_fail=None)
    assert len(found) > 40
    assert [r["check_name"] for r in found if r["status"] not in ("passed", "skipped")] == []


def test_the_example_of_the_page_runs_and_says_the_truth():
    page = Path(__file__).parents[2] / "docs" / "classification.md"
    block = re.search(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    names: dict[str, object] = {}
    exec(block.group(1), names)
    assert names["accuracy"] > 0.9


@pytest.mark.parametrize("kind", ["polynomial", "cosine", "linear"])
def test_feature_maps_of_fewer_samples_than_powers_and_of_any_units(kind):
    x = np.random.default_rng(0).standard_normal((30, 3))
    for count in (1, 2, 3):
        made = FeatureMap.fit(x[:count], kind)(x)
        assert bool(torch.isfinite(made).all())
        assert made.shape[:2] == (30, 3)
    want = FeatureMap.fit(x, kind)(x)
    for power in (600, -600):  # squares of these overflow, or vanish
        unit = 2.0**power
        assert torch.equal(FeatureMap.fit(x * unit, kind)(x * unit), want)


def test_two_samples_are_enough_to_fit():
    x = np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 3.0]])
    with pytest.warns(tg.DataWarning, match="only 2 samples"):
        model = tg.TNClassifier(random_state=0).fit(x, ["a", "b"])
    np.testing.assert_allclose(model.predict_proba(x).sum(1), 1.0)
    with pytest.raises(tg.OptionError, match="validation='half'"):
        tg.TNClassifier(validation="half").fit(np.tile(x, (10, 1)), ["a", "b"] * 10)
