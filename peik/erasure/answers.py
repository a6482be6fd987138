"""What became of a person's data, as REST and the library show it."""

from peik.erasure.service import Report
from peik.outbox.answers import rfc3339


def report_view(report: Report, *, is_dry: bool) -> dict[str, object]:
    """Without the person: `mark` is a keyed hash, the same as in the audit log."""
    return {
        "id": report.id,
        "mark": report.mark,
        "dry_run": is_dry,
        "state": "dry_run" if is_dry else "done" if report.is_over else "going_on",
        "count": report.count,
        "places": {
            place: {"removed": gone.removed, "blanked": gone.blanked, "left": gone.left}
            for place, gone in report.found.items()
        },
        "notes": list(report.notes),
        "backups": [
            {
                "path": one.path,
                "made_at": rfc3339(one.made_at_ms),
                "goes_at": None if one.goes_at_ms is None else rfc3339(one.goes_at_ms),
            }
            for one in report.backups
        ],
    }
