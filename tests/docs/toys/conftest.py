"""What lies in `new` is for a copy of the repository, and imports what is only there."""

collect_ignore = ["new"]
