"""The fixed phrases of a silo that declines on which its server acts; all others are only told to people."""

from __future__ import annotations

LOST_MEMORY = "it has lost its memory of earlier rounds"
"""It can't go on from where the server is: its operator has to let it begin anew."""
OLDER_SERVER = "the server goes on from an earlier round than it remembers"
"""The same of one whose memory is newer than the server's: its operator has to rewind the federation."""
SPENT_PRIVACY = "it has spent the privacy that it allows itself"
TRAINED_ENOUGH = "it has trained as many rounds as it allows itself"
OUT = (SPENT_PRIVACY, TRAINED_ENOUGH)
"""It trains no more, unless its own operator allows more: no round waits for it until then."""
