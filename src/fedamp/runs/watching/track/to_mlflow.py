"""MLflow: at $MLFLOW_TRACKING_URI, or in a database in the run's folder, which `mlflow ui` reads."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Mapping

# A run says nothing to anyone who was not asked for, and does not wait for minutes for a server that is not there.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")

from mlflow import MlflowClient
from mlflow.entities import Metric, Param

from fedamp.runs.watching.round_line import RoundLine
from fedamp.runs.watching.track.base import Tracked, clients_of, numbers_of

EXPERIMENT = "fedamp"
LONGEST = 500  # letters that a parameter's value may have
AT_ONCE = 100  # parameters in one request


class MLflow:
    """Metrics by round, each client's as a series of its own, and the configuration as parameters."""

    def __init__(self, client: MlflowClient, run_id: str, last: int) -> None:
        self.client, self.run_id = client, run_id
        self.last = last  # the last round that it has: an interrupted run may play some of them again

    def round(self, line: RoundLine) -> None:
        """Log a round that it does not have yet."""
        if line.round > self.last:
            self._log({**numbers_of(line), **clients_of(line)}, line.round)

    def end(self, summary: Mapping[str, float]) -> None:
        """Log the summary."""
        self._log({f"summary_{name}": value for name, value in summary.items()}, 0)
        self.client.set_terminated(self.run_id)

    def close(self) -> None:
        """Do nothing: every call has written what it was given."""

    def _log(self, numbers: Mapping[str, float], k: int) -> None:
        now = int(1000 * time.time())
        metrics = [Metric(name, value, now, k) for name, value in numbers.items() if math.isfinite(value)]
        self.client.log_batch(self.run_id, metrics=metrics)


def start(about: Tracked) -> MLflow:
    """Begin to log a run, or go on with it."""
    for name in ("alembic", "mlflow"):
        logging.getLogger(name).setLevel(logging.WARNING)
    own = f"sqlite:///{(about.store / 'mlflow.db').resolve()}"
    client = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI") or own)
    known = about.known_as("mlflow")
    if known is not None:
        client.update_run(known, status="RUNNING")
        return MLflow(
            client, known, max((each.step for each in client.get_metric_history(known, "seconds")), default=0)
        )
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT
    experiment = client.get_experiment_by_name(name)
    number = client.create_experiment(name) if experiment is None else experiment.experiment_id
    run_id = client.create_run(number, run_name=about.name).info.run_id
    params = [Param(name, str(value)[:LONGEST]) for name, value in about.config.items()]
    for first in range(0, len(params), AT_ONCE):
        client.log_batch(run_id, params=params[first : first + AT_ONCE])
    about.remember("mlflow", run_id)
    return MLflow(client, run_id, 0)
