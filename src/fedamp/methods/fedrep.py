"""FedRep: FedPer in two phases: first a head that fits the body, then a body that fits the head.

    h_i^{k+1} = training of h alone from h_i^k at theta^k;  theta_i = training of theta alone from theta^k at h_i^{k+1}

Symbols: theta the body (the representation), averaged as in FedAvg, h_i the client's head. Source: Collins et al.,
"Exploiting Shared Representations for Personalized Federated Learning", ICML 2021, Algorithm 1. The authors train 10
epochs of the head and 1 or 5 of the body, in minibatches of 10; their code splits a round's epochs, and so do we: from
two epochs on, a round takes as many as for other methods. With one, each phase has one; where a round is a number of
steps, the body has all of them after the head's epochs. Their bodies count alike on CIFAR and MNIST; ours by samples,
as on FEMNIST.
"""

from dataclasses import dataclass
from typing import ClassVar

from fedamp import checks
from fedamp.fields import about
from fedamp.methods.base import Local, descent
from fedamp.methods.fedper import FedPer
from fedamp.rows import Rows


@dataclass(frozen=True)
class FedRep(FedPer):
    """FedPer whose clients train the head first, then the body."""

    when: ClassVar[str] = "As `fedper`, with many clients of few samples each: the body is learned from all of them."

    head_epochs: int = about(
        2,
        "Epochs of a round in which the head is trained, at most all but one; the body has the rest. Of a single epoch "
        "both have one; where a round is a number of steps, the body has all of them, after the head's epochs.",
        unit="epochs",
        range="1 or more",
        source="Collins et al. 2021, Algorithm 1, tau, is 10; 2 is from validation on the digits (practical setting, 5 "
        "epochs, cnn-small and mlp, seed 7, 15 and 60 rounds): 1, 2 and 3 do alike, 4 worse",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.count("head_epochs", self.head_epochs)

    def train(self, w: Rows, local: Local) -> Rows:
        """Train the head with the body frozen, then the body with the head frozen."""
        head = self.at_home(local)
        if head.params.all() or not head.params.any():  # one of the two would train nothing
            return super().train(w, local)
        first, rest = self.head_epochs, None  # where a round is a number of steps, the body has all of them
        if local.epochs is not None:
            first = min(self.head_epochs, max(1, local.epochs - 1))
            rest = max(1, local.epochs - first)
        fitted = local.again(1, epochs=first, only=head).run(w, descent)
        return local.again(0, epochs=rest, only=~head).run(fitted, descent)
