"""Plays inputs with extensions in C that were built with the AddressSanitizer: `make fuzz-c`.

`python -m tests.fuzz.sanitized FOLDER [--inputs N] [--seed S]`; `FOLDER` is the argument of `setup.py build_ext
--build-lib`. The first access beyond allocated memory ends the process, with a report.
"""

from __future__ import annotations

import argparse
import secrets
import sys
from importlib import import_module
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

EXTENSIONS = (
    "ottla.protocol.records._record_validation",
    "ottla.protocol.direct_codecs._produce_frames",
    "ottla.dataplane.log.segments._batch_search",
    "ottla.dataplane.log.recovery._plain_batches",
    "ottla.dataplane.share.leader._key_hashes",
)
PLAYED = ("produce", "batches", "segments", "keys of records")


def load(folder: Path, name: str) -> None:
    """Load an extension of `folder` in place of the usual one."""
    stem = name.replace(".", "/")
    (path,) = folder.glob(f"{stem}.*.so")
    spec = spec_from_file_location(name, path, loader=ExtensionFileLoader(name, str(path)))
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    package, _, short = name.rpartition(".")
    setattr(sys.modules[package], short, module)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--inputs", type=int, default=100_000, help="of each target")
    parser.add_argument("--seed", type=int, default=secrets.randbits(32))
    args = parser.parse_args()
    for name in EXTENSIONS:
        import_module(name.rpartition(".")[0])
        load(args.folder, name)
    # Imported only now, since it imports the loaded extensions.
    from tests.fuzz.run import play, timed
    from tests.fuzz.targets import TARGETS

    print(f"seed {args.seed}", flush=True)
    for target in TARGETS:
        if target.name in PLAYED:
            with timed(f"{target.name}: {args.inputs:,} inputs"):
                play(target, args.seed, range(args.inputs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
