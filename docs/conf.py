"""The documentation site: ``make docs`` builds it with warnings as errors."""

from __future__ import annotations

import os
import re
from typing import Any

# Set before anything imports NumPy: the examples are small, and thread pools only get
# in each other's way.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import torch
from docutils import nodes
from latex2mathml.converter import convert as latex_to_mathml

import tensorgrow

torch.set_num_threads(1)

project = "tensorgrow"
author = copyright = "The tensorgrow developers"
release = version = tensorgrow.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
exclude_patterns = [
    "_build",
    "gallery/*.ipynb",
    "gallery/*.py",
    "gallery/*.md5",
    "gallery/*.zip",
]
html_theme = "furo"
html_title = f"tensorgrow {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
# Formulas are MathML, which browsers draw themselves: nothing is fetched.
html_math_renderer = "mathml"
# Of commands, only what is typed is copied.
copybutton_prompt_text = "$ "

# Single backquotes in docstrings name our own objects; arguments stay plain code.
default_role = "py:obj"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": True}
autosummary_generate = True
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True

myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence", "dollarmath"]

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r".*",
    # It draws the picture of the README and takes longer.
    "ignore_pattern": r"growth_picture\.py",
    "within_subsection_order": "ExampleTitleSortKey",
    "download_all_examples": False,
    "show_memory": False,
    "plot_gallery": True,
    "abort_on_example_error": True,
    # Its page of run times fetches scripts from elsewhere.
    "write_computation_times": False,
}


def files_beside_the_site(app: Any, page: str, source: list[str]) -> None:
    """Markdown outside this folder is no page: it becomes a file to download."""
    source[0] = re.sub(r"\]\((\.\./[^)#]+\.md)\)", r"](path:\1)", source[0])


def one_field_per_name(
    app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Sphinx reads ``:ivar a, b:`` as a variable b of type a: split such fields."""

    def split(field: re.Match[str]) -> str:
        return "\n".join(
            f":ivar {variable}:{field[2]}" for variable in field[1].split(", ")
        )

    lines[:] = re.sub(
        r"^:ivar (\w+(?:, \w+)+):(.*(?:\n[ \t].*)*)",
        split,
        "\n".join(lines),
        flags=re.M,
    ).split("\n")


def write_formula(writer: Any, node: Any) -> None:
    """Write a formula in LaTeX as MathML."""
    shown = "inline" if isinstance(node, nodes.math) else "block"
    writer.body.append(latex_to_mathml(node.astext(), display=shown))
    raise nodes.SkipNode


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.add_html_math_renderer("mathml", (write_formula, None), (write_formula, None))
    app.connect("source-read", files_beside_the_site)
    app.connect("autodoc-process-docstring", one_field_per_name)  # after napoleon
