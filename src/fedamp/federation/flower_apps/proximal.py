"""What a Flower client of FedAMP must do with the cloud model it receives: start there, and stay near it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from flwr.app import Message
from torch import Tensor, nn

Penalty = Callable[[], Tensor]


def start_at_cloud_model(
    model: nn.Module, message: Message, arrayrecord_key: str = "arrays", configrecord_key: str = "config"
) -> Penalty:
    """Load the cloud model u of a train message, and return the term that must be added to each step's loss.

    The term is strength/2 |w - u|^2 over the parameters that are learned, with the gradient strength (w - u):

        penalty = start_at_cloud_model(model, message)
        for x, y in loader:
            loss = cross_entropy(model(x), y) + penalty()
            ...

    The term is as stable as the client's optimiser: keep its learning rate times lambda / alpha_k under 1.
    """
    content = message.content
    model.load_state_dict(content.array_records[arrayrecord_key].to_torch_state_dict())
    strength = float(content.config_records[configrecord_key]["strength"])  # type: ignore[arg-type]
    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    anchor = [parameter.detach().clone() for parameter in learned]

    def penalty() -> Tensor:
        # The parameters themselves, not copies: the gradient must see the term.
        distances = [torch.sum((w - u.to(w.device)) ** 2) for w, u in zip(learned, anchor, strict=True)]
        return strength / 2 * torch.stack(distances).sum()

    return penalty
