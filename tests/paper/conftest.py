import pytest

from fedamp.config import Named
from paper import results
from paper.experiments import Cell


@pytest.fixture
def digits(tmp_path, monkeypatch):
    """Return a maker of short runs on the digits, whose results are kept in an empty folder."""
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results")
    values = {"clients": 5, "rounds": 6, "epochs": 1, "setting": Named("practical", {"groups": 2})}

    def cell(method: str, patience: int | None = None, **more) -> Cell:
        return Cell("digits", f"{method}-seed0", {**values, **more, "method": method}, patience)

    return cell
