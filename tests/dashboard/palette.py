"""Small PNGs: of a screenshot the 256 colours that matter. Chromium counts them, since it is here anyway."""

import base64
import struct
import zlib
from typing import Any

from playwright.async_api import Page

_COUNT = """async (png) => {
  const image = new Image();
  image.src = "data:image/png;base64," + png;
  await image.decode();
  const canvas = new OffscreenCanvas(image.width, image.height);
  const brush = canvas.getContext("2d");
  brush.drawImage(image, 0, 0);
  const bytes = brush.getImageData(0, 0, image.width, image.height).data;
  const size = image.width * image.height;
  const found = new Map();
  const key = (at) => (bytes[4 * at] << 16) | (bytes[4 * at + 1] << 8) | bytes[4 * at + 2];
  for (let at = 0; at < size; at++) found.set(key(at), (found.get(key(at)) ?? 0) + 1);
  // The most used ones, but none that is hardly different from one that is already there.
  const chosen = [];
  const apart = (a, b, shift) => Math.abs(((a >> shift) & 255) - ((b >> shift) & 255));
  const distance = (a, b) => apart(a, b, 16) + apart(a, b, 8) + apart(a, b, 0);
  const ranked = [...found.keys()].sort((a, b) => found.get(b) - found.get(a));
  for (const colour of ranked) {
    if (chosen.length < 64 || (chosen.length < 256 && chosen.every((one) => distance(one, colour) > 8))) chosen.push(colour);
  }
  const place = new Map();
  for (const colour of ranked) {
    let best = 0;
    chosen.forEach((one, at) => { if (distance(one, colour) < distance(chosen[best], colour)) best = at; });
    place.set(colour, best);
  }
  const indices = new Uint8Array(size);
  for (let at = 0; at < size; at++) indices[at] = place.get(key(at));
  let text = "";
  for (let at = 0; at < size; at += 32768) text += String.fromCharCode(...indices.subarray(at, at + 32768));
  return { width: image.width, height: image.height, colours: chosen, indices: btoa(text) };
}"""


async def small(service: Page, png: bytes) -> bytes:
    """The same picture as a palette PNG. `desk` is any page that lets scripts run; about:blank will do."""
    counted: dict[str, Any] = await service.evaluate(_COUNT, base64.b64encode(png).decode())
    width, height = counted["width"], counted["height"]
    indices = base64.b64decode(counted["indices"])
    rows = b"".join(b"\0" + indices[at : at + width] for at in range(0, width * height, width))
    colours = b"".join(colour.to_bytes(3, "big") for colour in counted["colours"])
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = ((b"IHDR", head), (b"PLTE", colours), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, body) for name, body in parts)


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
