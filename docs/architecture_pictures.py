"""Draw the two pictures of docs/architecture.md: `python docs/architecture_pictures.py`.

They are plain SVG, written here by hand: boxes with a title, the files that do the work, and a line of explanation.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

IMAGES = Path(__file__).parent / "images"
# Fill and outline.
BLUE, GREEN = ("#e8f0fb", "#3b6fb6"), ("#e9f5ec", "#3f8f58")
AMBER, GREY = ("#fdf3e1", "#c08a2b"), ("#f3f4f6", "#6b7280")


@dataclass(frozen=True)
class Box:
    """One step: where it stands, what it is called, which files do it, and what it does."""

    x: int
    y: int
    width: int
    height: int
    title: str
    files: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    colour: tuple[str, str] = BLUE

    def svg(self) -> str:
        """Return the box."""
        fill, outline = self.colour
        middle = self.x + self.width / 2
        y = self.y + (self.height - 18 * len(self.files + self.text)) // 2 + 5
        parts = [
            f'<rect x="{self.x}" y="{self.y}" width="{self.width}" height="{self.height}" rx="8" '
            f'fill="{fill}" stroke="{outline}" stroke-width="1.5"/>',
            f'<text x="{middle:g}" y="{y}" class="title">{escape(self.title)}</text>',
        ]
        for kind, lines in (("file", self.files), ("text", self.text)):
            for line in lines:
                y += 18
                parts.append(f'<text x="{middle:g}" y="{y}" class="{kind}">{escape(line)}</text>')
        return "\n".join(parts)


def arrow(*points: tuple[int, int], label: str = "", at: tuple[int, int] | None = None, dashed: bool = False) -> str:
    """Return a line through points with a head at its end, and a word beside it."""
    path = "M " + " L ".join(f"{x} {y}" for x, y in points)
    dash = ' stroke-dasharray="5 4"' if dashed else ""
    line = f'<path d="{path}" fill="none" stroke="#374151" stroke-width="1.6"{dash} marker-end="url(#head)"/>'
    if not label or at is None:
        return line
    word = f'<text x="{at[0]}" y="{at[1]}" class="label">{escape(label)}</text>'
    if dashed:  # the word stands on the line: give it a ground of its own
        width = 7 * len(label) + 12
        word = f'<rect x="{at[0] - width // 2}" y="{at[1] - 15}" width="{width}" height="22" fill="#fafafa"/>{word}'
    return f"{line}\n{word}"


def frame(x: int, y: int, width: int, height: int, title: str) -> str:
    """Return a large frame with a heading in its upper left corner."""
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="12" fill="#fafafa" stroke="#9ca3af" '
        f'stroke-width="1.2"/>\n<text x="{x + 16}" y="{y + 26}" class="heading">{escape(title)}</text>'
    )


def file_name(x: int, y: int, name: str) -> str:
    """Return a file's name outside of a box."""
    return f'<text x="{x}" y="{y}" class="file">{escape(name)}</text>'


STYLE = """\
text { font-family: Helvetica, Arial, sans-serif; text-anchor: middle; fill: #111827 }
.title { font-size: 15px; font-weight: bold }
.file { font-size: 13px; font-family: Menlo, Consolas, monospace; fill: #1f4e8c }
.text { font-size: 13px; fill: #374151 }
.label { font-size: 13px; font-style: italic; fill: #374151 }
.heading { font-size: 14px; font-weight: bold; text-anchor: start; fill: #4b5563 }"""


def picture(width: int, height: int, description: str, *parts: str) -> str:
    """Return a whole SVG file."""
    head = (
        '<marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M 0 0 L 10 5 L 0 10 z" fill="#374151"/></marker>'
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" role="img">',
            f"<title>{escape(description)}</title>",
            f"<style>\n{STYLE}\n</style>",
            f"<defs>{head}</defs>",
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
            *parts,
            "</svg>\n",
        ]
    )


RUN_ASKED = [
    Box(30, 30, 270, 76, "A command, or fedamp.run", ("cli/run.py",), ("flags, a TOML file, a preset",), GREY),
    Box(365, 30, 270, 76, "RunConfig", ("config/run_config.py",), ("what is asked for, checked",)),
    Box(700, 30, 270, 76, "Setup", ("runs/setup.py",), ("what is needed, ready to play",)),
]
RUN_NEEDED = [
    Box(30, 166, 220, 76, "Clients", ("data/clients.py",), ("whose samples are whose",), GREEN),
    Box(270, 166, 220, 76, "First models", ("models/flat_model.py",), ("one row for each client",), GREEN),
    Box(510, 166, 220, 76, "Method", ("methods/base.py",), ("a server half, a client half",), GREEN),
    Box(750, 166, 220, 76, "Trainer", ("training/trainer.py",), ("model, optimiser, batches",), GREEN),
]
RUN_STEPS = [
    Box(48, 340, 166, 94, "server_send", ("methods/",), ("the server mixes: a", "message for each client"), AMBER),
    Box(232, 340, 166, 94, "client_update", ("methods/", "training/local.py"), ("on own samples only",), AMBER),
    Box(416, 340, 166, 94, "check", ("runs/reply_checks.py",), ("a reply that can't", "be used is refused"), AMBER),
    Box(600, 340, 166, 94, "server_receive", ("methods/",), ("the server takes", "the replies"), AMBER),
    Box(
        784,
        340,
        168,
        94,
        "score",
        ("training/evaluate.py",),
        ("own model,", "received model"),
        AMBER,
    ),
]
RUN_LEFT = [
    Box(30, 570, 280, 76, "Run folder", ("records/folder.py",), ("rounds, models, weights",), GREY),
    Box(360, 570, 280, 76, "Table and page", ("report/table.py", "report/page.py"), (), GREY),
    Box(690, 570, 280, 76, "A client's model", ("runs/in_use/export.py",), ("for use elsewhere",), GREY),
]


def way_of_a_run() -> str:
    """Return the first picture: from a command to a record, a page and a model."""
    return picture(
        1000,
        690,
        "The way of a run: a command becomes a RunConfig, then a Setup of clients, first models, method and trainer. "
        "Each round goes from server_send over client_update, check and server_receive to score. The run folder keeps "
        "it; tables, the page and exported models are made from the folder.",
        frame(30, 300, 940, 204, "A round, again and again"),
        file_name(310, 326, "runs/loop.py"),
        file_name(430, 326, "runs/round.py"),
        *(box.svg() for box in (*RUN_ASKED, *RUN_NEEDED, *RUN_STEPS, *RUN_LEFT)),
        arrow((300, 68), (362, 68)),
        arrow((635, 68), (697, 68)),
        *(arrow((x, 166), (x, 138), (835, 138), (835, 109)) for x in (140, 380, 620, 860)),
        arrow((970, 68), (986, 68), (986, 272), (500, 272), (500, 297)),
        *(arrow((x, 387), (x + 16, 387)) for x in (214, 398, 582, 766)),
        arrow((868, 434), (868, 468), (131, 468), (131, 437), label="the next round", at=(500, 488)),
        arrow((170, 504), (170, 567), label="a line for each round", at=(248, 541)),
        arrow((310, 608), (357, 608)),
        arrow((170, 646), (170, 668), (830, 668), (830, 649)),
    )


REPLY_SERVER = [
    Box(50, 70, 300, 76, "Who takes part", ("federation/server/attendance.py",), ("known, online, not set aside",)),
    Box(50, 176, 300, 76, "The server's rows", ("federation/server/state.py",), ("server_send: a message each",)),
    Box(
        50,
        560,
        300,
        94,
        "Read, one by one",
        ("federation/server/strategy.py",),
        ("whose reply to which message;", "a bad one stops nobody else"),
    ),
    Box(50, 684, 300, 76, "Contents", ("federation/wire/reply_form.py",), ("counts, metrics, variances",), AMBER),
    Box(50, 790, 300, 76, "Size", ("runs/reply_checks.py",), ("how far from what was sent",), AMBER),
    Box(50, 896, 300, 76, "Taken", ("federation/server/state.py",), ("server_receive",)),
    Box(50, 1002, 300, 76, "On record", ("federation/server/record.py",), ("a run folder like any other",), GREY),
]
REPLY_WIRE = [
    Box(405, 176, 230, 76, "Rows as bytes", ("federation/wire/encoding.py",), ("over Flower, with TLS",), GREEN),
    Box(
        405,
        569,
        230,
        76,
        "Rows as bytes",
        ("federation/wire/encoding.py",),
        ("names, shapes, finite",),
        GREEN,
    ),
]
REPLY_SILO = [
    Box(690, 176, 300, 76, "The silo's own app", ("federation/silo/node.py",), ("never code from the server",)),
    Box(690, 272, 300, 76, "Does it fit?", ("federation/silo/app.py",), ("the plan, the message, its age",), AMBER),
    Box(690, 368, 300, 76, "One round at home", ("federation/silo/round.py",), ("client_update, then scores",)),
    Box(690, 464, 300, 76, "Kept at home", ("federation/silo/memory.py",), ("what the next round needs",), GREY),
    Box(
        690,
        560,
        300,
        94,
        "The reply",
        ("federation/silo/app.py", "federation/wire/allowed_metrics.py"),
        ("rows, and numbers that may leave",),
    ),
]
REPLY_REFUSED = Box(
    405, 737, 230, 76, "Not taken", (), ("a strike; after a few in a row", "the silo is set aside"), GREY
)


def way_of_a_reply() -> str:
    """Return the second picture: a federation's message to a silo, and the way of the reply back."""
    return picture(
        1020,
        1120,
        "The way of a reply: the server's rows are encoded and sent to a silo. The silo's own app checks the message, "
        "plays one round at home and sends back rows and a few agreed numbers. The server reads each reply, checks its "
        "contents and its size, takes it or sets its silo aside, and writes the round on record.",
        frame(15, 20, 350, 1085, "Server"),
        frame(675, 126, 330, 544, "Silo"),
        *(box.svg() for box in (*REPLY_SERVER, *REPLY_WIRE, *REPLY_SILO, REPLY_REFUSED)),
        arrow((200, 146), (200, 173)),
        arrow((350, 214), (402, 214)),
        arrow((635, 214), (687, 214)),
        *(arrow((840, y), (840, y + 17)) for y in (252, 348, 444, 540)),
        arrow((690, 607), (638, 607)),
        arrow((405, 607), (353, 607)),
        arrow((200, 252), (200, 557), label="waits, but not forever", at=(200, 400), dashed=True),
        *(arrow((200, y), (200, y + 27)) for y in (654, 760, 866, 972)),
        arrow((350, 722), (385, 722), (385, 764), (402, 764), dashed=True),
        arrow((350, 828), (385, 828), (385, 786), (402, 786), dashed=True),
        arrow((50, 1040), (32, 1040), (32, 108), (47, 108)),
    )


if __name__ == "__main__":
    for name, text in {"way-of-a-run": way_of_a_run(), "way-of-a-reply": way_of_a_reply()}.items():
        (IMAGES / f"{name}.svg").write_text(text, encoding="utf-8")
