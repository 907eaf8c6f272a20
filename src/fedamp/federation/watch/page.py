"""A live page: its frame is sent once; what it says and what it draws are asked for again and again."""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedamp.errors import UserError
from fedamp.federation.processes import launch, locks
from fedamp.federation.watch.serving import METRICS, Resource, Watcher
from fedamp.federation.watch.tokens import read_token
from fedamp.report.page import asset, plotly, templates

HERE, MACROS = "fedamp.federation.watch", "live_macros.html"
NOT_MORE_OFTEN = 1.0
"""Seconds between two looks at the files, however many ask."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class Look:
    """What there was to see at one moment."""

    overview: Mapping[str, Any]  # what `status --json` prints
    values: Mapping[str, Any] = field(default_factory=dict)  # for the page's template
    plots: Mapping[str, Any] = field(default_factory=dict)  # as live.js draws them
    fault: str = ""  # why there is nothing to see


@dataclass(frozen=True)
class View:
    """Who looks at what: `kind` is "server" or "silo", and names the templates."""

    kind: str
    title: str
    look: Callable[[], Look]
    places: Sequence[Path]  # the files and folders that a look depends on: if none has changed, nor has what is seen
    lock: Path  # held while what is looked at is running
    metrics: Callable[[Mapping[str, Any]], bytes]


def watch(view: View, port: int, token_file: Path | None, say: Say) -> None:
    """Serve a page until Ctrl-C."""
    token = None if token_file is None else read_token(token_file)
    with Watcher(resources(view), port, token) as watcher, launch.ending_in_order():
        say(f"the page is at {watcher.address}")
        say("whoever has this address may read it; press Ctrl-C to end")
        try:
            watcher.serve_forever()
        except KeyboardInterrupt:
            say("ended")


def resources(view: View) -> dict[str, Resource]:
    """Return all that a page consists of, by name."""
    look = _shared(view)
    script, style = "text/javascript; charset=utf-8", "text/css; charset=utf-8"
    frame = templates(HERE, "fedamp.report").get_template(f"{view.kind}_page.html").render(title=view.title)
    fixed = {
        "": ("text/html; charset=utf-8", frame),
        "page.css": (style, asset("page.css") + asset("live.css", HERE)),
        "plotly.js": (script, plotly()),
        "charts.js": (script, asset("charts.js")),
        "live.js": (script, asset("live.js", HERE)),
    }
    found = {name: _fixed(kind, text) for name, (kind, text) in fixed.items()}
    found["data.json"] = Resource("application/json", lambda: _json(_page_data(view, look())))
    found["status.json"] = Resource("application/json", lambda: _json(look().overview))
    # The version is part of the type by which Prometheus knows the format.
    found[METRICS] = Resource("text/plain; version=0.0.4; charset=utf-8", lambda: view.metrics(look().overview))
    return found


def _fixed(kind: str, text: str) -> Resource:
    data = text.encode()
    return Resource(kind, lambda: data)


def _json(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


def _page_data(view: View, look: Look) -> dict[str, Any]:
    """Return the page's parts as HTML, with all values escaped, and what its plots show."""
    if look.fault:
        return {"fault": look.fault, "parts": {}, "plots": {}}
    environment = templates(HERE, "fedamp.report")
    template, macros = environment.get_template(f"{view.kind}_parts.html"), environment.get_template(MACROS).module
    context = template.new_context({"overview": look.overview, "live": macros, **look.values})
    parts = {name: "".join(block(context)) for name, block in template.blocks.items()}
    return {"fault": "", "parts": parts, "plots": dict(look.plots)}


def _shared(view: View) -> Callable[[], Look]:
    """Return the same look to all who ask within a second, or until something has changed."""
    turn, last, at, known = threading.Lock(), Look({}), -math.inf, None

    def now() -> Look:
        nonlocal last, at, known
        with turn:
            if time.monotonic() - at >= NOT_MORE_OFTEN:
                found = locks.holder(view.lock), [_stamp(place) for place in view.places]
                if found != known:
                    last, known = _look(view), found
                at = time.monotonic()
            return last

    return now


def _look(view: View) -> Look:
    """Look; a folder that can't be read is a fault to show."""
    try:
        return view.look()
    except UserError as error:
        return Look({"fault": str(error)}, fault=str(error))


def _stamp(place: Path) -> object:
    """Return what changes with a file, or with the files in a folder."""
    try:
        if place.is_dir():
            return sorted((entry.name, entry.stat().st_mtime_ns, entry.stat().st_size) for entry in os.scandir(place))
        return place.stat().st_mtime_ns, place.stat().st_size
    except OSError:  # not there, or deleted at this very moment
        return None
