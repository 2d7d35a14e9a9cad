from __future__ import annotations

import numpy as np
import pytest

import tensorgrow as tg
from tests.plotting.conftest import RIVALS, gids


def test_result_plot(grown):
    left, right = grown.plot(rivals=RIVALS)
    assert gids(left.lines, "edge") == {f"{i}-{j}" for i, j in grown.structure.edges}
    assert right.get_ylabel() == "relative error"
    assert left.figure is right.figure


def test_image_panels(grown, picture):
    x = picture.reshape((4,) * 4)
    observed = np.ma.masked_array(x, mask=x > 0.6)
    axes = tg.plotting.plot_images(grown, (16, 16), truth=x, observed=observed)
    assert [a.get_title() for a in axes] == ["original", "observed", "reconstruction", "difference"]
    dense = grown.network.to_dense().numpy().reshape(16, 16)
    np.testing.assert_allclose(axes[0].images[0].get_array(), picture)
    np.testing.assert_allclose(axes[1].images[0].get_array(), np.where(picture > 0.6, 0, picture))
    np.testing.assert_allclose(axes[2].images[0].get_array(), np.clip(dense, 0, 1))
    np.testing.assert_allclose(axes[3].images[0].get_array(), np.abs(np.clip(dense, 0, 1) - picture))
    only = tg.plotting.plot_images(grown.network, lambda d: d.reshape(16, 16).T)
    np.testing.assert_allclose(only[0].images[0].get_array(), np.clip(dense.T, 0, 1))
    with pytest.raises(tg.DataError, match="original picture"):
        tg.plotting.plot_images(grown, lambda d: d.reshape(16, -1), truth=np.zeros((4, 4, 4)))
