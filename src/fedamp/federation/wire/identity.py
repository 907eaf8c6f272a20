"""Who a node is, whatever number Flower gives it this time."""

import hashlib

from flwr.proto.node_pb2 import NodeInfo


def identity_of(node: NodeInfo) -> str:
    """Return the hash of a node's key, in hex; its number if there are no keys, as in a simulation."""
    return hashlib.sha256(node.public_key).hexdigest() if node.public_key else f"node-{node.node_id}"
