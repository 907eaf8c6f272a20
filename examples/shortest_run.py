"""The shortest run: 20 clients with different handwriting habits, and a model for each of them."""

import fedamp

result = fedamp.run(method="fedamp", data="digits", clients=20)
alone = fedamp.run(method="separate", data="digits", clients=20)

print(f"training alone: {alone.bmta:.1f} %")
print(f"FedAMP:         {result.bmta:.1f} %")
print(f"client 0 listened to {result.history[-2]['effective_clients'][0]:.1f} clients in the last round")
