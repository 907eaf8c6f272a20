"""FedProx: FedAvg whose clients stay near the global model.

Source: Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020, Algorithm 2.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from fedamp import checks
from fedamp.fields import about
from fedamp.methods.advice import STRONG
from fedamp.methods.base import Local, proximal
from fedamp.methods.fedavg import FedAvg
from fedamp.rows import Rows, State


@dataclass(frozen=True)
class FedProx(FedAvg):
    """w_i^{k+1} = argmin_w F_i(w) + mu/2 |w - w^k|^2; the server averages as FedAvg does."""

    when: ClassVar[str] = "As `fedavg`, where clients' data differ so much that its local training drifts apart."

    mu: float = about(
        1e-2,
        "Strength of the pull to the global model.",
        range="0 or more",
        source="Li et al. 2020, Algorithm 2; 1e-2 is from Huang et al. 2021, Experiments",
    )

    def __post_init__(self) -> None:
        checks.not_negative("mu", self.mu)

    def train(self, w: Rows, local: Local) -> Rows:
        """Descend from the global model, pulled back to it with strength mu."""
        strength = w.params.new_full((len(w), 1), self.mu)
        return local.run(w, proximal, anchor=w.params, strength=strength)

    def diagnostics(self, state: State) -> dict[str, Any]:
        """Return a warning if nobody moves away from the global model."""
        strong = f"the pull to the global model, mu, is {self.mu:g}: local training hardly moves away from it. Lower mu"
        return {"events": [strong] if self.mu > STRONG else []}
