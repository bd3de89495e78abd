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
SESSIONS_MAX: Final = 16
"""People who are signed in at a time: each has clients, and a snapshot of the cluster, of their own."""
SESSIONS_OF_USER_MAX: Final = 4
"""Of one user. Whoever signs in once more ends the one that was not used for longest."""
IDLE_S: Final = 30 * 60.0
"""Without a request for so long a session ends."""
SESSION_S: Final = 12 * 3600.0
"""A session ends after so long however much it is used."""
ATTEMPTS_S: Final = 300.0
"""For so long a failed attempt to sign in counts."""
ATTEMPTS_OF_USER_MAX: Final = 5
ATTEMPTS_OF_ADDRESS_MAX: Final = 20
"""From one address, which may be that of a proxy."""
NAMES_REMEMBERED_MAX: Final = 2_000
"""Users and addresses whose failures are counted. Beyond that strangers wait."""
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
