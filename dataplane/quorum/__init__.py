"""The broker's side of the metadata quorum: sessions with all quorum nodes, the cluster image, commands and heartbeats.

The broker uses `QuorumSession`. It follows the Raft leader's record stream and folds it into one `ClusterImage`,
submits commands exactly once across leader changes, and sends the broker's heartbeats from a dedicated thread. One rule
holds: only the feed changes the image, on the event loop, a whole push per turn.
"""

from .config import QuorumSessionConfig
from .registration import SessionLost
from .session import QuorumSession

__all__ = ["QuorumSession", "QuorumSessionConfig", "SessionLost"]
