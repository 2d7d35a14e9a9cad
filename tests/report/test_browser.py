"""The page in a real browser."""

from __future__ import annotations

import base64
import dataclasses
import re

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow import Result, StopReason, Structure, TensorNetwork
from tensorgrow.data.axes import Axes
from tensorgrow.report.content import MOST_STEPS
from tests.browser import chromium
from tests.report.conftest import HOSTILE, long_run, photograph


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture(scope="module")
def page(grown, tmp_path_factory):
    pytest.importorskip("PIL")
    x = photograph().reshape((4,) * 4)
    file = tmp_path_factory.mktemp("page") / "run.html"
    return grown.report(
        file, image=(16, 16), truth=x, rivals={"TT-SVD": (99, 0.2), "Tucker": [(80, 0.3), (90, 0.2)]}
    )


def set_slider(browser, value: int) -> None:
    browser.run(
        f"const s = document.getElementById('slider'); s.value = {value}; s.dispatchEvent(new Event('input'))"
    )


def seen(browser) -> tuple[str, ...]:
    drawn = browser.run("return document.querySelector('#network svg').outerHTML")
    source = browser.run("return document.getElementById('frame').src")
    return browser.text("#readout"), drawn, source, browser.text("#frame-text"), browser.text("tr.now-row")


def test_the_slider_redraws_everything(browser, page, grown):
    browser.open(page)
    views = []
    for n, step in enumerate(grown.history):
        set_slider(browser, n)
        views.append(seen(browser))
        assert views[-1][0].startswith(f"Step {step.index} ")
        assert f"{step.num_parameters:,} parameters" in views[-1][0]
        assert browser.run("return document.querySelectorAll('#network .edge').length") == len(
            step.structure.edges
        )
        labels = browser.run(
            "return [...document.querySelectorAll('.rank-text')].map(t => Number(t.textContent))"
        )
        assert sorted(labels) == sorted(step.structure.ranks.values())
    assert len({v[1] for v in views}) == len({v[0] for v in views}) == len(grown.history)
    assert len({v[2] for v in views}) > len(grown.history) // 2
    assert browser.problems() == []
    assert browser.requests() == []


def test_keyboard_table_and_play(browser, page, grown):
    from selenium.webdriver.common.keys import Keys

    browser.open(page)
    last = grown.history[-1].index
    assert browser.text("#readout").startswith(f"Step {last} ")
    slider = browser.driver.find_element("id", "slider")
    slider.send_keys(Keys.ARROW_LEFT)
    assert browser.text("#readout").startswith(f"Step {last - 1} ")
    slider.send_keys(Keys.HOME)
    assert browser.text("#readout").startswith("Step 0 ")
    button = browser.driver.find_element("css selector", "#steps button[data-step='2']")
    button.send_keys(Keys.ENTER)
    assert browser.text("#readout").startswith("Step 2 ")
    assert slider.get_attribute("value") == "2"
    assert "Step 2" in slider.get_attribute("aria-valuetext")
    browser.driver.find_element("id", "play").send_keys(Keys.ENTER)
    browser.wait(lambda: browser.text("#readout").startswith(f"Step {last} "))
    assert browser.problems() == []


def test_hovering_the_curve_gives_values(browser, page, grown):
    from selenium.webdriver.common.action_chains import ActionChains

    browser.open(page)
    svg = browser.driver.find_element("css selector", "#curve svg")
    assert not browser.driver.find_element("class name", "tip").is_displayed()
    star = browser.driver.find_element("css selector", "#curve path.result")
    ActionChains(browser.driver).move_to_element(star).perform()
    tip = browser.text(".tip")
    assert f"{grown.num_parameters:,} parameters" in tip
    assert f"{float(f'{grown.relative_error:.4g}'):g}" in tip
    rival = browser.driver.find_element("css selector", "#curve rect.rival-0")
    ActionChains(browser.driver).move_to_element(rival).perform()
    assert browser.text(".tip") == "TT-SVD\n99 parameters\nrelative error 0.2"
    first = browser.driver.find_element("css selector", "#curve circle.fitted")
    ActionChains(browser.driver).move_to_element(first).click().perform()
    assert browser.text("#readout").startswith("Step 0 ")
    names = browser.run("return [...document.querySelectorAll('#legend span')].map(s => s.textContent)")
    assert names == ["growth", "result", "TT-SVD", "Tucker"]
    assert svg.is_displayed()


def brightness(browser, selector: str, name: str) -> float:
    color = browser.run(f"return getComputedStyle(document.querySelector('{selector}')).{name}")
    return sum(float(v) for v in re.findall(r"[\d.]+", color)[:3]) / (3 if "rgb" in color else 3 / 255)


def test_light_and_dark(browser, page):
    for dark in (False, True):
        browser.open(page, dark=dark)
        before = brightness(browser, "body", "backgroundColor")
        assert (before < 60) == dark
        assert (brightness(browser, "body", "color") > 200) == dark
        browser.run("document.getElementById('theme').click()")
        assert (brightness(browser, "body", "backgroundColor") < 60) != dark
    assert browser.problems() == []


@pytest.mark.parametrize("width", [320, 375, 768, 1600])
def test_no_width_scrolls_sideways(browser, page, width):
    browser.open(page, width=width)
    assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
    drawn = "[...document.querySelectorAll('section, svg, img')]"
    assert browser.run(f"return Math.max(...{drawn}.map(e => e.getBoundingClientRect().right))") <= width
    numbers = "[...document.querySelectorAll('.card dd')]"
    assert browser.run(f"return {numbers}.length") >= 4
    assert browser.run(f"return {numbers}.every(e => e.scrollWidth <= e.clientWidth)")
    assert browser.problems() == []


@pytest.mark.parametrize("width", [320, 1100])
def test_a_committee_beside_interpolation_fits(browser, committee, tmp_path, width):
    pytest.importorskip("PIL")
    pytest.importorskip("scipy")
    x = photograph(32)
    holes = np.where(np.random.default_rng(0).random(x.shape) < 0.6, x, np.nan)
    path = committee.report(tmp_path / "run.html", image=x.shape, truth=x, observed=holes)
    browser.open(path, width=width)
    assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
    tops = browser.run(
        "return ['#filled', '#members', '#growth'].map(s => document.querySelector(s).offsetTop)"
    )
    assert tops == sorted(tops)
    table = "document.querySelector('#fillings')"
    assert browser.run(f"return {table}.scrollWidth <= {table}.parentElement.clientWidth")
    links = browser.run("return [...document.querySelectorAll('#filled a')].map(a => a.download)")
    assert links == [f"run-{n}.png" for n in ("original", "observed", "linear-interpolation", "tensorgrow")]
    assert browser.problems() == [] and browser.requests() == []


def test_it_redraws_when_the_window_changes(browser, page):
    browser.open(page, width=1200)
    wide = browser.run("return document.querySelector('#curve svg').clientWidth")
    browser.resize(400)
    browser.wait(lambda: browser.run("return document.querySelector('#curve svg').clientWidth") < 0.5 * wide)


def test_print(browser, page):
    browser.open(page)
    browser.command("Emulation.setEmulatedMedia", media="print")
    assert browser.run("return getComputedStyle(document.getElementById('controls')).display") == "none"
    assert browser.run(
        "const e = document.querySelector('.scroll'); return e.scrollHeight <= e.clientHeight + 1"
    )
    pdf = base64.b64decode(browser.command("Page.printToPDF")["data"])
    assert pdf.startswith(b"%PDF")
    assert len(pdf) > 10_000


def test_figures_can_be_saved(browser, page, tmp_path):
    """Every figure becomes a file by a click; drawings carry their style with them."""
    from PIL import Image

    browser.open(page)
    browser.command("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    drawings = {f"run-{name}.{kind}" for name in ("network", "curve") for kind in ("svg", "png")}
    for name in ("network", "curve"):
        for kind in ("svg", "png"):
            browser.run(f"document.querySelector('[data-save={name}][data-kind={kind}]').click()")
            browser.wait((tmp_path / f"run-{name}.{kind}").exists)
    for link in browser.driver.find_elements("css selector", "#pictures a[download]"):
        browser.run(f"document.querySelector('[download=\"{link.get_attribute('download')}\"]').click()")
        browser.wait((tmp_path / link.get_attribute("download")).exists)
    pictures = {f"run-{name}.png" for name in ("reconstruction", "original", "difference")}
    assert {p.name for p in tmp_path.iterdir()} == drawings | pictures
    drawn = (tmp_path / "run-network.svg").read_text()
    assert "class=" not in drawn
    assert "var(" not in drawn
    with Image.open(tmp_path / "run-network.png") as image:
        assert len(image.convert("RGB").getcolors(1 << 20)) > 10
        assert image.width > 500
    with Image.open(tmp_path / "run-original.png") as image:
        assert image.size == (16, 16)
    assert browser.problems() == []
    assert browser.requests() == []


def other_kinds(grown: Result, completed: Result) -> dict[str, Result]:
    y = torch.arange(6.0).reshape(2, 3)
    learned = tg.learn(
        lambda net: ((net.to_dense() - y) ** 2).mean() - 20, (2, 3), max_steps=1, random_state=0
    )
    x = np.random.default_rng(0).standard_normal((3, 4, 3)) + 1j * np.random.default_rng(1).standard_normal(
        (3, 4, 3)
    )
    return {
        "completion": completed,
        "fit": tg.fit(x.real, Structure.tucker((3, 4, 3), 2), random_state=0),
        "learn": learned,
        "complex": tg.decompose(x, max_error=0.5, effort="fast", random_state=0),
        "no history": dataclasses.replace(grown, history=(), path=(), info={}),
        "zero": tg.decompose(np.zeros((3, 3)), max_error=0.1),
        "long": long_run(2000),
        "hostile": dataclasses.replace(
            grown,
            axes=Axes((HOSTILE, "x", "y", "z")),
            history=tuple(dataclasses.replace(s, kind=HOSTILE) for s in grown.history),
            info={HOSTILE: HOSTILE, "o": {HOSTILE: HOSTILE}},
        ),
        "many legs": Result(
            TensorNetwork.random(Structure.tensor_train((2,) * 50, 2), random_state=0),
            tg.Errors(0.1),
            (),
            StopReason.CONVERGED,
        ),
    }


def test_every_kind_of_result(browser, grown, completed, tmp_path):
    for name, result in other_kinds(grown, completed).items():
        path = result.report(tmp_path / "page.html", title=HOSTILE, rivals={HOSTILE: (50, 0.1)})
        browser.open(path, width=500)
        assert browser.problems() == [], name
        assert browser.requests() == [], name
        assert browser.run("return window.hacked === undefined"), name
        assert browser.text("h1") == HOSTILE
        legs = browser.run("return [...document.querySelectorAll('.leg-text')].map(t => t.textContent)")
        assert legs[-2:] == (
            ["z", "4"] if name == "hostile" else [str(d) for d in result.structure.dims[-2:]]
        )
        assert browser.run("return document.documentElement.scrollWidth <= innerWidth"), name
        nodes = browser.run("return document.querySelectorAll('#network .node').length")
        assert nodes == result.structure.num_nodes, name
        hidden = not browser.driver.find_element("id", "controls").is_displayed()
        assert hidden == (len(result.history) < 2), name
        if name == "long":
            assert browser.text("#readout").count("growth") == 1
            steps = int(browser.run("return document.getElementById('slider').max"))
            browser.run("document.getElementById('all').click()")
            assert int(browser.run("return document.getElementById('slider').max")) == MOST_STEPS - 1 > steps
        if name == "completion":
            names = browser.run(
                "return [...document.querySelectorAll('#legend span')].map(s => s.textContent)"
            )
            assert names[:2] == ["growth: fitted data", "growth: held-out data"]
            assert "test data" in names


# Ends of elements and strings, entities, URLs, templates, keys of all objects, directions, nothing.
NAMES = [
    HOSTILE,
    "</title></style></textarea><svg onload=window.hacked=3>",
    "\"><iframe srcdoc='<script>parent.hacked=4</script>'>",
    "javascript:window.hacked=5//",
    "\\u003cscript\\u003ewindow.hacked=6\\u003c/script\\u003e",
    "&lt;b&gt; &amp;lt; &#60;script&#62;",
    "]]><!--<script><![CDATA[",
    "'-(window.hacked=7)-'",
    "{{7*7}} ${window.hacked=8} #{1} %s",
    "__proto__",
    "constructor",
    "\u202eleft\u2028line\u2029",
    "\x07\x1b[31mred",
    "",
    "a" * 300,
]


def test_hostile_names_are_text_wherever_they_stand(browser, grown, tmp_path):
    for first in range(0, len(NAMES), 4):
        names = NAMES[first : first + 4]
        result = dataclasses.replace(
            grown,
            axes=Axes((*names, "x")[:4]),
            history=tuple(dataclasses.replace(s, kind=names[0]) for s in grown.history),
            info={name: {name: name} for name in names},
        )
        path = result.report(tmp_path / "page.html", title=names[1], rivals=dict.fromkeys(names, (50, 0.1)))
        browser.open(path)
        set_slider(browser, 1)
        assert browser.problems() == [] and browser.requests() == [], names
        assert browser.run("return window.hacked === undefined"), names
        assert browser.run("return document.scripts.length") == 2, names
        assert browser.run("return document.querySelectorAll('iframe, [onload], [onerror]').length") == 0
        shown = browser.run("return document.querySelector('#rivals').textContent")
        assert all(name in shown for name in names if name.isprintable()), names


def test_film_page(browser, grown, tmp_path):
    pytest.importorskip("matplotlib")
    path = tg.plotting.growth_film(grown, tmp_path / "film.html", max_frames=3, dpi=40)
    browser.open(path)
    first = browser.run("return document.getElementById('frame').src")
    set_slider(browser, 2)
    assert browser.run("return document.getElementById('frame').src") != first
    assert f"{grown.num_parameters:,} parameters" in browser.text("#caption")
    assert browser.problems() == []
    assert browser.requests() == []
