"""The page of the paper's re-run says what results/ says."""

import pytest

from fedamp.config import Named
from paper import page, results, run


def test_the_page_is_what_the_results_say():
    assert page.PAGE.read_text(encoding="utf-8") == page.page(), "run: python -m paper.page"
    assert page.README.read_text(encoding="utf-8") == page.readme(), "run: python -m paper.page"
    assert "| Separate |" in page.README.read_text(encoding="utf-8")


def test_where_nothing_was_run_the_page_says_so(tmp_path, monkeypatch):
    (tmp_path / "theorems.json").write_text(results.theorems_path().read_text())
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    assert "| Separate | not run | 86.30 |" in page.page()
    assert "FedAMP's w has no complete setting yet" in page.page().replace("\n  ", " ")
    assert "| Separate | not run (86.30) | not run (86.73) |" in page.readme()
    assert "AutoAMP against the best other method: no setting is complete yet." in page.readme()


@pytest.mark.slow
def test_the_panels_show_all_methods_in_all_twelve_settings(monkeypatch):
    pytest.importorskip("matplotlib").use("agg")
    from paper import figures

    drawn = []
    monkeypatch.setattr(figures, "scores_of", lambda table, row: {0: {"best": 90.0}, 1: {"best": 91.0}})
    monkeypatch.setattr(figures, "_save", lambda figure, name: drawn.append(figure))
    figures.panels()
    axes = drawn[0].axes
    assert len(axes) == 12
    assert not [axis.get_title() for axis in axes if "not run" in axis.get_title()]
    assert [text.get_text() for text in axes[0].get_yticklabels()][:2] == ["AutoAMP (ours), u", "AutoAMP (ours), w"]
    for axis in axes:  # eleven rows of the paper's, AutoAMP's two, and a ring around the one that clients take home
        assert [len(lines.lines[0].get_xdata()) for lines in axis.containers] == [11, 2]
        assert len(axis.collections[-1].get_offsets()) == 1


@pytest.mark.slow
def test_every_figure_is_drawn_where_there_are_results(tmp_path, monkeypatch, digits):
    kept_results = page.ROOT / "results"  # of the theorems
    pytest.importorskip("matplotlib").use("agg")
    from paper import figures

    cell = digits(Named("fedamp", {"sigma": 10.0}))
    result = run.Runner().play(cell)
    local = {**result, "description": {**result["description"], "method": {"name": "fedamp", "sigma": "local"}}}

    def scores_of(table, row):
        kept = {"fedamp": result, "fedamp-local": local}.get(row.run)
        return {0: {**kept[row.entry], "run": kept}} if kept and table == "table3-emnist" else {}

    monkeypatch.setattr(figures, "scores_of", scores_of)
    monkeypatch.setattr(results, "RESULTS", kept_results)
    monkeypatch.setattr(figures, "IMAGES", tmp_path / "images")
    (tmp_path / "images").mkdir()
    figures.draw_all()
    drawn = {path.stem for path in (tmp_path / "images").iterdir()}
    assert drawn == {"theorems", "panels", "curves-emnist", "distributions-emnist", "weights-emnist"}
