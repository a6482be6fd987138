"""Which addresses a webhook may have, and which machines may be spoken to."""

import ipaddress

import pytest

from peik.core.address import URL_CHARS_MAX, AddressReach, reach_of, read_address
from peik.errors import BadInput


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("https://shop.example", "https://shop.example/"),
        ("HTTPS://Shop.Example/Hook?a=B", "https://shop.example/Hook?a=B"),
        ("http://shop.example:8080/x#part", "http://shop.example:8080/x"),
        ("https://8.8.8.8/x", "https://8.8.8.8/x"),
        ("https://[2606:4700:0::1111]:8443", "https://[2606:4700::1111]:8443/"),
        ("https://xn--mgba3gch31f.example/", "https://xn--mgba3gch31f.example/"),
    ],
)
def test_an_address_has_one_form(given: str, kept: str) -> None:
    assert read_address(given, reach=AddressReach.PUBLIC) == kept


@pytest.mark.parametrize(
    "given",
    [
        "",
        "shop.example/hook",
        "ftp://shop.example/",
        "file:///etc/passwd",
        "http:///hook",
        "http://user:password@shop.example/",
        "http://shop.example:0/",
        "http://shop.example:65536/",
        "http://shop.example/a b",
        "http://shop.example/\r\nHost: other",
        "http://shop.example\\@127.0.0.1/",
        "http://[::1/",
        "http://-shop.example/",
        "http://دکان.example/",
        # Numbers that resolvers read as 127.0.0.1.
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0x7f.1/",
        "http://127.1/",
        "http://0177.0.0.1/",
        "http://127.0.0.1./",
        "https://shop.example/" + "x" * URL_CHARS_MAX,
    ],
)
def test_what_is_no_plain_address_is_refused(given: str) -> None:
    for reach in AddressReach:
        with pytest.raises(BadInput) as problem:
            read_address(given, reach=reach)
        assert problem.value.code == "bad_webhook_url"


PRIVATE = ["127.0.0.1", "[::1]", "localhost", "a.localhost", "LOCALHOST.", "169.254.169.254", "10.1.2.3", "[fd00::1]"]


NEVER = [
    "169.254.169.254",
    "[fe80::1]",
    "[::ffff:169.254.169.254]",
    "[fd00:ec2::254]",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
]


@pytest.mark.parametrize("host", [*PRIVATE, *NEVER])
def test_link_local_addresses_and_metadata_services_are_further_than_inside(host: str) -> None:
    if host in NEVER:
        with pytest.raises(BadInput):
            read_address(f"http://{host}/latest/meta-data/", reach=AddressReach.INSIDE)
    else:
        read_address(f"http://{host}/", reach=AddressReach.INSIDE)


@pytest.mark.parametrize("host", PRIVATE)
def test_private_hosts_are_refused_at_once_unless_allowed(host: str) -> None:
    with pytest.raises(BadInput) as problem:
        read_address(f"http://{host}:80/x", reach=AddressReach.PUBLIC)
    assert problem.value.code == "private_webhook_url"
    assert read_address(f"http://{host}:80/x", reach=AddressReach.ANYWHERE) == f"http://{host.lower()}:80/x"


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.9.9.9", "0.0.0.0", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1"),
        *("169.254.169.254", "100.64.0.1", "192.0.0.1", "192.0.0.9", "198.18.0.1", "192.0.2.1", "203.0.113.1"),
        *("224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255"),
        *(
            "::",
            "::1",
            "::127.0.0.1",
            "fe80::1",
            "fe80::1%eth0",
            "fc00::1",
            "fd12::1",
            "fec0::1",
            "ff02::1",
            "2001:db8::1",
        ),
        # An address within an address.
        *(
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "2002:7f00:1::",
            "2002:a00:1::",
            "64:ff9b::127.0.0.1",
            "64:ff9b::a9fe:a9fe",
        ),
        *("2001:0:53aa:64c:0:0:80ff:fffe", "64:ff9b:1::1"),
    ],
)
def test_machines_that_are_not_of_the_open_internet(address: str) -> None:
    assert reach_of(ipaddress.ip_address(address)) > AddressReach.PUBLIC


@pytest.mark.parametrize("address", ["1.1.1.1", "172.32.0.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_machines_of_the_open_internet(address: str) -> None:
    assert reach_of(ipaddress.ip_address(address)) is AddressReach.PUBLIC
