"""Take the pictures of a report in docs/use.md: `python docs/report_pictures.py` (needs playwright and chromium).

On a laptop the first part of the page, down to the table of clients; on a phone one client by itself.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Browser, Page, sync_playwright

IMAGES = Path(__file__).parent / "images"
COMPARE = "compare --methods separate,fedavg-ft,scaffold,fedamp,autoamp --seeds 3 --rounds 40"


def main() -> None:
    """Compare some methods on the digits, and take both pictures of the report."""
    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        fedamp(*COMPARE.split(), "--out", folder)
        fedamp("report", folder)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        address = (Path(folder) / "report.html").as_uri()
        laptop = opened(browser, address, 1280)
        height = laptop.evaluate("document.getElementById('client-table').parentElement.getBoundingClientRect().bottom")
        clip = {"x": 0, "y": 0, "width": 1280, "height": height + 6}
        laptop.screenshot(path=IMAGES / "report-laptop.png", full_page=True, clip=clip)  # type: ignore[arg-type]
        phone = opened(browser, f"{address}#client=client%207", 390)
        phone.screenshot(path=IMAGES / "report-phone.png", full_page=True)
        browser.close()


def fedamp(*arguments: str) -> None:
    """Run a command of fedamp."""
    subprocess.run([sys.executable, "-m", "fedamp", *arguments], check=True)


def opened(browser: Browser, address: str, width: int) -> Page:
    """Return the page in a window of this width, once it is drawn."""
    small = width < 600
    page = browser.new_page(viewport={"width": width, "height": 900}, is_mobile=small, has_touch=small)
    page.goto(address)
    page.wait_for_timeout(1500)
    return page


if __name__ == "__main__":
    main()
