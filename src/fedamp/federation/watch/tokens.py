"""The file with the token by which Prometheus may ask for the metrics: made if it is not there, for its owner alone."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from fedamp.errors import UserError

SHORTEST = 16
"""Characters of a token that nobody guesses."""


def read_token(path: Path) -> str:
    """Return the token in a file; if there is no such file, one is made."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        pass
    except OSError as error:
        raise UserError(f"can't write a token to {path}: {error.strerror}; give another --token-file") from None
    else:
        with os.fdopen(file, "w") as made:
            made.write(secrets.token_urlsafe(32) + "\n")
    return _checked(path)


def _checked(path: Path) -> str:
    try:
        mode, token = path.stat().st_mode, path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"the token file {path} can't be read ({error}); give another --token-file") from None
    if mode & 0o077:
        raise UserError(f"other users can read or write the token file {path}; run: chmod 600 {path}")
    if len(token) < SHORTEST or len(token.split()) != 1:
        raise UserError(
            f"the token file {path} holds no token; expected one word of {SHORTEST} characters or more; delete the "
            "file, and a new one is made"
        )
    return token
