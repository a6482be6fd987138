"""A downloader bot in a hundred lines of Python's own library, with the faults that it is told to have: `leaves` a film behind,
`silent` where there is none, `greedy` beyond its bounds, `cut` what it sends, `holds` a file open for each, `deaf` to /start."""

import http.client
import json
import os
import re
import sys
import tempfile
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections import defaultdict
from typing import Any

FAULTS = set(sys.argv[1:])
HELD: list[Any] = []
ROOT = f"{os.environ['PEIK_API_ROOT']}/bot{os.environ['BOT_TOKEN']}"
PLACES = threading.Semaphore(999 if "greedy" in FAULTS else int(os.environ["MAX_CONCURRENT_DOWNLOADS"]))
OF_ONE: dict[int, threading.Semaphore] = defaultdict(
    lambda: threading.Semaphore(999 if "greedy" in FAULTS else int(os.environ["MAX_DOWNLOADS_PER_USER"]))
)


def ask(method: str, body: bytes | None = None, kind: str = "application/json", **params: Any) -> Any:
    content = json.dumps(params).encode() if body is None else body
    request = urllib.request.Request(f"{ROOT}/{method}", content, {"Content-Type": kind})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["result"]


def send_film(chat: int, content: bytes) -> None:
    begin = b'--x\r\nContent-Disposition: form-data; name="chat_id"\r\n\r\n%d\r\n' % chat
    begin += b'--x\r\nContent-Disposition: form-data; name="video"; filename="film.mp4"\r\n\r\n'
    ask("sendVideo", begin + content + b"\r\n--x--\r\n", "multipart/form-data; boundary=x")


def fetched(url: str, *, tries: int = 3) -> bytes:
    for left in reversed(range(tries)):
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                return bytes(answer.read())
        except (http.client.IncompleteRead, urllib.error.HTTPError) as error:
            if not left or (isinstance(error, urllib.error.HTTPError) and error.code < 500):
                raise
    raise AssertionError("it is read or raised")


def work(chat: int, url: str) -> None:
    status = ask("sendMessage", chat_id=chat, text="Looking 1 %")
    with OF_ONE[chat], PLACES:
        try:
            found = re.search(rb'src="([^"]+)"', fetched(url)) if "/watch/" in url else None
            content = fetched(urllib.parse.urljoin(url, found[1].decode()) if found else url)
        except urllib.error.HTTPError as error:
            if "silent" not in FAULTS:
                ask("sendMessage", chat_id=chat, text=f"The site said {error.code}.")
            return
    if "leaves" in FAULTS:
        with tempfile.NamedTemporaryFile(delete=False) as file:
            file.write(content)
    if "holds" in FAULTS:
        HELD.append(open(os.devnull, "rb"))  # noqa: PTH123, SIM115  that is the fault
    send_film(chat, content[:-1] if "cut" in FAULTS else content)
    ask("deleteMessage", chat_id=chat, message_id=status["message_id"])


def main() -> None:
    sys.stdout.write("It runs.\n")
    offset = 0
    while True:
        for update in ask("getUpdates", offset=offset, timeout=5):
            offset = update["update_id"] + 1
            message = update.get("message", {})
            chat, text = message["chat"]["id"], message["text"]
            if text.startswith("http"):
                threading.Thread(target=work, args=(chat, text), daemon=True).start()
            elif "deaf" not in FAULTS:
                ask("sendMessage", chat_id=chat, text="Hello")


if __name__ == "__main__":
    main()
