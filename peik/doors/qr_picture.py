"""QR codes as pictures for a browser. What is in one may be a secret: it is drawn, and never logged."""

import io

TITLE = "Scan it with Telegram: Settings, Devices, Link Desktop Device."


def svg(text: str) -> str | None:
    """A picture that stands by itself. None without the package that draws it, see the extra `sessions`."""
    try:
        import segno
    except ImportError:
        return None
    # A margin of four is what readers are promised, and white below it is there for pages that are dark.
    drawn = io.BytesIO()
    code = segno.make(text, micro=False, error="m")
    code.save(drawn, kind="svg", scale=6, border=4, light="#fff", title=TITLE, xmldecl=False, nl=False)
    return drawn.getvalue().decode()
