"""`python -m clusterwatt` is the command `clusterwatt`."""

from clusterwatt.cli import main

raise SystemExit(main())
