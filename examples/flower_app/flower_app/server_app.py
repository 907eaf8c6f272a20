"""The server: FedAMP instead of Flower's FedAvg."""

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

from fedamp.federation import FedAMP
from flower_app.task import net

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    strategy = FedAMP(fraction_evaluate=1.0)
    rounds = int(context.run_config["num-server-rounds"])
    result = strategy.start(grid, ArrayRecord(net().state_dict()), num_rounds=rounds)
    last = result.evaluate_metrics_clientapp[rounds]["accuracy"]
    print(f"mean accuracy of the cloud models of {len(strategy.models)} clients: {last:.2%}")
