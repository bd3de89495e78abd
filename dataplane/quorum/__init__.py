"""The broker's end of the metadata quorum: sessions to every quorum node, the image, commands and signs of
life.

`QuorumSession` is what the broker uses. It follows the Raft leader's record stream and folds it into one
`ClusterImage`, submits commands exactly once across leader changes, and keeps the broker's heartbeats going
from a thread of their own. The one rule: the image changes only by the feed, on the event loop, a whole push
per turn.
"""

from .config import QuorumSessionConfig
from .registration import SessionLost
from .session import QuorumSession

__all__ = ["QuorumSession", "QuorumSessionConfig", "SessionLost"]
