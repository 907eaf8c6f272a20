"""A federation over real machines, on Flower: pip install 'fedamp[federation]'.

`FedAMP` and `HeurFedAMP` are Flower strategies, `start_at_cloud_model` is what their clients call. The command line's
`fedamp federation` and `fedamp silo` build on the rest.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedamp.federation.flower_apps.proximal import start_at_cloud_model
    from fedamp.federation.flower_apps.strategies import FedAMP, HeurFedAMP
    from fedamp.federation.silo.app import make_client_app

__all__ = ["FedAMP", "HeurFedAMP", "make_client_app", "start_at_cloud_model"]

_WHERE = {
    "FedAMP": "flower_apps.strategies",
    "HeurFedAMP": "flower_apps.strategies",
    "make_client_app": "silo.app",
    "start_at_cloud_model": "flower_apps.proximal",
}


def __getattr__(name: str) -> Any:
    """Import Flower only when it is needed, and say how to get it."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name and error.name.split(".")[0] == "flwr":
            raise ImportError("this needs Flower; run: pip install 'fedamp[federation]'") from error
        raise
