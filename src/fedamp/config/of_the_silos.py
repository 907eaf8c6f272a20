"""Settings of a run that are none of a federation over real machines: its silos decide them, or nobody can yet."""

from __future__ import annotations

FROM_THE_SILOS = (
    *("data", "setting", "clients", "schema", "alone", "then_alone", "newcomers"),
    *("silo_column", "columns", "drop", "encoding"),
)
"""Fields of a configuration that a federation's flags and file leave out."""

WHY = {"alone": "which each silo decides for itself", "then_alone": "which federations can't do yet"}
"""Why, if it is not that they are for simulations."""
