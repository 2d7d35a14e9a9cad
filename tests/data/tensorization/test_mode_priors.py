from __future__ import annotations

import numpy as np
import pytest

import tensorgrow as tg
from tensorgrow import priors
from tensorgrow.data.tensorization.mode_priors import along_digits
from tensorgrow.priors import by_axis


def modes(shape, digits, order, known):
    how = tg.tensorize(np.zeros(shape), digits, order=order)[1]
    return how, along_digits(by_axis(known, shape), how)


def test_coarse_digits_are_less_smooth():
    how, found = modes((24, 24, 3), ((6, 4), (6, 4), (3,)), "interleaved", {0: priors.smooth(0.5)})
    assert how.modes[:4] == (((0, 0),), ((1, 0),), ((0, 1),), ((1, 1),))
    assert set(found) == {0, 2}
    (coarse,), (fine,) = found[0], found[2]
    assert coarse.strength == fine.strength == 0.5
    plain = priors.smooth()
    np.testing.assert_allclose(fine.matrix(4).to_dense(), plain.matrix(4).to_dense())
    np.testing.assert_allclose(coarse.matrix(6).to_dense(), plain.matrix(6).to_dense() / 16)


def test_a_whole_axis_keeps_its_prior():
    graph = priors.graph(np.ones((3, 3)))
    _, found = modes((16, 3), ((4, 4), (3,)), "C", {1: [graph, priors.nonnegative()]})
    assert found == {2: (graph, priors.nonnegative())}


def test_digits_that_share_a_mode():
    known = {0: priors.smooth(), 1: priors.smooth(0.2)}
    how, found = modes((16, 25), ((4, 4), (5, 5)), "grouped", known)
    assert how.dims == (20, 20)
    one, two = priors.smooth().matrix(4).to_dense(), priors.smooth().matrix(5).to_dense()
    rows, columns = found[1]
    assert (rows.strength, columns.strength) == (None, 0.2)
    np.testing.assert_allclose(rows.matrix(20).to_dense(), np.kron(one, np.eye(5)))
    np.testing.assert_allclose(columns.matrix(20).to_dense(), np.kron(np.eye(4), two))
    assert rows.describe() != columns.describe()


def test_axes_that_were_moved():
    how = tg.Tensorization((6, 4), ((6,), (4,)), (((0, 0),), ((1, 0),)), "C", shift=(2, 0))
    known = priors.smooth()
    found = along_digits({0: (known,), 1: (known,)}, how)
    assert found[1] == (known,)
    places = how.positions(np.stack([np.arange(6), np.zeros(6, int)], 1))[:, 0]
    moved = found[0][0].matrix(6).to_dense()
    np.testing.assert_allclose(moved[np.ix_(places, places)], known.matrix(6).to_dense())


def test_periods_are_steps_of_a_digit():
    _, found = modes((28, 5), ((4, 7), (5,)), "C", {0: priors.periodic(7)})
    assert found == {0: (priors.smooth(),)}


def test_what_is_not_negative_has_no_negative_digits():
    _, found = modes((16, 3), ((4, 4), (3,)), "C", {0: priors.nonnegative()})
    assert found == {k: (priors.nonnegative(),) for k in range(2)}


@pytest.mark.parametrize(
    "known",
    [priors.graph(np.ones((16, 16))), priors.autoregressive(1), priors.periodic(), priors.periodic(3)],
)
def test_other_priors_need_whole_axes(known):
    with pytest.raises(tg.OptionError, match="digit"):
        modes((16, 3), ((4, 4), (3,)), "C", {0: known})


def test_flattened_arrays_have_no_axes():
    how = tg.tensorize(np.zeros((4, 6)), (2, 3, 4), order="C")[1]
    if how.flattened is None:
        pytest.skip("the axes fit")
    assert along_digits({}, how) == {}
    with pytest.raises(tg.OptionError, match="flattened"):
        along_digits({0: (priors.smooth(),)}, how)
