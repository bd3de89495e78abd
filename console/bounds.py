"""Limits on the requests of a browser. Content beyond a limit is cut off, and the page says so."""

from __future__ import annotations

from typing import Final

ROWS_MAX: Final = 50
"""The most rows of a table on one page."""
PAYLOAD_BYTES_MAX: Final = 64 * 1024
"""The most bytes of a key or value that a page shows; a link has the whole."""
FORM_BYTES_MAX: Final = 1024 * 1024
FIELDS_MAX: Final = 400
QUESTION_S: Final = 15.0
"""Seconds for all answers of the cluster that a page needs."""
STREAMS_MAX: Final = 64
"""The most open event streams: one for each page that is open in a browser."""
SEND_S: Final = 10.0
"""Seconds that a browser may leave an event unread, once all buffers are full."""
SILENCE_S: Final = 15.0
"""Seconds without news after which an event stream sends a comment, so that a dead connection is noticed."""
CONNECTIONS_MAX: Final = 256
CONNECTIONS_OF_NETWORK_MAX: Final = 128
"""The most connections from one address, or one /64 network in IPv6. A proxy has one address for all its clients."""
HEAD_S: Final = 10.0
"""Seconds within which a connection must send a request's head."""
SESSIONS_MAX: Final = 16
"""The most sessions at a time: each has separate clients and a separate snapshot of the cluster."""
SESSIONS_OF_USER_MAX: Final = 4
"""The most sessions of one user. A further session ends the one that was unused for longest."""
IDLE_S: Final = 30 * 60.0
"""Seconds without a request after which a session ends."""
SESSION_S: Final = 12 * 3600.0
"""Seconds after which a session ends even if it is used."""
ATTEMPTS_S: Final = 300.0
"""Seconds after the last failed login after which the failures are forgotten."""
ATTEMPTS_WITHOUT_PAUSE: Final = 5
"""The number of failures of a user from a network after which pauses begin: 1, 2, 4 seconds and so on."""
PAUSE_MAX_S: Final = 30.0
NAMES_REMEMBERED_MAX: Final = 2_000
"""The most pairs of user and network whose failures are counted."""
LOGINS_AT_A_TIME: Final = 4
NOTICES_MAX: Final = 200
PREVIEWS_MAX: Final = 32
"""The most previews of a session that may still be carried out. The oldest is dropped first."""
PREVIEW_S: Final = 30 * 60.0
"""Seconds after which a preview must be shown again before its change is carried out."""
ACLS_DELETED_MAX: Final = 200
"""The most ACLs that one change deletes, since its preview lists them with their effects."""
MOVES_MAX: Final = 5_000
"""The most partitions whose replicas one change moves."""
TOPICS_UNTHROTTLED_MAX: Final = 5_000
"""The most topics whose settings are read to find the limits of copying that reassignments left behind."""
POINTS_MAX: Final = 300
"""The most points of each series that are remembered for each span of charts."""
COMMITS_MAX: Final = 450
"""The most samples of the quorum's commit times that are remembered."""
TOPICS_BUSY: Final = 20
"""The number of topics, the busiest, whose rates are remembered."""
TOPICS_REMEMBERED_MAX: Final = 40
"""The most topics whose rates are remembered: busy ones, and those that pages showed most recently."""
EVENTS_MAX: Final = 200
LAG_GROUPS_MAX: Final = 40
"""The most groups whose lag over time is remembered: those that pages showed most recently."""
LAG_TOPICS_MAX: Final = 6
"""The most topics of such a group: a chart cannot distinguish more lines."""
GROUPS_READ_MAX: Final = 10_000
"""The most groups whose offsets are read to find the readers of a topic, or the groups with the largest lag."""
PARTITIONS_READ_MAX: Final = 20_000
"""The most partitions whose ends are read for the lag of these groups."""
GROUPS_DESCRIBED_MAX: Final = 200
"""The most descriptions of groups that are kept for some seconds."""
PARTITIONS_SAMPLED_MAX: Final = 5_000
"""The most partitions whose end offsets are sampled; larger clusters are not sampled."""
EXPOSITION_BYTES_MAX: Final = 64 * 1024 * 1024
