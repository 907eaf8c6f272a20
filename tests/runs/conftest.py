import pytest

from runs.hospitals import run_hospitals


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    """A folder with a run over three hospitals, to be read only."""
    folder = tmp_path_factory.mktemp("classes")
    run_hospitals(folder)
    return folder
