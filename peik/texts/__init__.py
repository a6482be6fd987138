"""The words that Peik speaks to people with, as files beside this one. It only gives them out; nothing is read into them."""

from importlib import resources

NOTICES = "notices.toml"


def built_in() -> str:
    """The notices in every language that Peik brings along, as TOML."""
    return resources.files(__name__).joinpath(NOTICES).read_text(encoding="utf-8")
