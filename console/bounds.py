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
NOTICES_MAX: Final = 200
SAMPLES_MAX: Final = 450
"""Points of each series that are remembered."""
HAPPENINGS_MAX: Final = 200
PARTITIONS_SAMPLED_MAX: Final = 5_000
"""Of more partitions the end offsets are not asked for again and again."""
EXPOSITION_BYTES_MAX: Final = 64 * 1024 * 1024
