"""What was found, in words that the code derives from the results: they stay true as more of them come in."""

from __future__ import annotations

from collections.abc import Sequence

from paper.automatic import standing
from paper.claims import AUTOAMP, CLAIMANTS, CLAIMS, LEVEL, WORSE, Findings, in_the_paper, judge
from paper.markdown import bullet, listed
from paper.outcomes import NOT_RUN, ROWS, mean, scores_of, titled
from paper.published import PAPER, TWELVE, Setting

NEAR = 2.0
"""Points within which a figure is said to agree with the paper's."""

SHOWN = {"table3": "practical", "table2": "pathological", "table1": "IID"}


def found() -> dict[str, str]:
    """Return the parts of the page by the names that page.md has for them."""
    findings = [judge(claim) for claim in CLAIMS]
    best = "The best other has the highest mean on the test samples, which favours it; Holm's correction is over these."
    return {
        "found": "\n".join(
            bullet(each)
            for each in (
                *(sentence(each) for each in findings),
                agreement(),
                f"**AutoAMP against the best other method of each setting**: {standing_in_words()} {best}",
            )
        ),
        "claims": table(findings),
    }


def sentence(found: Findings) -> str:
    """Return a claim and where it holds, for w, which is the model that the paper's figures are of."""
    claim, parts = found.claim, []
    for claimant in ("FedAMP, w", "HeurFedAMP, w"):
        paper, of = in_the_paper(claim, claimant)
        others = "" if claim.only_as_good else f" (the paper's figures: {paper} of {of})"
        parts.append(f"{claimant.replace(', ', chr(39) + 's ')} {_counted(found, claimant)}{others}")
    parts.append(f"AutoAMP, which is ours, {_counted(found, AUTOAMP)}")
    return f"**{claim.words[0].upper()}{claim.words[1:]}** ({', '.join(claim.others)}): {'; '.join(parts)}."


def _counted(found: Findings, claimant: str) -> str:
    holds, complete = found.count(claimant)
    if not complete:
        return "has no complete setting yet"
    settings = len([each for each in TWELVE if each[0] in found.claim.kinds])
    of = f"{settings} settings" if complete == settings else f"{complete} complete settings"
    worse, level = found.where(claimant, WORSE), found.where(claimant, LEVEL)
    rest = f", worse on {_named(worse)}" if worse else ""
    if level and not found.claim.only_as_good:
        rest += f", not told apart on {_named(level)}"
    return f"in {holds} of {of}{rest}"


def _named(settings: Sequence[Setting]) -> str:
    return listed([titled(setting) for setting in settings])


def table(findings: Sequence[Findings]) -> str:
    """Return in how many settings each claim holds, for each model, beside the paper's own figures."""
    lines = [
        "| | " + " | ".join(SHOWN.values()) + " | together | worse in | the paper's figures |",
        "|---|" + "---:|" * (len(SHOWN) + 3),
    ]
    for found in findings:
        claim = found.claim
        lines.append(
            f"| **{claim.words}** ({', '.join(claim.others)}; {found.tests} tests) |" + " |" * (len(SHOWN) + 3)
        )
        for claimant in CLAIMANTS:
            cells = [_of(*found.count(claimant, (kind,))) if kind in claim.kinds else "" for kind in SHOWN]
            cells += [_of(*found.count(claimant)), str(len(found.where(claimant, WORSE)))]
            ours = claimant == AUTOAMP
            cells.append("–" if ours or claim.only_as_good else _of(*in_the_paper(claim, claimant)))
            lines.append(f"| {claimant}{' (ours)' if ours else ''} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _of(part: int, whole: int) -> str:
    return f"{part} of {whole}" if whole else NOT_RUN


def agreement() -> str:
    """Return how many figures agree with the paper's; FedAMP and HeurFedAMP by w."""
    rows = [row for row in ROWS if row.place is not None and not row.name.endswith(", u")]
    apart: dict[Setting, list[float]] = {}
    for kind, data in TWELVE:
        figures = [(row, mean(scores_of(f"{kind}-{data}", row))) for row in rows]
        apart[kind, data] = [
            float(ours) - PAPER[kind][data][row.place]
            for row, ours in figures
            if ours != NOT_RUN and row.place is not None
        ]
    every = [points for each in apart.values() for points in each]
    by_kind = [
        f"{_near([points for (kind, _), each in apart.items() if kind == table for points in each])} {SHOWN[table]}"
        for table in SHOWN
    ]
    given = apart["table3", "emnist"]
    return (
        f"**Beside the paper's figures.** Of the {len(rows) * len(TWELVE)} figures of Tables 1 to 3, {len(every)} were "
        f"measured here (FedAMP's and HeurFedAMP's w). {_near(every)} are within {NEAR:g} points of the paper's "
        f"({listed(by_kind)}), {sum(points > NEAR for points in every)} are higher and "
        f"{sum(points < -NEAR for points in every)} lower. In EMNIST's practical setting, the one that the paper gives "
        f"in full, {_near(given)} are within {NEAR:g} points, {sum(points > NEAR for points in given)} higher and "
        f"{sum(points < -NEAR for points in given)} lower."
    )


def _near(points: Sequence[float]) -> str:
    return f"{sum(abs(each) <= NEAR for each in points)} of {len(points)}"


def standing_in_words() -> str:
    """Return where AutoAMP leads, is level or is behind, against the best other method of each setting."""
    found = standing()
    parts = [
        f"{words} {len(settings)}{' (' + ', '.join(settings) + ')' if settings else ''}"
        for words, settings in (
            ("it leads in", found.leads),
            ("is not told apart in", found.level),
            ("is behind in", found.behind),
        )
    ]
    complete = len(found.leads) + len(found.level) + len(found.behind)
    if not complete:
        return "no setting is complete yet."
    of = f"{len(TWELVE)} settings" if complete == len(TWELVE) else f"{complete} complete settings"
    return f"of {of}, {listed(parts)}."
