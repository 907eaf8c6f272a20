"""A client of FedAMP: it starts at its cloud model and stays near it. Two lines differ from a client of FedAvg."""

import torch
import torch.nn.functional as F
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedamp.federation import start_at_cloud_model
from flower_app.task import net, partition

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    x, y, _, _ = partition(int(context.node_config["partition-id"]), int(context.node_config["num-partitions"]))
    model = net()
    penalty = start_at_cloud_model(model, message)  # loads u; penalty() is strength/2 |w - u|^2
    optimizer = torch.optim.SGD(model.parameters(), lr=float(context.run_config["learning-rate"]))
    for _ in range(int(context.run_config["local-epochs"])):
        for batch in torch.randperm(len(x)).split(10):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x[batch]), y[batch]) + penalty()
            loss.backward()
            optimizer.step()
    metrics = MetricRecord({"num-examples": len(x), "train-loss": float(loss.detach())})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    _, _, x, y = partition(int(context.node_config["partition-id"]), int(context.node_config["num-partitions"]))
    model = net()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    accuracy = float((model(x).argmax(1) == y).float().mean())
    metrics = MetricRecord({"num-examples": len(x), "accuracy": accuracy})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
