"""Which entries are missing together, and whether others are drawn alike."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow.data.gaps import Gaps
from tensorgrow.data.holdout import Split


def entries(known) -> tg.Observations:
    return tg.Observations(np.argwhere(known), np.ones(int(known.sum())), known.shape)


def draw(known, share: float = 0.1, filled=(), seed: int = 0):
    """The pattern, and what is held out, as a mask."""
    seen = entries(known)
    gaps = Gaps.find(seen, filled)
    held = np.zeros(known.shape, bool)
    held[known] = gaps.draw(seen, round(share * len(seen)), torch.Generator().manual_seed(seed)).numpy()
    return gaps, held


def cut(known, *boxes):
    for box in boxes:
        known[box] = False
    return known


@pytest.mark.parametrize("rate", [0.05, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("shape", [(50,), (9, 12), (30, 40), (5, 6, 7), (16, 16, 3), (2,) * 8, (4, 4, 4, 4)])
def test_random_gaps_are_random(shape, rate):
    for seed in range(15):
        known = np.random.default_rng(seed).random(shape) < rate
        known.flat[0] = True
        gaps = Gaps.find(entries(known), tuple(range(known.ndim)) if seed % 2 else ())
        assert gaps.are_random and str(gaps) == "random", (seed, gaps)


@pytest.mark.parametrize("rate", [0.02, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("size", [12, 40])
def test_pixels_go_with_their_colours(rate, size):
    known = np.repeat(np.random.default_rng(0).random((size, size, 1)) < max(rate, 8 / size**2), 3, 2)
    gaps, held = draw(known)
    assert gaps == Gaps(3, (2,)) and str(gaps) == "whole fibres along mode 2"
    assert gaps.describe(["row", "column", "colour"]) == "whole fibres along colour"
    assert (held == held[:, :, :1]).all() and not (held & ~known).any()
    assert 0.1 * known.sum() <= held.sum() <= 0.1 * known.sum() + 3


def test_single_gaps_beside_whole_days_are_held_out_too():
    rng = np.random.default_rng(0)
    days = np.broadcast_to(rng.random((20, 30, 1)) < 0.6, (20, 30, 12))
    known = days & (rng.random(days.shape) < 0.75)
    gaps, held = draw(known, 0.2)
    assert gaps == Gaps(3, (2,))
    whole = held.any(2) & ~(known & ~held).any(2)  # days of which nothing is left
    single = held & ~whole[:, :, None]
    loose = (days & ~known).sum() / (~known).sum()
    assert single.sum() == pytest.approx(loose * held.sum(), rel=0.3)


def test_slices_count_where_something_fills_them():
    known = np.ones((40, 12, 5), bool)
    known[np.random.default_rng(1).random(40) < 0.3] = False
    gaps, held = draw(known, filled=(0,))
    assert gaps == Gaps(3, (1, 2), filled=(0,)) and str(gaps) == "whole slices of mode 0"
    assert set(held.mean((1, 2))) == {0.0, 1.0}
    assert Gaps.find(entries(known)).are_random  # nothing else is missing


def test_blocks_are_held_out_as_boxes_of_their_size():
    known = cut(np.ones((40, 50, 3), bool), np.s_[3:8, 5:11], np.s_[20:25, 30:36], np.s_[30:35, 2:8])
    gaps, held = draw(known)
    assert gaps == Gaps(3, (2,), (0, 1))
    assert str(gaps) == "blocks along mode 0 and mode 1, whole along mode 2"
    assert 0.1 <= held.sum() / known.sum() < 0.12 and not (held & ~known).any()
    inner = held[1:-1, 1:-1] & held[:-2, 1:-1] & held[2:, 1:-1] & held[1:-1, :-2] & held[1:-1, 2:]
    assert inner.sum() > 0.3 * held.sum()  # they are neighbours in both directions
    large = cut(np.ones((40, 40), bool), np.s_[5:30, 8:35])
    held = draw(large)[1]
    assert held.sum() < 0.25 * large.sum()  # several smaller ones: one of its size would be half of all


def test_rows_and_a_block_are_both_imitated():
    known = cut(np.ones((48, 48, 3), bool), np.s_[10:22, 20:34], *(np.s_[k] for k in (3, 27, 30, 36, 41)))
    gaps, held = draw(known, filled=(0,))
    assert gaps.runs == (0, 1) and gaps.whole == (2,)
    left = (known & ~held).any((1, 2))
    assert (held.any((1, 2)) & ~left).any() and (held.any((1, 2)) & left).any()


def test_outages_run_along_time_only():
    rng, known = np.random.default_rng(0), np.ones((15, 200), bool)
    for sensor in range(15):
        for begin in rng.integers(0, 180, 3):
            known[sensor, begin : begin + 15] = False
    assert Gaps.find(entries(known)) == Gaps(2, (), (1,))


@pytest.mark.parametrize("seed", range(3))
def test_every_fibre_has_gaps_of_its_own_length_held_out(seed):
    rng, known = np.random.default_rng(seed), np.ones((40, 1440), bool)
    busy = known[:10].reshape(10, 60, 24)  # whole days are missing
    busy[rng.random((10, 60)) < 0.4] = False
    known[10:] = rng.random((30, 1440)) < 0.5  # single hours
    gaps, held = draw(known, seed=seed)
    assert gaps == Gaps(2, (), (1,))
    shares = held.sum(1) / known.sum(1)
    assert shares.min() > 0.0 and 0.07 < shares[:10].mean() < 0.15  # a busy place has few groups
    # Most of what is held out of busy places lies inside of runs, of others next to single gaps.
    inside = held[:, 1:-1] & held[:, :-2] & held[:, 2:]
    assert inside[:10].sum() > 0.7 * held[:10].sum() and inside[10:].sum() < 0.3 * held[10:].sum()


def test_tails_are_held_out_at_the_end():
    known = np.ones((20, 60), bool)
    for series, length in enumerate(np.random.default_rng(0).integers(0, 30, 20)):
        known[series, 60 - length :] = False
    gaps, held = draw(known)
    assert gaps.tail == 1 and str(gaps) == "tails along mode 1"
    for mine, there in zip(held, known):
        if mine.any():
            assert mine[: there.sum()].sum() == there.sum() - mine.argmax()  # the last ones that are known
    forecast = cut(np.ones((6, 40, 4), bool), np.s_[:, 34:])  # the future of all series
    gaps, held = draw(forecast, 0.15, filled=(1,))
    assert gaps == Gaps(3, (0, 2), (1,), 1, (1,))
    assert str(gaps) == "tails along mode 1, whole along mode 0 and mode 2"
    assert held[:, 29:34].all() and not held[:, :28].any()


def test_unequal_rates_are_no_pattern():
    rng = np.random.default_rng(0)
    users, items = np.sort(rng.beta(0.5, 2, (150, 1)), 0), np.sort(rng.beta(0.5, 2, (1, 200)), 1)
    assert Gaps.find(entries(rng.random((150, 200)) < np.clip(4 * users * items, 0, 1))).are_random
    assert Gaps.find(entries(rng.random((30, 25, 24)) < rng.beta(0.5, 0.5, (30, 1, 1)))).are_random


def test_long_lists_are_random_and_are_not_spread_out():
    where = np.stack([np.arange(1000) % 7, np.arange(1000), np.arange(1000)], 1)
    seen = tg.Observations(where, np.ones(1000), (10**6, 10**6, 10**6))
    assert Gaps.find(seen).are_random


def test_auto_is_a_tenth_and_keeps_slices():
    known = np.repeat(np.random.default_rng(0).random((12, 14, 1)) < 0.4, 4, 2)
    seen, source = entries(known), torch.Generator().manual_seed(0)
    split = Split.of_entries("auto")
    gaps = split.gaps(seen)
    assert split.holds_out and gaps == Gaps(3, (2,))
    held = split.entries(seen, None, source, gaps)
    for k in range(3):
        assert set(seen.indices[~held, k].tolist()) == set(seen.indices[:, k].tolist())
    assert Split.of_entries(0.1).gaps(seen) is None
    random = entries(np.random.default_rng(0).random((12, 14, 4)) < 0.4)
    drawn = [
        s.entries(random, None, torch.Generator().manual_seed(3), s.gaps(random))
        for s in (split, Split.of_entries(0.1))
    ]
    assert torch.equal(*drawn)  # random gaps: the same as a share
    with pytest.raises(tg.OptionError, match="must be a share"):
        Split.parse("auto").samples(30, source)
