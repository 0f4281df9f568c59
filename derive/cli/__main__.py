"""`python -m derive.cli`."""

from derive.cli import main

main()
