from __future__ import annotations

import numpy as np
import pytest

import tensorgrow as tg

RIVALS = {"TT-SVD": [(60, 0.2), (90, 0.1)], "Tucker": (80, 0.3)}


@pytest.fixture(scope="package")
def picture():
    rows, columns = np.mgrid[0:16, 0:16] / 16
    return 0.5 + 0.4 * np.sin(5 * rows) * np.cos(4 * columns) * (rows > columns)


@pytest.fixture(scope="package")
def grown(picture):
    return tg.decompose(picture.reshape((4,) * 4), max_error=0.05, effort="fast", random_state=0)


@pytest.fixture(scope="package")
def completed():
    x = np.einsum(
        "ia,ajb,bk->ijk", *(np.random.default_rng(0).standard_normal(s) for s in ((8, 2), (2, 8, 2), (2, 8)))
    )
    known = np.random.default_rng(1).random(x.shape) < 0.6
    return tg.complete(x, known, truth=x, random_state=0, effort="fast")


@pytest.fixture(autouse=True)
def nothing_left_behind():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    plt = pytest.importorskip("matplotlib.pyplot")
    before = dict(matplotlib.rcParams)
    yield
    plt.close("all")
    assert dict(matplotlib.rcParams) == before


def gids(artists, kind):
    return {
        a.get_gid().removeprefix(kind + " ") for a in artists if (a.get_gid() or "").startswith(kind + " ")
    }
