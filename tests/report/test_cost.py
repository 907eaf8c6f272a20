"""What travels and how long it takes, as the page has it: from the rounds' lines, or not at all."""

import json

from fedamp.records.reading import read_runs
from fedamp.report.cost import costs
from fedamp.report.groups import make_blocks
from run_folders import write_run


def with_bytes(folder, down, up):
    """Write into the lines of the rounds that were played what travelled."""
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    for line in lines[1:]:
        line["bytes"] = {"down": down * line["round"], "up": up * line["round"]}
    (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def cells(folder):
    table = costs(make_blocks(read_runs(folder)))[0]
    return [dict(zip(table.headings, line.cells, strict=True)) for line in table.lines]


def test_megabytes_and_seconds_are_those_of_the_lines(tmp_path):
    with_bytes(write_run(tmp_path / "a", "fedamp"), down=4_000_000, up=2_000_000)
    found = cells(tmp_path)[0]
    assert found["rounds"] == "2"
    assert (found["MB up a round"], found["MB down a round"], found["MB in all"]) == ("3", "6", "18")
    assert (found["seconds a round"], found["seconds in all"]) == ("1", "2")


def test_means_are_over_seeds_and_nothing_sent_is_not_nothing_noted(tmp_path):
    with_bytes(write_run(tmp_path / "s", "separate"), down=0, up=0)
    with_bytes(write_run(tmp_path / "a0", "fedamp", 0), down=1_000_000, up=1_000_000)
    with_bytes(write_run(tmp_path / "a1", "fedamp", 1), down=3_000_000, up=3_000_000)
    write_run(tmp_path / "old", "apfl")
    separate, apfl, fedamp = cells(tmp_path)
    assert separate["MB in all"] == "0"
    assert fedamp["MB up a round"] == "3"
    assert fedamp["MB in all"] == "12"
    assert apfl["MB up a round"] == apfl["MB in all"] == "–"
    assert apfl["seconds a round"] == "1"
