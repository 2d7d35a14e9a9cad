"""Local feature maps."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tensorgrow.data.features import FeatureMap

DOUBLE = torch.float64


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
