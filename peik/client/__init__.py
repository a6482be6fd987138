"""The library: `from peik import Peik`, in this process or over REST."""
