"""The live pages in a real browser while a federation runs: a silo leaves and returns, and nobody reloads."""

import contextlib
import os
import threading

import pytest

from browsing import browser as browser
from fedamp.errors import UserError
from fedamp.federation.processes import locks
from fedamp.federation.processes.ports import check_port
from fedamp.federation.processes.waiting import wait_until
from fedamp.federation.server import live as server_live
from fedamp.federation.silo import live as silo_live
from fedamp.federation.watch.page import resources
from fedamp.federation.watch.serving import Watcher
from federation.watched import Watched

pytestmark = pytest.mark.slow
LONG = "the-university-hospital-of-a-place-with-a-rather-long-name-department-of-cardiology"
NAMES = ["zebra-clinic", "yak-hospital", LONG]
SOON = 30_000
"""Milliseconds that a page has to show something."""


class EndedError(Exception):
    """The test has seen enough."""


class Running(Watched):
    """A federation that is played in a thread, slowly enough to be watched; `away` are the silos that are offline."""

    def __init__(self, folder):
        super().__init__(folder, NAMES, self.slowly, alone=[0], rounds=60, validation=0.25)
        self.away, self.enough = set(), threading.Event()
        self.online = lambda: [i for i in range(len(NAMES)) if i not in self.away]

    def slowly(self, number, reply):
        if self.enough.wait(0.1):
            raise EndedError
        return reply

    def play(self):
        with contextlib.suppress(EndedError):
            super().play()


@pytest.fixture
def running(tmp_path):
    made = Running(tmp_path)
    thread = threading.Thread(target=made.play)
    with locks.only_one(tmp_path / "server/run/up.lock", "it"):
        thread.start()
        yield made
        made.away.clear()
        made.enough.set()
        thread.join(60)
        assert not thread.is_alive()


@contextlib.contextmanager
def served(view, port=0, secret=None):
    """Serve a page as `watch` does; with the secret of one that has ended, at the same address."""
    with Watcher(resources(view), port) as watcher:
        watcher.secret = secret or watcher.secret
        thread = threading.Thread(target=watcher.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield watcher
        finally:
            watcher.shutdown()
            thread.join(10)


@pytest.fixture
def opened(browser):
    """Return a function that opens an address; at the end nothing must have gone wrong in any page."""
    faults, contexts = [], []

    def open_page(address, width=1280, scheme="light"):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda asked: None if asked.url.startswith((address, "data:")) else faults.append(asked.url))
        page.goto(address)
        page.evaluate("window.sameAsBefore = true")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert faults == []


def until(page, true: str) -> None:
    """Wait for something to become true on a page. Playwright's own way evaluates text, which the page forbids."""
    assert wait_until(lambda: page.evaluate(true) or page.wait_for_timeout(100), SOON / 1000, 0), true


def test_a_silo_leaves_and_returns(running, opened):
    with served(server_live.view(running.folder)) as watcher:
        page = opened(watcher.address)
        state = page.locator("tr", has_text="yak-hospital").locator(".state").first
        until(page, "document.querySelector('#curves')?.data?.[0].x.length >= 2")
        assert state.inner_text() == "in"
        assert "is under way" in page.inner_text(".lead")
        running.away.add(1)
        page.wait_for_selector(".state[data-state=missing]", timeout=SOON)
        assert state.inner_text() == "missing"
        seen = page.locator("tr", has_text="yak-hospital").locator("time").first
        assert "ago" in seen.inner_text()
        running.away.clear()
        page.wait_for_selector(".state[data-state=missing]", state="detached", timeout=SOON)
        assert state.inner_text() == "in"
        page.wait_for_selector("#xi .heatmaplayer image", state="attached", timeout=SOON)
        shown = int(page.inner_text("#xi-shown"))
        until(page, f"Number(document.querySelector('#xi-shown').textContent) > {shown}")
        # A slider that was moved stays where it is; a curve that was hidden stays hidden.
        page.focus("#xi-round")
        page.keyboard.press("Home")
        page.get_by_label("zebra-clinic", exact=True).uncheck()
        rounds = page.evaluate("document.querySelector('#curves').data[0].x.length")
        until(page, f"document.querySelector('#curves').data[0].x.length > {rounds}")
        assert page.inner_text("#xi-shown") == "1"
        assert "zebra-clinic" not in page.evaluate("document.querySelector('#curves').data.map(each => each.name)")
        assert page.evaluate("window.sameAsBefore")


def port_that_no_connection_takes() -> int:
    """Return a free port below those that the system gives to connections: it is still free when it is served again."""
    for port in range(20_000 + os.getpid() % 5_000, 30_000):
        with contextlib.suppress(UserError):
            check_port("127.0.0.1", port)
            return port
    raise AssertionError("no port is free")


def test_what_the_page_says_when_nobody_answers(running, opened):
    view = server_live.view(running.folder)
    with served(view, port_that_no_connection_takes()) as first:
        page = opened(first.address)
        page.wait_for_selector("progress", timeout=SOON)
        assert page.locator("#banner").is_hidden()
    page.wait_for_selector("#banner:has-text('Not reachable since')", timeout=SOON)
    assert page.locator("progress").is_visible()  # what was known stays
    with served(view, first.port, first.secret):
        page.wait_for_selector("#banner", state="hidden", timeout=SOON)
    assert page.evaluate("window.sameAsBefore")


def test_a_federation_that_is_stopped_and_started(tmp_path, opened):
    made = Watched(tmp_path, NAMES, rounds=2)
    made.serve(rounds=1)
    with served(server_live.view(tmp_path)) as watcher:
        page = opened(watcher.address)
        (tmp_path / "record/status.json").write_text(
            (tmp_path / "record/status.json").read_text().replace("finished", "running")
        )
        page.wait_for_selector(".lead:has-text('is not running')", timeout=SOON)
        with locks.only_one(tmp_path / "server/run/up.lock", "it"):
            page.wait_for_selector(".lead:has-text('is under way')", timeout=SOON)
        page.wait_for_selector(".lead:has-text('is not running')", timeout=SOON)
        assert page.evaluate("window.sameAsBefore")


def test_a_silos_page_follows_its_own_rounds(running, opened):
    with served(silo_live.view(running.bundle(0))) as watcher:
        page = opened(watcher.address)
        until(page, "document.querySelector('#curves')?.data?.length === 4")
        rounds = page.evaluate("document.querySelector('#curves').data[0].x.length")
        until(page, f"document.querySelector('#curves').data[0].x.length > {rounds}")
        text = page.content() + page.evaluate("JSON.stringify(document.querySelector('#curves').data)")
        assert "zebra-clinic" in text
        assert not [name for name in NAMES[1:] if name in text]


def test_no_sideways_scrolling(running, opened):
    for view in (server_live.view(running.folder), silo_live.view(running.bundle(2))):
        with served(view) as watcher:
            for width, scheme in ((320, "dark"), (390, "light"), (1280, "dark")):
                page = opened(watcher.address, width, scheme)
                page.wait_for_selector("#curves .main-svg", timeout=SOON)
                assert page.evaluate("document.documentElement.scrollWidth") <= width
                right = page.evaluate("document.querySelector('#curves .main-svg').getBoundingClientRect().right")
                assert right <= width
                bare = "[...document.querySelectorAll('input')].filter(each => !each.labels.length).length"
                assert page.evaluate(bare) == 0
