"""The report in a real browser, where there is one."""

from pathlib import Path

import numpy as np
import pytest

from browsing import browser as browser
from fedamp.report import write_report
from run_folders import EVIL, grouped_xi, write_run

pytestmark = pytest.mark.slow

GROUPS = [0, 0, 0, 1, 1, 1]


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    folder, rng = tmp_path_factory.mktemp("report"), np.random.default_rng(0)
    for name in ("separate", "fedamp", "heurfedamp", EVIL):
        for seed in (0, 1):
            scores = rng.uniform(0.5, 0.9, size=(8, 6)).tolist()
            xi = grouped_xi(8, GROUPS) if "fedamp" in name else None
            known = {"groups": GROUPS, "names": [EVIL, "b", "c", "d", "e", "f"], "warnings": [EVIL]}
            write_run(folder / f"{name[:4].strip('<>/')}{name[-3]}{seed}", name, seed, scores, xi=xi, **known)
    found = {"self_weight": [0.5, 1.0], "effective_clients": [2.0, 1.0], "expected_gain": [0.3, 0.0]}
    found |= {"spectrum": [7.0, -0.5], "rank": 1.0, "noise": 0.1, "noise_share": 0.2}
    write_run(folder / "other", "separate", 0, [(0.5, 0.6)], data="mnist", names=[EVIL, "b"], found=found)
    return write_report([folder])


@pytest.fixture
def open_page(browser, report):
    """Return a function that opens the report; at the end nothing must have gone wrong in any page."""
    faults, contexts = [], []

    def hear(page):
        page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("dialog", lambda dialog: (faults.append(f"dialog {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda asked: None if asked.url.startswith(("file:", "data:")) else faults.append(asked.url))

    def opened(width=1280, height=800, **options):
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        hear(page)
        page.goto(report.as_uri())
        page.wait_for_selector("#xi .heatmaplayer image", state="attached")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert faults == []


def names(page, plot: str) -> list[str]:
    return page.evaluate(f"document.getElementById('{plot}').data.filter(each => each.name).map(each => each.name)")


def test_all_plots_are_drawn(open_page):
    page = open_page()
    for plot in ("curves", "boxes", "xi", "recovery"):
        assert page.evaluate(f"document.getElementById('{plot}').data.length") > 0
    assert names(page, "curves")[:3] == ["separate", "fedamp", "heurfedamp"]
    assert page.locator("img").count() == 0
    assert EVIL in page.locator("#legend").inner_text()


def test_the_slider_changes_the_heat_map_by_keyboard(open_page):
    page = open_page()
    last = page.evaluate("document.getElementById('xi').data[0].z")
    assert last[0][1] == pytest.approx(3 / 12, abs=0.005)
    page.focus("#xi-round")
    page.keyboard.press("Home")
    assert page.inner_text("#xi-shown") == "1"
    first = page.evaluate("document.getElementById('xi').data[0].z")
    assert first[0][1] == pytest.approx(1 / 6, abs=0.005)
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.getElementById('xi').data[0].z") == last
    page.select_option("#xi-method", "fedamp")
    assert page.inner_text("#xi-shown") == "8"


@pytest.mark.parametrize("by", ["click", "keyboard"])
def test_a_method_can_be_hidden_and_shown(open_page, by):
    page = open_page()
    box = page.get_by_label("fedamp", exact=True)

    def toggle():
        if by == "click":
            page.locator("#legend label", has_text="fedamp").first.click()
        else:
            box.focus()
            page.keyboard.press("Space")

    toggle()
    assert not box.is_checked()
    for plot in ("curves", "boxes", "recovery"):
        assert "fedamp" not in names(page, plot)
        assert "heurfedamp" in names(page, plot)
    toggle()
    assert "fedamp" in names(page, "curves")


def test_who_helps_whom_is_drawn(open_page):
    page = open_page()
    plot = "document.querySelector('[data-{}]').data"
    assert page.evaluate(plot.format("spectrum") + "[0].y") == [7.0, -0.5]
    assert page.evaluate(plot.format("clients") + ".map(each => each.y)") == [[1.0, 0.0], [30.0, 0.0]]
    assert page.locator("[data-spectrum] .annotation-text").text_content() == "rank 1"


def test_another_setting_can_be_chosen(open_page):
    page = open_page()
    page.get_by_label("Setting").select_option("1")
    assert names(page, "curves") == ["separate"]
    assert page.locator("#xi-figure").is_hidden()
    page.get_by_label("Setting").select_option("0")
    assert page.locator("#xi-figure").is_visible()


@pytest.mark.parametrize("width", [320, 390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_sideways_scrolling(open_page, width, scheme):
    page = open_page(width, 844, color_scheme=scheme, is_mobile=width < 600, has_touch=width < 600)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("document.querySelector('#curves .main-svg').getBoundingClientRect().right") <= width


def test_every_control_has_a_label(open_page):
    page = open_page()
    bare = "[...document.querySelectorAll('input, select')].filter(each => !each.labels.length).length"
    assert page.evaluate(bare) == 0
