def skim(
    fd: int,
    position: int,
    end: int,
    base_offset: int,
    next_offset: int,
    upto: int,
    epoch: int,
    contiguous: int,
    interval: int,
    since_index_entry: int,
    max_timestamp: int,
    max_timestamp_offset: int,
    last_indexed_ms: int,
    /,
) -> tuple[int, int, int, int, int, bool, bytes, bytes]:
    """Go from batch to batch of a file as long as they are plain, and end at byte `end` or before.

    A batch is plain if it has this leader epoch, continues `next_offset`, ends before offset `upto`, is no control
    batch, and has a timestamp. The other arguments are the state of a segment that has noted all batches before.

    Returns the state after the batches: position, next offset, bytes since the last index entry, largest timestamp in
    ms, and the offset with it. Then follow whether any batch has a producer id, and the new entries of the offset index
    and of the time index.
    """
