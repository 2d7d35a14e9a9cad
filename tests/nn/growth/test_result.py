from __future__ import annotations

import tensorgrow as tg
from tensorgrow.nn import GrowStep


def test_steps_of_the_first_format_are_read():
    structure = tg.Structure((4, 4), {(0, 1): 2})
    old = {
        "index": 1,
        "kind": "grow",
        "layer": "0",
        "edge": [0, 1],
        "num_parameters": 32,
        "train_loss": 0.5,
        "validation": 0.25,
        "epochs": 3,
        "seconds": 1.5,
        "structures": {"0": structure.to_dict()},
    }
    step = GrowStep.from_dict(old)
    assert (step.loss, step.validation_error, step.measure, step.relative_error) == (0.5, 0.25, 0.25, None)
    assert step.move() == "grow 0-1 of 0"
    assert step.structures == {"0": structure}
    assert GrowStep.from_dict(step.to_dict()) == step
