from __future__ import annotations

import base64
import dataclasses
import hashlib
import html
import json
import re
import sys

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow import Result, Step, StopReason, Structure, TensorNetwork
from tensorgrow.report.content import MOST_STEPS
from tensorgrow.report.images import MOST_BYTES, MOST_FRAMES
from tests.browser import chromium

HOSTILE = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>&\"'`${1}<!--"


def photograph(side: int = 16) -> np.ndarray:
    rows, columns = np.mgrid[0:side, 0:side] / side
    return 0.5 + 0.4 * np.sin(5 * rows) * np.cos(4 * columns) * (rows > columns)


@pytest.fixture(scope="module")
def grown():
    return tg.decompose(photograph().reshape((4,) * 4), max_error=0.03, effort="fast", random_state=3)


@pytest.fixture(scope="module")
def completed():
    cores = (np.random.default_rng(0).standard_normal(s) for s in ((8, 2), (2, 8, 2), (2, 8)))
    x = np.einsum("ia,ajb,bk->ijk", *cores)
    known = np.random.default_rng(1).random(x.shape) < 0.6
    return tg.complete(x, known, truth=x, random_state=0, effort="fast")


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
        TensorNetwork.random(structures[0], random_state=0), 0.1, tuple(steps), StopReason.MAX_SECONDS
    )


def content_of(page: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])


# -- the file ------------------------------------------------------------------------------------------


def test_the_page_says_what_the_result_says(grown, tmp_path):
    path = grown.report(tmp_path / "run.html", rivals={"TT-SVD": (99, 0.2)})
    assert path == tmp_path / "run.html"
    page = path.read_text(encoding="utf-8")
    visible = html.unescape(re.sub(r"<script.*?</script>", "", page, flags=re.S))
    for words in (
        f"{grown.num_parameters:,}",
        f"{grown.relative_error:.4g}",
        grown.stop.text,
        "'run.safetensors'",
    ):
        assert words in visible
    assert "A 4⁴ tensor" in visible
    assert re.search(r"<dt>seed</dt><dd>3</dd>", page)
    assert torch.__version__ in visible
    assert visible.count("<tr>") == len(grown.history) + 1
    content = content_of(page)
    assert [s["size"] for s in content["steps"]] == [s.num_parameters for s in grown.history]
    assert [s["name"] for s in content["series"]] == ["growth", "result", "TT-SVD"]
    for step, drawn in zip(grown.history, content["steps"]):
        edges = content["structures"][drawn["structure"]]["edges"]
        assert {(i, j): rank for i, j, rank, _ in edges} == dict(step.structure.ranks)


def test_a_tensor_made_from_an_array_says_so(grown, tmp_path):
    _, how = tg.tensorize(photograph(), (4,) * 4)
    page = (
        dataclasses.replace(grown, tensorization=how).report(tmp_path / "p.html").read_text(encoding="utf-8")
    )
    assert "16×16 as 4⁴ = 256 entries" in page


def test_spectra_are_those_of_the_balanced_network(tmp_path):
    """On a chain of two the weights are the singular values."""
    x = np.diag([4.0, 2.0, 1.0])
    page = tg.decompose(x, max_error=1e-9, random_state=0).report(tmp_path / "p.html").read_text()
    (spectrum,) = content_of(page)["spectra"]
    assert spectrum["edge"] == [0, 1]
    assert spectrum["values"] == pytest.approx([1, 0.5, 0.25], rel=1e-2)


def test_nothing_but_this_page_may_run(grown, tmp_path):
    page = grown.report(tmp_path / "p.html", title=HOSTILE).read_text()
    policy = html.unescape(re.search(r'Content-Security-Policy" content="(.*?)"', page)[1])
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert "unsafe" not in policy
    for tag in ("style", "script"):
        text = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.S)
        assert len(text) == 1
        digest = base64.b64encode(hashlib.sha256(text[0].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert set(re.findall(r"https?://[^\s\"']+", page)) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"\s(style|on\w+)=", re.sub(r"<(script|title|h1).*?</\1>", "", page, flags=re.S))


def test_hostile_strings_stay_text(grown, tmp_path):
    step = dataclasses.replace(grown.history[-1], kind=HOSTILE)
    info = {HOSTILE: HOSTILE, "nested": {HOSTILE: [HOSTILE]}}
    result = dataclasses.replace(grown, history=(step,), info=info)
    page = result.report(
        tmp_path / "p.html", title=HOSTILE + "\ud800", rivals={HOSTILE: (5, 0.1)}
    ).read_text()
    assert "<img" not in page
    assert page.count("<script") == page.count("</script") == 2
    assert content_of(page)["steps"][0]["kind"] == HOSTILE


def test_long_runs_are_thinned(tmp_path):
    path = long_run(5000).report(tmp_path / "long.html")
    page = path.read_text()
    steps = content_of(page)["steps"]
    assert len(steps) == MOST_STEPS
    assert (steps[0]["index"], steps[-1]["index"]) == (0, 4999)
    assert "600 of 5,000 steps" in page
    assert path.stat().st_size < 500_000


def test_an_empty_history(grown, tmp_path):
    bare = dataclasses.replace(grown, history=(), path=(), info={})
    page = bare.report(tmp_path / "p.html", image=(16, 16)).read_text()
    assert "without its history" in page
    assert "Nothing was recorded" in page
    assert len(content_of(page)["images"]["frames"]) == 1


def test_numbers_json_has_no_word_for(grown, tmp_path):
    steps = tuple(dataclasses.replace(s, relative_error=float("nan")) for s in grown.history)
    page = dataclasses.replace(grown, history=steps, relative_error=float("inf")).report(tmp_path / "p.html")
    assert content_of(page.read_text())["series"] == []


def test_where_it_cannot_be_written(grown, tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        grown.report(tmp_path / "no" / "run.html")
    with pytest.raises(tg.OptionError, match="rivals"):
        grown.report(tmp_path / "run.html", rivals={"x": "y"})
    assert not (tmp_path / "run.html").exists()


# -- pictures ------------------------------------------------------------------------------------------


def decoded(address: str) -> np.ndarray:
    import io

    from PIL import Image

    assert address.startswith("data:image/")
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(address.split(",", 1)[1]))), dtype=float) / 255


def test_pictures_show_the_networks(grown, tmp_path):
    pytest.importorskip("PIL")
    x = photograph().reshape((4,) * 4)
    observed = np.where(x > 0.6, np.nan, x)
    path = grown.report(tmp_path / "p.html", image=lambda d: d.reshape(16, 16), truth=x, observed=observed)
    images = content_of(path.read_text())["images"]
    steps = content_of(path.read_text())["steps"]
    assert list(images["stills"]) == ["original", "observed", "difference"]
    made = grown.network.to_dense().numpy().reshape(16, 16)
    np.testing.assert_allclose(decoded(images["frames"][-1]["src"]), made.clip(0, 1), atol=0.003)
    np.testing.assert_allclose(decoded(images["stills"]["original"]), photograph(), atol=0.003)
    np.testing.assert_allclose(
        decoded(images["stills"]["observed"]), np.nan_to_num(observed.reshape(16, 16)), atol=0.003
    )
    np.testing.assert_allclose(
        decoded(images["stills"]["difference"]),
        (images["gain"] * np.abs(made.clip(0, 1) - photograph())).clip(0, 1),
        atol=0.003,
    )
    assert {f["name"] for f in images["frames"]} == {"error"}
    assert steps[-1]["frame"] == len(images["frames"]) - 1
    for step in steps:
        assert images["frames"][step["frame"]]["size"] <= step["size"]
    errors = [np.linalg.norm(decoded(f["src"]) - photograph()) for f in images["frames"]]
    assert errors[-1] == min(errors)


def test_pictures_of_a_completion_say_which_error(completed, tmp_path):
    pytest.importorskip("PIL")
    images = content_of(completed.report(tmp_path / "p.html", image=(16, 32)).read_text())["images"]
    *before, last = images["frames"]
    assert {f["name"] for f in before} == {"held-out error"}
    known = {s.validation_error for s in completed.history}
    assert {f["error"] for f in before} <= known
    assert (last["name"], last["error"]) == ("error", completed.relative_error)


def test_many_large_pictures_stay_small(tmp_path):
    pytest.importorskip("PIL")
    dims = (30, 30, 3)
    networks = [TensorNetwork.random(Structure(dims, {(0, 1): r}), random_state=r) for r in range(2, 70)]
    path = [tg.results.PathPoint(n, 1 / n.num_parameters) for n in networks]
    steps = [
        Step(k, "grow", (0, 1), p.num_parameters, 1.0, p.relative_error, None, 0.0, p.network.structure)
        for k, p in enumerate(path)
    ]
    result = Result(networks[-1], path[-1].relative_error, tuple(steps), StopReason.MAX_STEPS, tuple(path))
    noise = np.random.default_rng(0).random((500, 400, 3))
    file = result.report(tmp_path / "p.html", image=lambda d: noise)
    images = content_of(file.read_text())["images"]
    assert len(images["frames"]) == MOST_FRAMES
    assert decoded(images["frames"][0]["src"]).shape == (384, 307, 3)
    assert file.stat().st_size < 1.4 * MOST_BYTES < 3_000_000


def test_completion_with_a_loss_shows_expected_values(tmp_path):
    pytest.importorskip("PIL")
    counts = np.random.default_rng(0).poisson(5.0, (6, 6)).astype(float)
    result = tg.complete(counts, loss="poisson", max_steps=1, random_state=0)
    images = content_of(result.report(tmp_path / "p.html", image=(6, 6), truth=counts).read_text())["images"]
    rates = result.predict(np.argwhere(counts >= 0)).numpy().reshape(6, 6)
    low, high = np.quantile(counts, (0.01, 0.99))
    expected = ((rates - low) / (high - low)).clip(0, 1)
    np.testing.assert_allclose(decoded(images["frames"][-1]["src"]), expected, atol=0.003)


def test_pictures_that_do_not_fit_are_refused(grown, tmp_path, monkeypatch):
    with pytest.raises(tg.DataError, match=r"truth has shape \(16, 16\)"):
        grown.report(tmp_path / "p.html", image=(16, 16), truth=photograph())
    with pytest.raises(tg.DataError, match="entries"):
        grown.report(tmp_path / "p.html", image=(5, 5))
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(tg.MissingPackageError, match=r"tensorgrow\[plot\]"):
        grown.report(tmp_path / "p.html", image=(16, 16))
    assert grown.report(tmp_path / "plain.html").exists()  # without pictures nothing more is needed


# -- in a real browser ---------------------------------------------------------------------------------


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
    assert browser.problems() == []


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
            history=tuple(dataclasses.replace(s, kind=HOSTILE) for s in grown.history),
            info={HOSTILE: HOSTILE, "o": {HOSTILE: HOSTILE}},
        ),
        "many legs": Result(
            TensorNetwork.random(Structure.tensor_train((2,) * 50, 2), random_state=0),
            0.1,
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
