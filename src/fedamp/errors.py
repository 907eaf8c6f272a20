"""A user's mistake, as opposed to one of ours; and what a user should know."""

INTERRUPTED = 130
"""The exit code after Ctrl-C."""


class UserError(ValueError):
    """What was given can't be used: the text names the value, what was expected and what to do.

    The command line shows it as one line and exits with 2. Any other exception is a fault of ours and keeps its
    traceback.
    """


class FedampWarning(UserWarning):
    """Something that a user should know about a run: the text names the cause and the cure."""
