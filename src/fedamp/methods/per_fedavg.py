"""Per-FedAvg: a global model from which a gradient step on a client's own samples leads to a good personal one.

Symbols: w the meta-model, alpha the rate of adaptation, beta the optimiser's learning rate; D, D' and D'' are disjoint
parts of a minibatch. It descends the mean over clients of F_i(w - alpha grad F_i(w)). In each local step

    g   =  grad f(w - alpha grad f(w; D); D')
    w  <-  w - beta g                                                                    first-order (FO)
    w  <-  w - beta (g - alpha (grad f(w + delta g; D'') - grad f(w - delta g; D'')) / (2 delta))   Hessian-free (HF)

HF's difference quotient stands for the Hessian times g. The server takes the plain mean of the present clients' w.
Source: Fallah et al., "Personalized Federated Learning with Theoretical Guarantees: A Model-Agnostic Meta-Learning
Approach", NeurIPS 2020, Algorithm 1 and Section 5.

Here beta is the step of whatever optimiser is chosen; the paper's is plain SGD. A client's personal model is the
meta-model that it received, after `adapt_epochs` passes of plain SGD of rate alpha over its training samples, whatever
the optimiser: with full batches and one pass, that is the paper's one gradient step. The paper takes this step on test
samples, and so do public implementations (issue 19 of github.com/CharlieDinh/pFedMe); here nothing is trained on them.
A minibatch too small for its parts, with fewer than 4 samples (HF: 6), serves as each of them.
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from torch import Tensor

from fedamp import checks
from fedamp.fields import about
from fedamp.methods.base import Grad, Local, descent
from fedamp.methods.fedavg import FedAvg
from fedamp.rows import Message, State


def first_order(w: Tensor, grad: Grad, *, alpha: float, parts: int = 2) -> Tensor:
    """Return the gradient at the adapted point, each on its part of the minibatch: MAML's without the Hessian."""
    adapted = w - alpha * grad(w, part=(1, parts))
    return grad(adapted, part=(2, parts))


def hessian_free(w: Tensor, grad: Grad, *, alpha: float, delta: float) -> Tensor:
    """Return (I - alpha Hessian) times the gradient at the adapted point, the Hessian by a difference quotient."""
    g = first_order(w, grad, alpha=alpha, parts=3)
    ahead, behind = grad(w + delta * g, part=(3, 3)), grad(w - delta * g, part=(3, 3))
    return g - alpha / (2 * delta) * (ahead - behind)


@dataclass(frozen=True)
class PerFedAvg(FedAvg):
    """w descends the mean of F_i(w - alpha grad F_i(w)); a client's model is w after such a step of its own."""

    group: ClassVar[str] = "fine-tuned"
    when: ClassVar[str] = "Clients who come later must get a good model from little training on few samples."
    scored: ClassVar[str] = "own"

    form: str = about(
        "first-order",
        "How steps see the adaptation: `first-order` leaves out its Hessian, `hessian-free` has it by a difference "
        "quotient, at twice the cost.",
        range="first-order or hessian-free",
        source="Fallah et al. 2020, Section 5, Per-FedAvg (FO) and (HF)",
        choices=("first-order", "hessian-free"),
    )
    alpha: float = about(
        1e-2,
        "Rate of adaptation: of the inner step in training, and of the plain SGD that makes the personal model.",
        range="above 0",
        source="Fallah et al. 2020, Algorithm 1; 1e-2 did best, of 1e-3, 3e-3 and 1e-2, on held-out samples of the "
        "digits (practical setting, 20 clients, mlp at a learning rate of 3e-3, seed 100)",
    )
    adapt_epochs: int = about(
        1,
        "Passes over the client's training samples from the meta-model to the personal one.",
        unit="epochs",
        range="1 or more",
        source="ours: Fallah et al. 2020 take one step",
    )
    delta: float = about(
        1e-3,
        "For the Hessian-free form: how far from w the two gradients of the difference quotient are, in units of g.",
        range="above 0",
        source="Fallah et al. 2020, Section 5, which leaves it open; 1e-3 is ours",
    )

    def __post_init__(self) -> None:
        checks.one_of("form", self.form, ["first-order", "hessian-free"])
        checks.positive("alpha", self.alpha)
        checks.count("adapt_epochs", self.adapt_epochs)
        checks.positive("delta", self.delta)

    def server_receive(self, state: State, reply: Message, present: Tensor) -> State:
        """Take the plain mean of the present clients' meta-models."""
        return state.replace(shared={"w": reply["w"].mean()})

    def client_update(self, state: State, message: Message, local: Local) -> tuple[State, Message]:
        """Reply with the meta-model, trained on; keep what was received, adapted: it is scored, never trained from."""
        hf = partial(hessian_free, alpha=self.alpha, delta=self.delta)
        step = partial(first_order, alpha=self.alpha) if self.form == "first-order" else hf
        meta = local.run(message["w"], step)
        adaptation = local.again(1, epochs=self.adapt_epochs, optimizer="sgd", lr=self.alpha)
        return state.replace(rows={"w": adaptation.run(message["w"], descent)}), {"w": meta}
