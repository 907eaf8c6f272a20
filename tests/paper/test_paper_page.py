"""The page of the paper's re-run says what results/ says."""

import pytest

from fedamp.config import Named
from paper import automatic, facts, outcomes, page, provenance, results, run


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


def test_the_readmes_sentences_follow_from_the_results():
    """They stand outside of the part that is written, since they say in words what several figures mean."""
    text = " ".join(page.README.read_text(encoding="utf-8").split())
    lines = [line.split(" | ") for line in automatic.automatic().splitlines()[2:] if "CIFAR100" not in line]
    brief, behind = {}, []
    for setting, w, u, best, _, minus in lines:
        ours = float(next(cell for cell in (w, u) if cell.startswith("**")).strip("*").split(" ")[0])
        brief[setting.removeprefix("| ")] = ours - float(best.split(" ")[0])
        behind += [minus.removesuffix(" |").removeprefix("-")] if "iid" in setting else []
    lead = brief.pop("EMNIST, practical")
    assert f"{lead:.1f} above it on EMNIST's groups" in text
    least = -min(brief.values())
    assert f"never more than {least:.2f} points below" in text or f"never more than {least + 0.005:.2f} points" in text
    assert f"{behind[0]}, {behind[1]} and {behind[2]} below" in text
    found = {name: str(value) for name, value in facts.facts().items()}
    assert f"(and {float(found['auto_over_no_oracle'].split(' ')[0]):.1f} above FedAMP in 18 rounds" in text
    as_brief = float(found["auto_brief"]) - float(found["emnist_no_oracle_received"])
    assert f"{as_brief:.1f} if AutoAMP has 18 too" in text


def test_which_runs_were_made_otherwise_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    made = {"torch": "2", "stopped": None, "own": {"curve": [1.0]}}
    for label, device, asked, more in (
        ("fedavg-seed0", "NVIDIA H200", "bf16", {}),
        ("fedavg-seed1", "NVIDIA H200", "auto", {"precision": "bf16"}),
        ("fedavg-seed2", "NVIDIA H200", "auto", {}),  # from before a result said it
        ("apfl-mixture-0.1-seed0", "CPU, x86_64", "auto", {"stopped": outcomes.OUT_OF_TIME}),
    ):
        result = {**made, "device": device, "description": {"precision": asked}, **more}
        results.write(results.path_of("table1-mnist", label), result)
    said = provenance.provenance()
    assert "2 runs on NVIDIA H200, torch 2, bf16" in said["surroundings"]
    assert "NVIDIA H200 in tf32: table1-mnist (fedavg-seed2)" in said["made_otherwise"]
    assert "CPU, x86_64 in fp32: table1-mnist (apfl-mixture-0.1-seed0)" in said["made_otherwise"]
    assert said["out_of_time"] == "MNIST IID apfl-mixture-0.1-seed0 (round 1)"


def test_a_score_that_the_clock_cut_off_is_marked():
    one = {"best": 76.24, "run": {"stopped": outcomes.OUT_OF_TIME}}
    assert outcomes.score({0: one}) == "76.24†"
    assert outcomes.score({0: {**one, "run": {"stopped": "40 rounds brought no better mean"}}}) == "76.24"


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
    auto = {**result, "description": {**result["description"], "method": {"name": "autoamp"}}}  # which has no sigma

    def scores_of(table, row):
        kept = {"fedamp": result, "fedamp-local": local, "autoamp": auto}.get(row.run)
        return {0: {**kept[row.entry], "run": kept}} if kept and table == "table3-emnist" else {}

    monkeypatch.setattr(figures, "scores_of", scores_of)
    monkeypatch.setattr(results, "RESULTS", kept_results)
    monkeypatch.setattr(figures, "IMAGES", tmp_path / "images")
    (tmp_path / "images").mkdir()
    figures.draw_all()
    drawn = {path.stem for path in (tmp_path / "images").iterdir()}
    assert drawn == {"theorems", "panels", "curves-emnist", "distributions-emnist", "weights-emnist"}
