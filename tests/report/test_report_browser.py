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

    def opened(width=1280, height=800, at="", wait="#xi .heatmaplayer image", **options):
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        hear(page)
        page.goto(report.as_uri() + at)
        page.wait_for_selector(wait, state="attached")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert faults == []


def test_a_plot_without_a_neighbour_has_the_whole_line(browser, tmp_path):
    """No true groups are known, no loss, and no weights: three plots are alone."""
    for name in ("separate", "fedamp"):
        write_run(tmp_path / name, name)
    write_run(tmp_path / "other", "fedamp", data="mnist", xi=grouped_xi(2, [0, 1]))  # its weights are, too: no Separate
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto(write_report([tmp_path]).as_uri())

    def share(plot):
        page.wait_for_selector(f"#{plot} .main-svg")
        return page.evaluate(
            f"(p => p.querySelector('.main-svg').getBoundingClientRect().width / p.parentElement.clientWidth)({plot})"
        )

    assert min(share(plot) for plot in ("curves", "boxes", "gain")) > 0.9
    page.select_option("#block", index=1)
    assert min(share(plot) for plot in ("curves", "boxes", "xi")) > 0.9
    page.close()


def names(page, plot: str) -> list[str]:
    return page.evaluate(f"document.getElementById('{plot}').data.filter(each => each.name).map(each => each.name)")


def test_all_plots_are_drawn(open_page):
    page = open_page()
    for plot in ("curves", "boxes", "gain", "xi", "recovery"):
        assert page.evaluate(f"document.getElementById('{plot}').data.length") > 0
    assert page.locator(".modebar").count() == 0  # it would lie over the data
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
    assert page.locator("[data-spectrum] .bartext").all_text_contents() == ["7", "−0.5"]


def test_a_direction_too_small_to_see_has_its_number(open_page):
    page = open_page()
    page.evaluate(
        "Charts.spectrum(document.querySelector('[data-spectrum]'), { values: [23.12, 0.163, 4e-17], rank: 2 })"
    )
    assert page.locator("[data-spectrum] .bartext").all_text_contents() == ["23", "0.16", "0"]
    many = "{ values: Array(12).fill(1), rank: 2 }"
    page.evaluate(f"Charts.spectrum(document.querySelector('[data-spectrum]'), {many})")
    assert page.locator("[data-spectrum] .bartext").all_text_contents() == []


def test_another_setting_can_be_chosen(open_page):
    page = open_page()
    page.get_by_label("Setting").select_option("1")
    assert names(page, "curves") == ["separate"]
    assert page.locator("#xi-figure").is_hidden()
    page.get_by_label("Setting").select_option("0")
    assert page.locator("#xi-figure").is_visible()


def test_a_method_without_others_is_shown_from_its_first_round(open_page):
    page = open_page()
    assert not page.is_checked("#whole-axis")
    page.get_by_label("Setting").select_option("1")
    assert page.is_checked("#whole-axis")
    page.get_by_label("Setting").select_option("0")
    assert not page.is_checked("#whole-axis")


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


VIEW = "(lines, higher, whole) => Curves.view(lines.map((mean, i) => ({ name: String(i), mean })), higher, whole)"
GOOD = [[10, 80, 81, 82], [10, 50, 83, 84], [20, 70, 80, 83]]


def test_the_axis_is_made_for_where_methods_end(open_page):
    page = open_page()

    def view(lines, higher=True, whole=False):
        found = page.evaluate(f"([lines, higher, whole]) => ({VIEW})(lines, higher, whole)", [lines, higher, whole])
        return *found["range"], [each["name"] for each in found["outside"]]

    low, high, outside = view(GOOD)
    assert (81 < low < 82, 84 < high < 85, outside) == (True, True, [])
    # One bad method is left outside, and said; one that diverged, too.
    assert view([*GOOD, [9, 10, 11, 12]]) == (low, high, ["3"])
    assert view([*GOOD, [9, None, None, None]])[2] == ["3"]
    assert view([*GOOD, [None] * 4]) == (low, high, [])
    assert view([*GOOD, [9, 10, 11, 12]], whole=True)[0] < 9
    assert view([*GOOD, [9, 10, 11, 12], [8, 9, 10, 11]])[2] == []  # but two of five are no exception
    # Of two methods, the difference is the finding.
    assert view([GOOD[0], [9, 10, 11, 12]])[2] == []
    # For errors the other way round: low is good, and the first rounds lie above.
    errors = [[-value for value in line] for line in [*GOOD, [9, 10, 11, 12]]]
    assert view(errors, higher=False) == (-high, -low, ["3"])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_methods_look_different_and_autoamp_like_no_other(open_page, scheme):
    page = open_page(color_scheme=scheme)
    others = [f"method {i}" for i in range(30)]
    methods = ["separate", *others[:9], "autoamp", *others[9:], "autoamp (pull=2)", "separate (epochs=2)"]
    look = "names => Charts.looks(names).map(i => [Charts.colour(i), Charts.dash(i)])"
    found = dict(zip(methods, map(tuple, page.evaluate(look, methods)), strict=True))
    assert len(set(found.values())) == len(methods)
    for alone in ("autoamp", "separate"):
        assert [name.split()[0] for name in methods if found[name][0] == found[alone][0]].count("method") == 0
    assert len({found[name][0] for name in others[:12]}) == 12
    assert found["autoamp"][1] == "solid"
    # Alone too, grey is Separate's.
    assert page.evaluate(look, ["fedavg"])[0][0] != found["separate"][0]


def test_autoamps_line_is_wider_and_lies_below(open_page):
    page = open_page()
    draw = """names => {
        const lines = Charts.looks(names).map((i, k) => ({ name: names[k], i, x: [1, 2], mean: [k, k + 1] }));
        Curves.draw(document.getElementById("curves"), lines, { label: "", higher: true, most: 2 });
        return document.getElementById("curves").data.map(({ name, line }) => [name, line.width]);
    }"""
    drawn = page.evaluate(draw, ["separate", "fedavg", "autoamp", "ditto"])
    assert [name for name, _ in drawn] == ["autoamp", "separate", "fedavg", "ditto"]
    assert sorted(width for _, width in drawn) == [width for _, width in drawn][::-1]


def test_curves_have_a_name_at_their_end(open_page):
    page = open_page()
    names_shown = page.locator("#curves .annotation-text").all_text_contents()
    assert {"separate", "fedamp", "heurfedamp"} <= set(names_shown)
    beside = """[...document.querySelectorAll('#curves .annotation-text')].every(each => {
        const [plot, text] = [document.getElementById('curves'), each].map(part => part.getBoundingClientRect());
        const { l, w } = document.getElementById('curves')._fullLayout._size;
        return text.left >= plot.left + l + w && text.right <= plot.right + 1;
    })"""
    assert page.evaluate(beside)


def client_names(page) -> list[str]:
    return page.locator("#client-table tbody th").all_text_contents()


def test_clients_are_found_by_name(open_page):
    page = open_page()
    assert page.inner_text("#client-count") == "6 clients"
    page.get_by_label("Search").fill("C")
    assert client_names(page) == [EVIL, "c"]  # its name has a c in it
    assert page.inner_text("#client-count") == "2 of 6 clients"
    page.get_by_label("Search").fill("nobody")
    assert client_names(page) == []
    page.get_by_label("Search").fill("")
    assert len(client_names(page)) == 6


def test_clients_are_sorted_by_keyboard(open_page):
    page = open_page()
    heading = page.get_by_role("button", name="separate", exact=True)
    heading.focus()
    for order in ("descending", "ascending"):
        page.keyboard.press("Enter")  # the focus stays, though the table is new
        column = page.locator("#client-table thead th", has=heading)
        assert column.get_attribute("aria-sort") == order
        place = column.evaluate("each => each.cellIndex")
        cells = page.locator(f"#client-table tbody td:nth-child({place + 1})").all_text_contents()
        assert [float(each) for each in cells] == sorted(map(float, cells), reverse=order == "descending")


def test_a_client_has_a_view_of_its_own(open_page):
    page = open_page()
    page.get_by_role("link", name="b", exact=True).first.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#client-view:not([hidden])")
    assert page.url.endswith("#client=b")
    assert page.inner_text("#h-client") == "b"
    assert page.locator("#overview").is_hidden()
    page.select_option("#client-method", "fedamp")
    data = page.evaluate("JSON.parse(document.getElementById('data').textContent)[0].methods")
    run = next(each for each in data if each["name"] == "fedamp")["runs"][0]
    assert f"With fedamp: {run['scores'][1]:.2f} %" in page.inner_text("#client-lead")
    row = page.locator("#client-scores tr", has_text="fedamp").first.locator("td").all_text_contents()
    assert row[0] == f"{run['scores'][1]:.2f}"
    assert row[1].replace("−", "-") == f"{run['gain'][1]:+.2f}"
    assert page.locator("#client-listens a").all_text_contents()[:2] == [EVIL, "c"]
    drawn = page.evaluate("document.getElementById('client-curves').data.find(each => each.name === 'fedamp').y")
    assert len(drawn) == 8
    assert max(drawn) >= run["scores"][1] - 1e-3
    page.get_by_role("link", name="All clients").click()
    page.wait_for_selector("#overview:not([hidden])")
    assert page.evaluate("document.activeElement.textContent") == "b"  # back where one was


def test_the_address_opens_a_client(open_page):
    page = open_page(at="#client=c", wait="#client-curves .main-svg")
    assert page.inner_text("#h-client") == "c"
    other = open_page(at="#client=nobody")
    assert "No client is called “nobody”" in other.inner_text("#no-client")


def test_a_name_with_markup_is_text_in_its_own_view(open_page):
    page = open_page()
    page.locator("#client-table").get_by_role("link", name=EVIL).click()
    page.wait_for_selector("#client-view:not([hidden])")
    assert page.inner_text("#h-client") == EVIL
    assert page.locator("img").count() == 0


def test_a_click_on_a_bar_opens_the_client(open_page):
    page = open_page()
    page.evaluate("document.getElementById('gain').emit('plotly_click', { points: [{ x: 0 }] })")
    page.wait_for_selector("#client-view:not([hidden])")
    gain = float(page.locator("#client-lead").inner_text().split(", ")[1].split()[0])
    least = page.evaluate("Math.min(...document.getElementById('gain').data[0].y)")
    assert gain == pytest.approx(abs(least), abs=0.005)


def test_a_client_of_another_seed(open_page):
    page = open_page()
    data = page.evaluate("JSON.parse(document.getElementById('data').textContent)[0].methods[0].runs")
    first = page.locator("#client-table tbody tr", has=page.get_by_role("link", name="b", exact=True)).locator("td")
    for run in data:
        page.get_by_label("Seed").select_option(str(run["seed"]))
        assert f"{run['scores'][1]:.2f}" in first.all_text_contents()


@pytest.mark.parametrize("width", [320, 390])
def test_a_client_fits_on_a_phone(open_page, width):
    page = open_page(width, 844, at="#client=b", wait="#client-curves .main-svg", is_mobile=True, has_touch=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_wide_table_says_that_it_can_be_scrolled(open_page):
    page = open_page(390, 844, is_mobile=True, has_touch=True)
    page.wait_for_selector(".wide.scrolls #client-table")
    says = "getComputedStyle(document.getElementById('client-table').parentElement, '::after').content"
    assert "scroll sideways" in page.evaluate(says)
    assert page.evaluate("document.querySelectorAll('.wide:not(.scrolls)').length") < page.locator(".wide").count()


def test_without_scores_there_is_nothing_to_draw_and_who_diverged_loses(browser, tmp_path):
    begun = write_run(tmp_path / "begun" / "a", result=False)
    (begun / "rounds.jsonl").write_text("")
    write_run(tmp_path / "odd" / "s", "separate", 0, [(3.0, None, 1.0)] * 3, metric="rmse")
    write_run(tmp_path / "odd" / "a", "fedamp", 0, [(2.0, None, "inf")] * 3, metric="rmse")
    page, faults = browser.new_page(), []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(write_report([tmp_path / "begun"]).as_uri())
    assert page.locator("#curves").is_hidden()
    assert page.locator("#client-table").is_hidden()
    page.goto(write_report([tmp_path / "odd"]).as_uri())
    page.wait_for_selector("#gain .main-svg", state="attached")
    assert page.inner_text("#gain-note").startswith("1 of 2 clients do worse than alone, 1 better. 1 diverged")
    assert page.locator("#client-table tbody tr").nth(1).inner_text().split("\t")[2:] == ["no score", "no score", "–"]
    page.goto(f"{page.url}#client=client%201")
    page.wait_for_selector("#client-view:not([hidden])")
    assert page.inner_text("#client-lead") == "fedamp: no score."
    assert faults == []
    page.close()
