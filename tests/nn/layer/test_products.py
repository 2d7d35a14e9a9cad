from __future__ import annotations

import pytest
import torch

from tensorgrow.nn import TNLinear
from tensorgrow.nn.layer.plans import through_plan
from tensorgrow.nn.layer.products import StackProduct, multiply_stack, run_rows
from tests.oracles import assert_close


@pytest.mark.parametrize("shape", [(7, 5, 4, 2), (2, 3, 4, 6)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_gradients_of_stacked_products(shape, dtype):
    """Both ways to add up the gradient of the one matrix."""
    n, k, stack, columns = shape
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(n, k, dtype=dtype, generator=generator, requires_grad=True)
    b = torch.randn(stack, k, columns, dtype=dtype, generator=generator, requires_grad=True)
    assert torch.autograd.gradcheck(StackProduct.apply, (a, b))
    assert torch.autograd.gradgradcheck(StackProduct.apply, (a, b))
    vectors = torch.stack([a, 2 * a])
    assert_close(torch.vmap(lambda m: StackProduct.apply(m, b))(vectors)[1], 2 * multiply_stack(a, b), 1e-12)


def test_rows_in_parts_give_the_same_and_the_same_gradients():
    layer = TNLinear(64, 64, in_dims=(4,) * 3, out_dims=(4,) * 3, dtype=torch.float64, random_state=0)
    layer.grow_edge(0, 1, noise=1.0, random_state=0)
    layer.grow_edge(1, 2, noise=1.0, random_state=1)
    few, many = (through_plan(layer.layout, layer.structure, rows) for rows in (16, 4096))
    assert any(not product.has_rows for product in many.products)
    x = torch.randn(20, 64, dtype=torch.float64, requires_grad=True)
    leaves = [x, *layer.cores, layer.bias]
    results = []
    for plan in (few, few._replace(part=7), many._replace(part=6)):
        out = run_rows(plan, x, list(layer.cores), layer.bias)
        results.append((out, *torch.autograd.grad(out.square().sum(), leaves)))
        with torch.no_grad():
            assert_close(run_rows(plan, x, list(layer.cores), layer.bias), out, 1e-13)
    for other in results[1:]:
        for one, two in zip(results[0], other):
            assert_close(two, one, 1e-12)
