from __future__ import annotations

import gc
import os
import signal

# Also for processes that tests start: two threads each on two busy cores would mostly wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")

import pytest
import torch
from hypothesis import settings

from tensorgrow.algebra import linalg
from tensorgrow.contraction import clear_plans, paths
from tensorgrow.tasks import linear_classifier
from tests.optional import missing

torch.set_num_threads(1)

# Shells start what runs in the background deaf to Ctrl-C, and so would be the processes that tests interrupt.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("tensorgrow", deadline=None, max_examples=40, derandomize=True, database=None)
settings.load_profile("tensorgrow")

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]


def _or_skip():
    try:
        return (yield)
    except Exception as error:
        if (package := missing(error)) is None:
            raise
        pytest.skip(f"needs {package}")


def pytest_collection_finish():
    # Half a million objects that stay to the end: looking at them for garbage takes a twentieth of the time.
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call():
    return (yield from _or_skip())


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup():
    return (yield from _or_skip())


def _name(value: object) -> str:
    return str(value).removeprefix("torch.")


# Session scope: Hypothesis refuses fixtures that are set up once per test but used for many examples.


@pytest.fixture(scope="session", params=DTYPES, ids=_name)
def dtype(request):
    return request.param


@pytest.fixture(scope="session", params=[torch.float64, torch.complex128], ids=_name)
def double(request):
    return request.param


@pytest.fixture(scope="session", params=DEVICES)
def device(request):
    return request.param


@pytest.fixture(scope="session", params=[True, False], ids=["numpy", "torch"])
def use_numpy(request):
    return request.param


@pytest.fixture
def fresh_plans():
    clear_plans()
    yield
    clear_plans()


@pytest.fixture
def one_ridge(monkeypatch):
    """Classifiers start from one ridge instead of the best of five, whose fits are most of a short run."""
    monkeypatch.setattr(linear_classifier, "RIDGES", (0.1,))


@pytest.fixture(params=["rust", "python"])
def path_finder(request, monkeypatch, fresh_plans):
    """With the compiled helpers for paths and small solves, and without."""
    if request.param == "rust":
        pytest.importorskip("cotengrust")
    else:
        monkeypatch.setattr(paths, "rust_finder", lambda: None)
        monkeypatch.setattr(linalg, "lapack_module", lambda: None)
    return request.param
