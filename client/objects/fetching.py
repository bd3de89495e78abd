"""The fetching of an object to which a record refers."""

from __future__ import annotations

from ...network.threads import in_thread
from ..failures import ObjectDamaged
from .references import ObjectReference
from .store import ObjectStore


async def fetch_object(store: ObjectStore, reference: ObjectReference) -> bytes:
    """Return the bytes of a referenced object. At most one byte more than the reference says is fetched.

    Raises ObjectDamaged for other bytes than the referenced ones, ObjectMissing, and ObjectStoreFailed.
    """
    found = await store.get(reference.key, 0, reference.size + 1)
    fault = await in_thread(reference.fault_of, found)
    if fault is not None:
        raise ObjectDamaged(f"the object {reference.key} is wrong: {fault}")
    return found
