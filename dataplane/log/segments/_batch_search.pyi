from .batch_search_in_python import count_until as count_until

def walk_headers(
    held: bytes, position: int, limit: int, end: int, next_offset: int, /
) -> tuple[int, int, int] | None:
    """Go from batch to batch, the first of which begins at `position`, as do the bytes that are `held`. All of them end
    at `end`, and offsets rise from `next_offset` on.

    Returns the position of the first batch that reaches beyond `limit`, its base offset, and the offset that may come
    next. Where the bytes that are held end before that, or the batches do, the base offset is -1. None if there is
    something on the way that is no batch.
    """
