"""What a silo's operator reads when the connection ends."""

from fedamp.federation.silo.connect import _reason


def test_a_key_that_is_refused_may_be_used_by_another_process():
    reason = _reason(["Failed to activate SuperNode: it is online"])
    assert "does not know this silo's key" in reason
    assert "another process may be using this key" in reason
    assert "was removed" in reason
