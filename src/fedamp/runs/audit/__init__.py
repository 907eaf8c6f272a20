"""An audit: does what leaves a client tell more about single samples than was promised?

Canaries, samples made for this, are put among one client's training samples or left out, each by a fair coin. Its
rounds are then played as ever, and an attacker who sees all that leaves guesses the coins. How many guesses are right
gives a lower bound of epsilon, beside the one that the account claims. A bound below the claim proves nothing; one
above it proves that the promise is broken.
"""

from fedamp.runs.audit.finding import Audit
from fedamp.runs.audit.playing import audit

__all__ = ["Audit", "audit"]
