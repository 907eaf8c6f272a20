"""What FedAMP and HeurFedAMP have in common as Flower strategies.

A client gets its cloud model u under `arrayrecord_key`, and in its config `server-round` and `strength`, which is
lambda / alpha_k. It must start at u and add strength/2 |w - u|^2 to its loss: `start_at_cloud_model` in
`fedamp.federation.flower_apps.proximal` does both. It replies as for FedAvg: its arrays, and a metric `num-examples`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from logging import INFO, WARNING
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from flwr.serverapp.strategy.strategy_utils import sample_nodes

from fedamp import methods
from fedamp.config.reply_limits import Rules
from fedamp.errors import UserError
from fedamp.federation.flower_apps.named_arrays import Layout
from fedamp.federation.server.state import Reply, ServerState
from fedamp.federation.wire import reply_form
from fedamp.federation.wire.encoding import one_line
from fedamp.federation.wire.identity import identity_of
from fedamp.federation.wire.messages import by_sender
from fedamp.rows import Rows


class AttentiveStrategy(FedAvg):
    """A cloud model for each node, checked replies, nodes known by their keys.

    `options` are those of Flower's FedAvg.
    """

    def __init__(self, method: methods.Method, buffers: Collection[str] | None, rules: Rules, **options: Any) -> None:
        super().__init__(**options)
        self.method, self.buffers, self.rules = method, buffers, rules
        self.layout: Layout | None = None
        self.state: ServerState | None = None
        self.sent: dict[str, Message] = {}

    def summary(self) -> None:
        """Log what the strategy does."""
        log(INFO, "\t├──> Method: %s", self.method)
        log(INFO, "\t├──> Rules: %s", self.rules)
        super().summary()

    @property
    def models(self) -> dict[str, ArrayRecord]:
        """The cloud model of each node, by the hash of its key, or `node-ID` if it has none.

        There is no global model, so `Result.arrays` stays empty.
        """
        if self.state is None or self.layout is None or not self.state.order:
            return {}
        return {who: self.layout.record(message["u"]) for who, message in self.state.send().items()}

    def _first_contact(self, arrays: ArrayRecord) -> tuple[ServerState, Layout]:
        if self.state is None or self.layout is None:
            self.layout = Layout.of(arrays, self.buffers)
            self.first = self.layout.row(arrays)
            self.state = ServerState(self.method, self.rules, self.first, self.layout.variances)
        return self.state, self.layout

    def _messages(
        self, grid: Grid, fraction: float, least: int, arrays: ArrayRecord, config: ConfigRecord, kind: str
    ) -> dict[str, Message]:
        """Return a message for each node of a sample: its own cloud model, and how strongly it pulls."""
        state, layout = self._first_contact(arrays)
        size = max(int(len(list(grid.get_node_ids())) * fraction), least)
        chosen, _ = sample_nodes(grid, self.min_available_nodes, size)
        who = {node.node_id: identity_of(node) for node in grid.get_nodes()}
        # In the grid's order, not the sample's: so rows are in the same order in every run.
        known = [(identity, node) for node, identity in who.items() if node in chosen]
        known = [(identity, node) for identity, node in known if not state.standing(identity).aside]
        new = [identity for identity, _ in known if identity not in state.order]
        if new:
            state.join(new, Rows.cat([self.first] * len(new)))
        rows = state.send()
        messages = {}
        for identity, node in known:
            own = ConfigRecord(dict(config))
            own["strength"] = float(rows[identity]["strength"].params)
            cloud_model = layout.record(rows[identity]["u"])
            content = RecordDict({self.arrayrecord_key: cloud_model, self.configrecord_key: own})
            messages[identity] = Message(content, dst_node_id=node, message_type=kind)
        return messages

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return each node's cloud model and the strength of its pull."""
        if self.fraction_train == 0.0:
            return []
        config["server-round"] = server_round
        least = self.min_train_nodes
        self.sent = self._messages(grid, self.fraction_train, least, arrays, config, MessageType.TRAIN)
        log(INFO, "configure_train: %s nodes, each with its own cloud model", len(self.sent))
        return list(self.sent.values())

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Take the models of the nodes whose replies pass the checks; return their metrics."""
        if self.state is None or not self.sent:
            return None, None
        valid, _ = self._check_and_log_replies(replies, is_train=True, validate=False)
        decoded, contents = {}, {}
        for who, reply in by_sender(valid, self.sent):
            try:
                decoded[who] = self._decode(reply.content)
                contents[who] = reply.content
            except Exception as error:  # whatever a reply holds must not stop the others
                self._strike(who, one_line(error) or type(error).__name__)
        good, refused = self.state.sift(decoded)
        for who, reason in refused.items():
            self._strike(who, reason)
        if not good:
            log(WARNING, "aggregate_train: no usable reply in round %s; the models stay as they are", server_round)
            return None, None
        for event in self.state.receive(good)["events"]:
            log(WARNING, event)
        return None, self.train_metrics_aggr_fn([contents[who] for who in good], self.weighted_by_key)

    def _decode(self, content: RecordDict) -> Reply:
        assert self.layout is not None
        records, metrics = list(content.array_records.values()), list(content.metric_records.values())
        if len(records) != 1 or len(metrics) != 1:
            raise UserError(f"it holds {len(records)} array and {len(metrics)} metric records; expected one of each")
        samples = reply_form.check_samples(metrics[0].get(self.weighted_by_key))
        # Flower's clients do not say how noisy their models are.
        rows = {"w": self.layout.row(records[0]), "noise": Rows.of(torch.zeros((1, 1), dtype=torch.float64))}
        reply_form.check_variances(rows, self.layout.variances)
        return Reply(rows, samples, {})

    def _strike(self, who: str, reason: str) -> None:
        assert self.state is not None
        aside = self.state.strike(who, reason)
        log(WARNING, "bad reply from %s: %s%s", who[:16], reason, "; it is set aside" if aside else "")

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return each node's cloud model, to be scored on its own data."""
        if self.fraction_evaluate == 0.0:
            return []
        config["server-round"] = server_round
        least = self.min_evaluate_nodes
        sent = self._messages(grid, self.fraction_evaluate, least, arrays, config, MessageType.EVALUATE)
        return list(sent.values())
