"""The swap of compacted segments for old ones. A crash at any moment leaves either the old or the new segments whole.

The steps, as in Kafka:

1. The new files exist as `<base>.log.cleaned`, with their indexes, and are flushed.
2. Each is renamed to `.swap`, the last one first. Once no `.log.cleaned` is left the swap will be finished; until then
   a crash undoes it.
3. The old files are renamed to `.deleted`.
4. The new files take their names, the indexes before the log. If an old segment had an index of aborted transactions,
   the new one has one too, even if empty: otherwise the old index might replace it after a crash.

One compaction of a log runs at a time, from its start on: a `.cleaned` file left below a swap would undo the swap.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..durable_files import sync_directory
from ..storage_errors import BrokenBatch, damage, disk_error
from .batch_walk import SCAN_CHUNK, walk_file
from .segment import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, Segment
from .segment_list import SegmentList

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
_CLEANED_LOG = LOG_SUFFIX + CLEANED_SUFFIX
_SWAP_LOG = LOG_SUFFIX + SWAP_SUFFIX
# The log comes last, since its name shows the progress of a swap.
_FILES = (TRANSACTION_INDEX_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, LOG_SUFFIX)
_OPTIONAL = (TRANSACTION_INDEX_SUFFIX,)

logger = logging.getLogger(__name__)


def swap_in(segments: SegmentList, old: Sequence[Segment], new_files: Sequence[Path]) -> None:
    """Do steps 2 to 4 and put the new segments into the list. The caller has checked that `old` can be replaced.

    Raises ValueError if the files do not fit; nothing has changed. Raises KafkaError: KAFKA_STORAGE_ERROR; opening the
    log finishes or undoes the swap.
    """
    bases = _checked_bases(old, new_files)
    directory = old[0].path.parent
    for base in reversed(bases):
        _rename_all(directory, base, CLEANED_SUFFIX, SWAP_SUFFIX)
    segments.replace(old, bases, lambda base: _rename_all(directory, base, SWAP_SUFFIX, ""))


def _checked_bases(old: Sequence[Segment], new_files: Sequence[Path]) -> list[int]:
    bases = []
    for path in new_files:
        stem = path.name.removesuffix(_CLEANED_LOG)
        if path.parent != old[0].path.parent or not stem.isdigit() or stem == path.name:
            raise ValueError(f"{path} is no {_CLEANED_LOG} file of {old[0].path.parent}")
        bases.append(int(stem))
        missing = [
            kind
            for kind in _FILES
            if kind not in _OPTIONAL and not path.with_name(stem + kind + CLEANED_SUFFIX).exists()
        ]
        if missing:
            raise ValueError(f"{path} comes without its {', '.join(missing)}")
    known = [segment.base_offset for segment in old]
    if bases != sorted(set(bases)) or bases[:1] != known[:1] or not set(bases) <= set(known):
        raise ValueError(f"segments at {bases} cannot take the place of those at {known}")
    below = [base for base in _bases(old[0].path.parent, _CLEANED_LOG) if base < known[0]]
    if below:
        raise ValueError(f"another compaction left a segment at {below[0]}, below {known[0]}")
    return bases


def _rename_all(directory: Path, base: int, suffix: str, new_suffix: str) -> None:
    for kind in _FILES:
        name = f"{base:020d}{kind}"
        try:
            os.rename(directory / (name + suffix), directory / (name + new_suffix))
        except FileNotFoundError as error:
            if kind not in _OPTIONAL:
                raise disk_error("rename", directory / (name + suffix), error) from error
        except OSError as error:
            raise disk_error("rename", directory / (name + suffix), error) from error


def _bases(directory: Path, suffix: str) -> list[int]:
    """Return the base offsets in the names of files that end with `suffix`, rising."""
    found = (path.name.removesuffix(suffix) for path in directory.glob("*" + suffix))
    return sorted(int(stem) for stem in found if stem.isdigit())


# After a crash


def are_unfinished(names: Iterable[str]) -> bool:
    """Return whether these are file names of a folder in which swaps were interrupted."""
    return any(name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX)) for name in names)


def finish_swaps(directory: Path) -> None:
    """Finish the swaps that had passed step 2, and undo the others. To be called before segments are searched.
    Blocking.

    Raises KafkaError: KAFKA_STORAGE_ERROR.
    """
    try:
        undecided = min(_bases(directory, _CLEANED_LOG), default=None)
        swaps = _bases(directory, _SWAP_LOG)
        decided = [base for base in swaps if undecided is None or base < undecided]
        for base in decided:
            _finish(directory, base)
        for suffix in (CLEANED_SUFFIX, SWAP_SUFFIX):
            for path in directory.glob("*" + suffix):
                logger.warning("undoing a compaction that was interrupted: %s", path)
                path.unlink()
        if decided:
            sync_directory(directory)
    except OSError as error:
        raise disk_error("recover", directory, error) from error


def _finish(directory: Path, base: int) -> None:
    swapped = directory / f"{base:020d}{_SWAP_LOG}"
    last = max(base, _next_offset(swapped, base) - 1)
    logger.warning("finishing a compaction that was interrupted: %s", swapped)
    replaced = {
        int(path.stem) for kind in _FILES for path in directory.glob("*" + kind) if path.stem.isdigit()
    }
    if not (directory / f"{base:020d}{LOG_SUFFIX}").exists():
        replaced.discard(
            base
        )  # The old log is gone, so an index of that name belongs to the new log already.
    for old in replaced:
        if base <= old <= last:
            for kind in _FILES:
                (directory / f"{old:020d}{kind}").unlink(missing_ok=True)
    for kind in _FILES:
        new = directory / f"{base:020d}{kind}"
        named = new.with_name(new.name + SWAP_SUFFIX)
        if named.exists():
            named.rename(new)


def _next_offset(path: Path, base: int) -> int:
    """Return the offset after the last batch of a compacted file. Raises KafkaError: KAFKA_STORAGE_ERROR."""
    next_offset = base
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for _, header in walk_file(fd, 0, os.fstat(fd).st_size, next_offset=base, chunk=SCAN_CHUNK):
            next_offset = header.next_offset
    except BrokenBatch as broken:
        raise damage(path, broken.position, broken.reason) from broken
    finally:
        os.close(fd)
    return next_offset
