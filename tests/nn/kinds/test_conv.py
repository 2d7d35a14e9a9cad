from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tensorgrow.nn.compression.calibration import input_moments
from tensorgrow.nn.kinds import conv as conv_kinds
from tensorgrow.nn.kinds.catalogue import known_kind
from tensorgrow.nn.kinds.conv import patches
from tests.oracles import assert_close


@pytest.mark.parametrize(
    "options",
    [
        {"padding": 1, "stride": 2},
        {"padding": "same", "dilation": 2},
        {"padding": 2, "padding_mode": "circular", "groups": 2},
    ],
    ids=repr,
)
def test_patches_are_what_the_kernel_sees(options):
    torch.manual_seed(0)
    conv = nn.Conv2d(4, 6, 3, bias=False, **options)
    x = torch.randn(3, 4, 7, 8)
    rows = patches(conv, x)
    weight = conv.weight.reshape(conv.groups, 6 // conv.groups, -1)
    out = (rows @ weight.mT).permute(1, 0, 2).reshape(-1, 6)
    assert_close(out, conv(x).movedim(1, -1).reshape(-1, 6), 1e-5)
    assert_close(patches(conv, x[0]), rows[:, : rows.shape[1] // 3], 1e-12)


@pytest.mark.parametrize("cls, shape", [(nn.Conv1d, (2, 4, 9)), (nn.Conv3d, (2, 4, 5, 4, 4))])
def test_patches_in_other_dimensions(cls, shape):
    torch.manual_seed(0)
    conv, x = cls(4, 3, 2, bias=False), torch.randn(shape)
    out = patches(conv, x)[0] @ conv.weight.detach().flatten(1).T
    assert_close(out, conv(x).movedim(1, -1).reshape(-1, 3), 1e-5)


def test_moments_are_those_of_unfolded_patches(monkeypatch):
    covariance = pytest.importorskip("sklearn.covariance")
    torch.manual_seed(0)
    conv = nn.Conv2d(3, 5, 3, padding=1)
    x = torch.randn(4, 3, 6, 6) + 1.0
    rows = F.unfold(x, 3, padding=1).transpose(1, 2).reshape(-1, 27).double()
    found = input_moments(conv, {"": conv}, [x[:2], x[2:]])[""]
    assert_close(found.mean, rows.mean(0), 1e-6)
    assert_close(found.moment, covariance.oas(rows.numpy())[0], 1e-5)
    monkeypatch.setattr(conv_kinds, "PATCHES", 40)
    assert patches(conv, x).shape == (1, 40, 27)  # some of many
    grouped = nn.Conv2d(4, 6, 3, groups=2)
    found = input_moments(grouped, {"": grouped}, [torch.randn(4, 4, 6, 6)])[""]
    assert found.mean.shape == (2 * 18,) and found.moment.shape == (18, 18)


def test_layouts_and_what_cannot_be_factorised():
    conv = nn.Conv2d(64, 128, 3)
    kind = known_kind(conv)
    assert kind.sizes(conv) == (64 * 9, 128)
    assert all(x.in_features == 576 and x.out_features == 128 for x in kind.layouts(conv))
    assert {x.dims[-1] for x in kind.layouts(conv)} == {9}
    assert known_kind(nn.Conv2d(7, 5, 1)).layouts(nn.Conv2d(7, 5, 1)) == []  # truncated SVDs are all there is
    assert "one channel" in kind.refusal(nn.Conv2d(16, 16, 3, groups=16))
    assert kind.refusal(conv) == ""
