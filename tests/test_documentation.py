"""What the README and the docstrings show must run."""

import doctest
import importlib
import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"


def test_the_quickstart_of_the_readme_runs_and_says_the_truth():
    block = re.search(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    names: dict[str, object] = {}
    exec(block.group(1), names)
    result = names["r"]
    assert result.num_parameters == 511
    assert dict(result.structure.ranks) == {(0, 1): 2, (0, 4): 5, (1, 2): 3, (2, 3): 4, (3, 4): 5}


@pytest.mark.parametrize(
    "module", ["structure", "network", "api", "estimators.regressor", "estimators.classifier"]
)
def test_examples_in_docstrings(module):
    if module.startswith("estimators"):
        pytest.importorskip("sklearn")
    found = importlib.import_module(f"tensorgrow.{module}")
    outcome = doctest.testmod(found)
    assert outcome.attempted > 0
    assert outcome.failed == 0


def test_every_link_in_the_documentation_leads_somewhere():
    root = README.parent
    for page in [README, *root.glob("docs/*.md"), root / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
