from __future__ import annotations

import json
import re

import numpy as np
import pytest

import tensorgrow as tg
from tensorgrow import Errors, Result, Step, StopReason, Structure, TensorNetwork

HOSTILE = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>&\"'`${1}<!--"


def photograph(side: int = 16) -> np.ndarray:
    rows, columns = np.mgrid[0:side, 0:side] / side
    return 0.5 + 0.4 * np.sin(5 * rows) * np.cos(4 * columns) * (rows > columns)


@pytest.fixture(scope="package")
def grown():
    return tg.decompose(photograph().reshape((4,) * 4), max_error=0.03, effort="fast", random_state=3)


@pytest.fixture(scope="package")
def completed():
    cores = (np.random.default_rng(0).standard_normal(s) for s in ((8, 2), (2, 8, 2), (2, 8)))
    x = np.einsum("ia,ajb,bk->ijk", *cores)
    known = np.random.default_rng(1).random(x.shape) < 0.6
    return tg.complete(x, known, truth=x, random_state=0, effort="fast")


@pytest.fixture(scope="package")
def committee():
    x = photograph(32)
    known = np.random.default_rng(0).random(x.shape) < 0.6
    options = {"tensorize": "auto", "members": 2, "max_steps": 2, "effort": "fast", "random_state": 0}
    return tg.complete(x, known, truth=x, **options)


def long_run(count: int) -> Result:
    """A run of many steps over three growths, made up."""
    structures = [Structure((3,) * 6, {(k % 5, k % 5 + 1): 2 + k % 3}) for k in range(15)]
    steps = [
        Step(
            k,
            "grow",
            (k % 5, k % 5 + 1),
            20 + k,
            1.0,
            1 / (1 + k),
            None,
            0.1 * k,
            structures[k % 15],
            3 * k // count,
        )
        for k in range(count)
    ]
    return Result(
        TensorNetwork.random(structures[0], random_state=0), Errors(0.1), tuple(steps), StopReason.MAX_SECONDS
    )


def content_of(page: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])
