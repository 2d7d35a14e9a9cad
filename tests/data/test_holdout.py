"""What is held out: shares, masks, how many at least, and what every slice and class keeps."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow.data.holdout import Split, draw_by_position, positions_in, warn_of_few, warn_of_gaps


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def entries(shape=(5, 6, 7), share: float = 0.6) -> tg.Observations:
    where = np.argwhere(np.random.default_rng(0).random(shape) < share)
    return tg.Observations(where, np.random.default_rng(1).standard_normal(len(where)), shape)


@pytest.mark.parametrize("nothing", [None, False, 0, 0.0])
def test_nothing_is_held_out(nothing):
    split = Split.parse(nothing)
    assert not split.holds_out
    before = generator().get_state()
    source = generator()
    assert split.samples(100, source) is None and split.enough_samples(3, source) is None
    assert split.entries(entries(), None, source) is None
    assert split.classes(torch.arange(50) % 2, source) is None
    assert torch.equal(source.get_state(), before)  # nothing was drawn


@pytest.mark.parametrize("wrong", [-0.1, 1.0, 7, np.float64(2.0)])
def test_shares_lie_from_0_to_1(wrong):
    with pytest.raises(tg.OptionError, match="must be a share from 0 to below 1"):
        Split.parse(wrong)


@pytest.mark.parametrize(
    ("count", "share", "number"), [(1000, 0.1, 100), (100, 0.1, 20), (50, 0.1, 10), (12, 0.9, 11)]
)
def test_how_many_samples(count, share, number):
    split = Split.parse(share)
    held = split.samples(count, generator())
    assert held.dtype == torch.bool and int(held.sum()) == number
    assert torch.equal(held, split.samples(count, generator()))
    assert not torch.equal(held, split.samples(count, generator(1)))


def test_too_few_samples():
    with pytest.warns(tg.DataWarning, match="only 9 samples: none is held out"):
        assert Split.parse(0.5).samples(9, generator()) is None
    with pytest.raises(tg.DataError, match="19 samples are too few"):
        Split.parse(0.5).enough_samples(19, generator())
    assert int(Split.parse(0.01).enough_samples(20, generator()).sum()) == 10


def test_masks_of_samples():
    mask = [True, False, False, True]
    for form in (mask, np.array(mask), torch.tensor(mask)):
        split = Split.parse(form)
        assert split.holds_out
        assert split.samples(4, generator()).tolist() == mask == split.enough_samples(4, generator()).tolist()
        assert split.classes(torch.zeros(4), generator()).tolist() == mask
    nobody = Split.parse(np.zeros(4, bool))
    assert nobody.samples(4, generator()) is None
    with pytest.raises(tg.OptionError, match="hold out some samples"):
        nobody.enough_samples(4, generator())
    for wrong, word in (
        (np.ones(4, bool), "every sample"),
        (mask[:3], r"of shape \(4,\)"),
        ([1, 0, 0, 1], "int64"),
        ("some", "must be a share, a mask, or False"),
        (True, r"of shape \(\)"),
    ):
        with pytest.raises(tg.OptionError, match=word):
            Split.parse(wrong).samples(4, generator())


def test_every_class_gives_its_share_and_keeps_one():
    labels = torch.tensor([0] * 100 + [1] * 40 + [2] * 3 + [3])
    held = Split.parse(0.2).classes(labels, generator())
    assert [int(held[labels == k].sum()) for k in range(4)] == [20, 8, 1, 0]
    with pytest.warns(tg.DataWarning, match="does not grow unless a limit says"):
        assert Split.parse(0.2).classes(labels[-4:], generator()) is None


def test_every_slice_keeps_an_entry():
    seen = entries((9, 8), 0.25)
    held = Split.parse(0.7).entries(seen, None, generator())
    fitted = seen.indices[~held]
    for mode in range(2):
        assert set(fitted[:, mode].tolist()) == set(seen.indices[:, mode].tolist())
    diagonal = tg.Observations(np.stack([np.arange(12)] * 2, 1), np.ones(12), (12, 12))
    with pytest.warns(tg.DataWarning, match="every slice needs its only observation"):
        assert Split.parse(0.5).entries(diagonal, None, generator()) is None
    with pytest.warns(tg.DataWarning, match="only 5 observations"):
        assert (
            Split.parse(0.5).entries(tg.Observations(np.eye(5, dtype=int), np.ones(5)), None, generator())
            is None
        )


def test_masks_of_entries():
    seen = entries()
    dense = np.random.default_rng(2).random(seen.shape) < 0.3
    expected = torch.from_numpy(dense[tuple(seen.indices.T.numpy())])
    assert torch.equal(Split.parse(dense).entries(seen, None, generator()), expected)
    order = torch.randperm(len(seen), generator=generator())
    listed = tg.Observations(seen.indices[order], seen.values[order], seen.shape)
    assert torch.equal(Split.parse(expected[order]).entries(seen, listed, generator()), expected)
    for wrong, word in (
        (dense[1:], "has shape"),
        (dense * 2.0, "boolean mask"),
        (np.ones(seen.shape, bool), "some must be held out and some be left to fit"),
        (np.zeros(seen.shape, bool), f"holds out 0 of {len(seen)}"),
    ):
        with pytest.raises(tg.OptionError, match=word):
            Split.parse(wrong).entries(seen, None, generator())


def test_positions_are_drawn_by_themselves():
    where = np.argwhere(np.ones((30, 20, 10)))
    mask = draw_by_position(where, 0.2, 3)
    assert mask.mean() == pytest.approx(0.2, abs=0.02)
    order = np.random.default_rng(0).permutation(len(where))
    assert np.array_equal(draw_by_position(where[order], 0.2, 3), mask[order])
    assert not np.array_equal(draw_by_position(where, 0.2, 4), mask)
    assert draw_by_position(where, 1.0, 0).all() and not draw_by_position(where, 0.0, 0).any()
    split = Split.parse(0.1)
    assert (split.share_of(9), split.share_of(50), split.share_of(10**4)) == (0.0, 0.2, 0.1)


def test_positions_that_two_lists_share():
    a, b = (tg.Observations(w, np.ones(len(w)), (4, 4)) for w in ([[0, 1], [2, 3], [3, 3]], [[3, 3], [0, 0]]))
    assert positions_in(a, b).tolist() == [False, False, True]


def test_what_observations_cannot_determine():
    full = entries()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_gaps(full)
        warn_of_few(100, (5, 6))
    with pytest.warns(tg.DataWarning, match=r"\(2 of 7 along mode 0\) are predicted as the mean"):
        warn_of_gaps(tg.Observations(full.indices, full.values, (7, 6, 7)))
    values = full.values.clone()
    values[0] = 1e4
    with pytest.warns(tg.DataWarning, match="largest 1 % of the values"):
        warn_of_gaps(tg.Observations(full.indices, values, full.shape))
    with pytest.warns(tg.DataWarning, match="3 observations .* 10 degrees of freedom"):
        warn_of_few(3, (5, 6))
