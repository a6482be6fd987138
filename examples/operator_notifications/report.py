"""A report as PDF, one page, made on the spot. The same facts always make the same bytes."""


def pdf(lines: list[str]) -> bytes:
    """Equal bytes for equal lines, without a date inside: under one idempotency key a repeat must be the same call.

    The built-in Helvetica has Latin letters only; for others a font would have to be embedded, and a library should do that."""
    shown = " T* ".join(f"({_escaped(line)}) Tj" for line in lines)
    page = f"BT /F1 14 Tf 20 TL 60 780 Td {shown} ET".encode("latin-1", "replace")
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%b\nendstream" % (len(page), page),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    whole, places = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        places.append(len(whole))
        whole += b"%d 0 obj\n%b\nendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)  # 20 bytes a row, as the format wants it
    size = len(objects) + 1
    end = b"xref\n0 %d\n0000000000 65535 f \n%btrailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n"
    return whole + end % (size, table, size, len(whole))


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")
