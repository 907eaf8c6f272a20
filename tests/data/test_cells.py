"""What a cell or a label holds."""

import numpy as np

from fedamp.data.silos.cells import as_number, label_name


def test_one_label_has_one_name():
    assert {label_name(value) for value in (1, 1.0, "1", "01", " 1.0", np.float32(1), np.int8(1))} == {"1"}
    assert label_name(0.5) == label_name("0.50") == "0.5"
    assert label_name("1_000") == "1_000"
    assert as_number("nan") != as_number("nan")
