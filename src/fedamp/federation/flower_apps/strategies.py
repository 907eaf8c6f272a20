"""FedAMP and HeurFedAMP as ordinary Flower strategies, for apps that have their own ClientApp."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from flwr.app import MetricRecord, RecordDict

from fedamp import methods
from fedamp.config.reply_limits import Rules
from fedamp.federation.flower_apps.attentive import AttentiveStrategy

Aggregate = Callable[[list[RecordDict], str], MetricRecord] | None


class FedAMP(AttentiveStrategy):
    """FedAMP as a Flower strategy: cloud models mixed by the squared distances between the nodes' models.

    The first keywords are those of Flower's FedAvg; `lam` to `alpha_every` are those of `fedamp.methods.FedAMP`.
    `buffers` names the arrays that are not learned (by default BatchNorm's statistics and whole numbers). A reply more
    than `norm_factor` times as long as the median is refused, and a node with `strikes` bad replies in a row is left
    out.
    """

    def __init__(
        self,
        fraction_train: float = 1.0,
        fraction_evaluate: float = 1.0,
        min_train_nodes: int = 2,
        min_evaluate_nodes: int = 2,
        min_available_nodes: int = 2,
        weighted_by_key: str = "num-examples",
        arrayrecord_key: str = "arrays",
        configrecord_key: str = "config",
        train_metrics_aggr_fn: Aggregate = None,
        evaluate_metrics_aggr_fn: Aggregate = None,
        *,
        lam: float = methods.FedAMP.lam,
        alpha: float | str = methods.FedAMP.alpha,
        form: str = methods.FedAMP.form,
        sigma: float | str = methods.FedAMP.sigma,
        self_weight: Any = methods.FedAMP.self_weight,
        attention: str = methods.FedAMP.attention,
        theta: float = methods.FedAMP.theta,
        sharpness: float = methods.FedAMP.sharpness,
        alpha_every: int = methods.FedAMP.alpha_every,
        buffers: Collection[str] | None = None,
        norm_factor: float = Rules.norm_factor,
        strikes: int = Rules.strikes,
    ) -> None:
        method = methods.FedAMP(
            lam=lam,
            alpha=alpha,
            alpha_every=alpha_every,
            form=form,
            sigma=sigma,
            sharpness=sharpness,
            self_weight=self_weight,
            attention=attention,
            theta=theta,
        )
        super().__init__(
            method,
            buffers,
            Rules(norm_factor=norm_factor, strikes=strikes),
            fraction_train=fraction_train,
            fraction_evaluate=fraction_evaluate,
            min_train_nodes=min_train_nodes,
            min_evaluate_nodes=min_evaluate_nodes,
            min_available_nodes=min_available_nodes,
            weighted_by_key=weighted_by_key,
            arrayrecord_key=arrayrecord_key,
            configrecord_key=configrecord_key,
            train_metrics_aggr_fn=train_metrics_aggr_fn,
            evaluate_metrics_aggr_fn=evaluate_metrics_aggr_fn,
        )


class HeurFedAMP(AttentiveStrategy):
    """HeurFedAMP as a Flower strategy: cloud models mixed by the cosines between the nodes' models.

    The first keywords are those of Flower's FedAvg; `lam` to `alpha_every` are those of `fedamp.methods.HeurFedAMP`;
    the others as in `FedAMP`.
    """

    def __init__(
        self,
        fraction_train: float = 1.0,
        fraction_evaluate: float = 1.0,
        min_train_nodes: int = 2,
        min_evaluate_nodes: int = 2,
        min_available_nodes: int = 2,
        weighted_by_key: str = "num-examples",
        arrayrecord_key: str = "arrays",
        configrecord_key: str = "config",
        train_metrics_aggr_fn: Aggregate = None,
        evaluate_metrics_aggr_fn: Aggregate = None,
        *,
        lam: float = methods.HeurFedAMP.lam,
        alpha: float | str = methods.HeurFedAMP.alpha,
        sigma: float | str = methods.HeurFedAMP.sigma,
        self_weight: Any = methods.HeurFedAMP.self_weight,
        sharpness: float = methods.HeurFedAMP.sharpness,
        alpha_every: int = methods.HeurFedAMP.alpha_every,
        buffers: Collection[str] | None = None,
        norm_factor: float = Rules.norm_factor,
        strikes: int = Rules.strikes,
    ) -> None:
        method = methods.HeurFedAMP(
            lam=lam, alpha=alpha, alpha_every=alpha_every, sigma=sigma, sharpness=sharpness, self_weight=self_weight
        )
        super().__init__(
            method,
            buffers,
            Rules(norm_factor=norm_factor, strikes=strikes),
            fraction_train=fraction_train,
            fraction_evaluate=fraction_evaluate,
            min_train_nodes=min_train_nodes,
            min_evaluate_nodes=min_evaluate_nodes,
            min_available_nodes=min_available_nodes,
            weighted_by_key=weighted_by_key,
            arrayrecord_key=arrayrecord_key,
            configrecord_key=configrecord_key,
            train_metrics_aggr_fn=train_metrics_aggr_fn,
            evaluate_metrics_aggr_fn=evaluate_metrics_aggr_fn,
        )
