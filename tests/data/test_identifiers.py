"""Which columns look like identifiers of people, and which don't: few false alarms, so that nobody ignores it."""

import numpy as np
import pytest

from data.silo_files import silo
from fedamp.data.silos.identifiers import check_schemas, number_reason, schema_suspects, word_reason
from fedamp.data.silos.schema import make_schema
from fedamp.errors import UserError

FIRST = ["Anna", "Ben", "Carla", "David", "Emma", "Felix", "Greta", "Hans", "Ida", "Jan"]
LAST = ["Schmidt", "Meyer", "Jones", "Smith", "O'Hara", "Wolf", "Koch", "Bauer", "Müller-Lüdenscheidt", "Frank"]
STREAM = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("words", "rows", "why"),
    [
        ([f"P{i:04}" for i in range(40)], 60, "40 different words in 60 rows"),
        ([f"{a} {b}" for a, b in zip(FIRST, LAST, strict=True)], 400, "names"),
        (["Schmidt, Anna", "Meyer, Ben", "Jones, Carla M."], 400, "names"),
        ([f"{a} {b}" for a in FIRST for b in LAST], 150, "100 different words in 150 rows"),
        (["2024-01-31", "2024-02-28", "1999-12-01 10:30"], 400, "dates"),
        (["31.1.1980", "1.12.80", "7/4/1976", "unknown"], 400, "dates"),
        (["12 March 1980", "Jan 3, 2001"], 400, "dates"),
        (["a@b.org", "c.d@e.com", "none"], 400, "mail addresses"),
        ([f"the patient came in with complaint number {i} and left" for i in range(12)], 400, "texts"),
    ],
)
def test_words_that_look_like_people(words, rows, why):
    assert why in word_reason(words, rows)


@pytest.mark.parametrize(
    ("words", "rows"),
    [
        (["F", "M"], 2),
        (["never smoker", "former smoker", "current smoker"], 300),
        (["Never Smoker", "Former Smoker", "Current Smoker"], 300),
        (["Type A", "Type B", "Type AB", "Type O"], 300),
        ([f"I{i}.{i % 10}" for i in range(10, 60)], 2000),  # codes of diagnoses
        (["North West", "North East", "South West", "South East"], 300),
        (["<5", "5-10", ">10"], 40),
        (["1-2", "3-4"], 40),
        (["Germany", "France", "Spain", "New Zealand", "South Africa"], 100),
        ([f"ward {i}" for i in range(15)], 100),
    ],
)
def test_words_that_do_not(words, rows):
    assert word_reason(words, rows) == ""


def test_words_most_of_which_are_rare():
    words = [f"street {i}" for i in range(30)]
    assert word_reason(words, 1000, rare=16) == "16 of its 30 words are rare"
    assert word_reason(words, 1000, rare=15) == ""
    assert word_reason(words[:9], 1000, rare=9) == ""  # too few to tell; the minimum count keeps them at home


@pytest.mark.parametrize(
    ("column", "values", "why"),
    [
        ("row", np.arange(40), "in sequence"),
        ("x", STREAM.permutation(np.arange(1000, 1040)), "in sequence"),
        ("case", np.cumsum(STREAM.integers(1, 90, 40)), "in sequence"),  # in the order in which they came
        ("x", STREAM.permutation(900_000)[:40] + 100_000, "record numbers"),
        ("patient_id", STREAM.integers(0, 500, 40), "called like a record number"),
        ("patientID", STREAM.integers(0, 500, 40), "called like a record number"),
        ("case_no", STREAM.integers(0, 500, 40), "called like a record number"),
        ("day", 20_240_101 + STREAM.integers(0, 28, 40), "dates"),
    ],
)
def test_numbers_that_look_like_people(column, values, why):
    assert why in number_reason(column, values.astype(np.float64))


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("age", STREAM.integers(18, 90, 40)),
        ("systolic", STREAM.integers(90, 190, 400)),
        ("leukocytes", STREAM.permutation(np.arange(4000, 11_000))[:40]),  # all different, but of no sequence
        ("glucose", STREAM.normal(100, 15, 40)),
        ("income", (STREAM.lognormal(10.5, 0.6, 400) // 10) * 10),
        ("year", STREAM.integers(1990, 2024, 300)),
        ("ward_no", STREAM.integers(1, 9, 40)),
        ("number_of_cells", STREAM.permutation(np.arange(4000, 11_000))[:40]),
        ("fluid", STREAM.integers(0, 2, 40)),  # ends in id
        ("dose", np.array([1.0, 2.0, 3.0])),  # too few rows to tell
    ],
)
def test_numbers_that_do_not(column, values):
    assert number_reason(column, np.asarray(values, dtype=np.float64)) == ""


def test_a_schema_of_an_earlier_version_is_refused():
    names = [f"{a} {b}" for a, b in zip(FIRST, LAST, strict=True)] * 2
    schema = make_schema([silo(np.zeros((20, 0)), [0, 1] * 10, "a", ("who",), who=names)])
    assert schema_suspects(schema) == {"who": "names of people"}
    with pytest.raises(UserError, match=r"'who' in old\.json \(names of people\).*--drop who"):
        check_schemas([schema], ["old.json"])
