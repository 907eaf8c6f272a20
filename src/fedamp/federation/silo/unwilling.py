"""A silo says no: the server gets one of a few fixed phrases, and the reason stays at home."""

from __future__ import annotations

from fedamp.errors import UserError


class UnwillingError(UserError):
    """This silo can't take part. `public` is the phrase that the server gets; the text itself stays in the silo.

    `newest` goes with it if the server's messages are older than one that was acted on.
    """

    def __init__(self, public: str, private: str, newest: int | None = None) -> None:
        super().__init__(private)
        self.public, self.newest = public, newest
