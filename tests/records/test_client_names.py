"""A client is meant by its name or its number, and the two are never mixed up in silence."""

import pytest

from fedamp.errors import UserError
from fedamp.records.client_names import client_number, client_title, name_or_number_note

HOSPITALS = ["10", "2", "hospital-a"]


@pytest.mark.parametrize(
    ("client", "number"), [("hospital-a", 2), ("10", 0), ("2", 1), (2, 2), (0, 0), ("1", 1), ("0", 0)]
)
def test_a_text_is_a_name_first(client, number):
    assert client_number(client, HOSPITALS, 3) == number


@pytest.mark.parametrize("client", ["hospital-b", "3", "-1", 3, -1, "", "1.0", 1.0, True, None, "²"])
def test_others_are_one_line_with_the_choices(client):
    with pytest.raises(UserError, match=r"expected '10', '2', 'hospital-a', or a number from 0 to 2$"):
        client_number(client, HOSPITALS, 3)


def test_the_nearest_name_is_suggested():
    with pytest.raises(UserError, match=r"client is 'hospitl-a' \(did you mean 'hospital-a'\?\)"):
        client_number("hospitl-a", HOSPITALS, 3)
    with pytest.raises(UserError, match=r"client is 5; expected a number from 0 to 4$"):
        client_number(5, None, 5)
    with pytest.raises(UserError, match=r"client is 1; the only client is number 0$"):
        client_number(1, None, 1)
    with pytest.raises(UserError, match=r"'11' and 3 more, or"):
        client_number("x", [str(i) for i in range(15)], 15)


def test_where_a_name_is_another_clients_number_it_is_said():
    said = name_or_number_note("2", HOSPITALS, 3)
    assert said == "client '2' is the one of that name, number 1; the client with number 2 is 'hospital-a'"
    for client in ("10", "hospital-a", "1", 2, None):
        assert not name_or_number_note(client, HOSPITALS, 3)
    assert not name_or_number_note("1", ["0", "1"], 2), "both ways it is the same client"
    assert client_title(1, HOSPITALS) == "client '2'"
    assert client_title(1, None) == "client 1"
