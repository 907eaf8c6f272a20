"""Three hospitals with a csv file each: a logistic model for every one of them, saved and used.

The files never leave their folder in a real federation; here one machine plays all three.
"""

import csv
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

import fedamp

folder = Path(tempfile.mkdtemp())
generator = torch.Generator().manual_seed(0)
for number, name in enumerate(["hospital-a", "hospital-b", "hospital-c"]):
    (folder / "silos").mkdir(exist_ok=True)
    with (folder / "silos" / f"{name}.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["age", "pressure", "marker", "outcome"])
        for _ in range(80):
            age, pressure, marker = torch.randn(3, generator=generator).tolist()
            risk = age + 0.5 * pressure + (1.5 if number < 2 else -1.5) * marker
            rows.writerow([50 + 12 * age, 120 + 15 * pressure, marker, "ill" if risk > 0 else "well"])

result = fedamp.run(data=str(folder / "silos"), label="outcome", model="logistic", method="fedamp", rounds=10, lr=0.05)
print(f"best mean test accuracy: {result.bmta:.1f} %")

for number, name in enumerate(result.facts.names):
    save_file(result.client_model(number).state_dict(), folder / f"{name}.safetensors")

# Anywhere else, with torch and safetensors alone; the schema says which columns, labels and scaling.
schema = result.schema
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3, 2))
model.load_state_dict(load_file(folder / "hospital-c.safetensors"))
patient = {"age": 61.0, "pressure": 118.0, "marker": -0.4}
x = [
    (patient[column] - shift) / scale
    for column, shift, scale in zip(schema.columns, schema.shift, schema.scale, strict=True)
]
print("hospital-c's model says:", schema.labels[int(model(torch.tensor([x])).argmax())])
