"""How much one browser may ask for. Whatever goes over a bound is cut off, and the page says so."""

from __future__ import annotations

from typing import Final

ROWS_MAX: Final = 50
"""Rows of a table on one page."""
PAYLOAD_BYTES_MAX: Final = 64 * 1024
"""Bytes of a key or value that a page shows; a link has the whole."""
FORM_BYTES_MAX: Final = 1024 * 1024
FIELDS_MAX: Final = 400
QUESTION_S: Final = 15.0
"""How long the cluster may take for everything that one page asks."""
STREAMS_MAX: Final = 64
"""Event streams that are open at a time: one for each page that somebody looks at."""
SEND_S: Final = 10.0
"""How long a browser may leave an event unread, once all buffers on the way are full."""
SILENCE_S: Final = 15.0
"""An event stream without news says so, so that a connection that is dead is noticed."""
CONNECTIONS_MAX: Final = 256
CONNECTIONS_OF_NETWORK_MAX: Final = 128
"""From one address, or one /64 network in IPv6. A proxy has one address for all."""
HEAD_S: Final = 10.0
"""How long a connection may take until a request's head is there."""
SESSIONS_MAX: Final = 16
"""People who are signed in at a time: each has clients, and a snapshot of the cluster, of their own."""
SESSIONS_OF_USER_MAX: Final = 4
"""Of one user. Whoever signs in once more ends the one that was not used for longest."""
IDLE_S: Final = 30 * 60.0
"""Without a request for so long a session ends."""
SESSION_S: Final = 12 * 3600.0
"""A session ends after so long however much it is used."""
ATTEMPTS_S: Final = 300.0
"""So long after the last failed attempt to sign in the failures are forgotten."""
ATTEMPTS_WITHOUT_PAUSE: Final = 5
"""Failures of one user from one network. From then on pauses grow: 1, 2, 4 seconds and so on."""
PAUSE_MAX_S: Final = 30.0
NAMES_REMEMBERED_MAX: Final = 2_000
"""Users with their networks whose failures are counted."""
LOGINS_AT_A_TIME: Final = 4
NOTICES_MAX: Final = 200
PREVIEWS_MAX: Final = 32
"""Changes of a session that were shown and may be carried out. The oldest goes first."""
PREVIEW_S: Final = 30 * 60.0
"""A preview that is older is shown again before its change is carried out."""
SAMPLES_MAX: Final = 450
"""Points of each series that are remembered."""
HAPPENINGS_MAX: Final = 200
PARTITIONS_SAMPLED_MAX: Final = 5_000
"""Of more partitions the end offsets are not asked for again and again."""
EXPOSITION_BYTES_MAX: Final = 64 * 1024 * 1024
