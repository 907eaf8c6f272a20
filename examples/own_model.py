"""Your own model and your own data: a list of (x, y), one for each silo. Nothing else is needed."""

import torch
from torch import nn

import fedamp


def hospital(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Make 60 patients with 8 measurements; hospitals 0-2 follow one rule, hospitals 3-5 another."""
    generator = torch.Generator().manual_seed(number)
    x = torch.randn(60, 8, generator=generator)
    rule = torch.randn(8, 2, generator=torch.Generator().manual_seed(100 + number // 3))
    return x, (x @ rule).argmax(1)


model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 2))
clients = [hospital(number) for number in range(6)]
result = fedamp.run(method="heurfedamp", clients=clients, model=model, rounds=15, batch_size=16)

print(f"best mean test accuracy: {result.bmta:.1f} %")
print("who listens to whom in the last round:")
for row in result.xi[-1]:
    print("  " + " ".join(f"{weight:.2f}" for weight in row))

mine = result.client_model(2)  # an ordinary nn.Module, in eval mode
print("hospital 2's model says:", mine(clients[2][0][:3]).argmax(1).tolist())
