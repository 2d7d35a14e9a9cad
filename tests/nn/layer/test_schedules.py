from __future__ import annotations

import tensorgrow as tg
from tensorgrow.nn import Layout
from tensorgrow.nn.layer.linear import LinearApplication
from tensorgrow.nn.layer.schedules import peak_entries, pick, schedule


def test_the_schedule_goes_both_ways_and_covers_every_number_of_rows():
    layout = Layout((4,) * 5, (4,) * 5)
    thin = schedule(LinearApplication(), layout, tg.Structure.tensor_train(layout.dims, 2), "cpu", 4)
    assert pick(thin, 1) is not None
    thick = schedule(LinearApplication(), layout, tg.Structure.tensor_train(layout.dims, 16), "cpu", 4)
    assert pick(thick, 4096) is None
    assert thick[-1][0] > 1 << 60
    limits = [limit for limit, _ in thick]
    assert limits == sorted(limits)


def test_parts_bound_the_memory():
    layout = Layout((4,) * 5, (4,) * 5)
    structure = tg.Structure.tensor_train(layout.dims, 2)
    plan = pick(schedule(LinearApplication(), layout, structure, "cpu", 4), 1 << 16)
    assert plan is not None and plan.part < 1 << 14
    whole = plan._replace(part=1 << 20)
    assert peak_entries(layout, structure, plan, 1 << 16) <= 2 * 1024 << 16
    assert peak_entries(layout, structure, plan, 1 << 16) < peak_entries(layout, structure, whole, 1 << 16)
