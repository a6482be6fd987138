"""A program that does jobs on `Peik.open`, to be killed. Its jobs hang, or are done, as it is told. It tells by lines of JSON."""

import asyncio
import json
import os
import sys
import time

from peik import BlockingJob, Job, Peik

mode = sys.argv[2] if len(sys.argv) > 2 else ""
peik = Peik.open(
    sys.argv[1] if len(sys.argv) > 1 else None, token=None, work_free="1M", work=os.environ.get("WORK", "")
)


@peik.job("async", attempts=3)
async def in_loop(job: Job) -> str:
    (job.folder / "part").write_text("half of it")
    tell("began", str(job.folder))
    if mode == "hangs":
        await asyncio.sleep(3600)
    return "by the other"


@peik.job("process", attempts=3, where="process")
def in_process(job: BlockingJob) -> str:
    """Its mode is its program's: it is given the same arguments."""
    (job.folder / "part").write_text("half of it")
    job.progress(0.5, str(os.getpid()))
    if mode == "hangs":
        time.sleep(3600)
    return "by the other"


def tell(what: str, text: str) -> None:
    sys.stdout.write(json.dumps([what, text]) + "\n")
    sys.stdout.flush()


async def main() -> None:
    async with peik:
        tell("open", "")
        await peik.run()


if __name__ == "__main__":
    asyncio.run(main())
