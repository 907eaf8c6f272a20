"""The headline: it names who does best, and does not make a winner of what the same test can't tell apart."""

import re

import pytest

from fedamp.report import write_report
from run_folders import write_run

ALONE = (0.50, 0.52, 0.54, 0.56, 0.58, 0.60, 0.62, 0.64)
BETTER = tuple(score + 0.2 + place / 1000 for place, score in enumerate(ALONE))
NEARLY = tuple(score + (0.01 if place % 2 else -0.0102) for place, score in enumerate(BETTER))


def told(tmp_path, **methods):
    """Return the headline and the names in bold of a page about methods with these scores of one round."""
    metric = methods.pop("metric", "accuracy")
    for name, scores in methods.items():
        write_run(tmp_path / name, name.replace("_", "-"), accuracies=[scores], metric=metric)
    text = write_report([tmp_path]).read_text()
    (lead,) = re.findall(r'<p class="lead">(.*?)</p>', text.split("<main>")[0], re.S)
    return re.sub(r"<.*?>", "", lead).strip(), re.findall(r'<tr class="best"><th scope="row">(.*?)</th>', text)


def test_who_is_told_apart_is_not_named(tmp_path):
    assert told(tmp_path, fedavg=ALONE, fedamp=BETTER) == (
        "fedamp has the highest mean test accuracy: 77.35 %.",
        ["fedamp"],
    )


def test_who_is_not_told_apart_is_named_and_bold_too(tmp_path):
    assert told(tmp_path, separate=ALONE, fedavg=NEARLY, fedamp=BETTER) == (
        "fedamp has the highest mean test accuracy: 77.35 %; fedavg is not told apart from it; training alone reaches "
        "57.00 %.",
        ["fedavg", "fedamp"],
    )


def test_several_who_are_not_told_apart(tmp_path):
    lead, bold = told(tmp_path, fedavg=NEARLY, apfl=NEARLY[::-1], fedamp=BETTER, scaffold=ALONE)
    assert lead.endswith("77.35 %; fedavg and apfl are not told apart from it.")
    assert bold == ["fedavg", "apfl", "fedamp"]


def test_with_few_clients_nobody_is_told_apart_and_nothing_is_bold(tmp_path):
    """The least p of three clients is 0.25, whatever their scores are."""
    lead, bold = told(tmp_path, separate=ALONE[:3], fedavg=NEARLY[:3], fedamp=BETTER[:3])
    assert "; no other method is told apart from it; training alone reaches" in lead
    assert bold == []


def test_training_alone_may_be_the_best(tmp_path):
    lead, _ = told(tmp_path, separate=BETTER, fedamp=NEARLY, fedavg=ALONE)
    assert "; no method that collaborates does better; fedamp is not told apart from it." in lead


def test_of_errors_the_lowest_is_the_best(tmp_path):
    lead, bold = told(tmp_path, fedavg=ALONE, fedamp=BETTER, metric="rmse")
    assert lead == "fedavg has the lowest mean test error (RMSE): 0.57."
    assert bold == ["fedavg"]


def test_equal_scores_have_two_names(tmp_path):
    assert told(tmp_path, fedavg=BETTER, fedamp=BETTER, apfl=ALONE) == (
        "fedavg and fedamp have the highest mean test accuracy: 77.35 %.",
        ["fedavg", "fedamp"],
    )


def test_the_only_method_is_not_called_the_best(tmp_path):
    assert told(tmp_path, fedamp=BETTER) == ("fedamp reaches a mean test accuracy of 77.35 % in its best round.", [])


@pytest.mark.parametrize(("methods", "shown"), [(("fedamp",), False), (("fedamp", "fedavg"), True)])
def test_the_rule_stands_below_the_table(tmp_path, methods, shown):
    for name in methods:
        write_run(tmp_path / name, name)
    assert ("Bold: the best score, and those" in write_report([tmp_path]).read_text()) == shown
