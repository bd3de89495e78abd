"""Runs the `ottla` command as `python -m ottla`."""

import sys

from ottla.cli.main import main

sys.exit(main())
