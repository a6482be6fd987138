"""The pages about web frameworks and Celery: their code as it stands, in the real thing, against a real Peik."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest

from peik import BlockingPeik, Unavailable
from peik.testing import Limits, Options, SimServer
from tests.docs.pages import ROOT, blocks
from tests.patience import PATIENCE_S
from tests.processes.programs import KEY, TOKEN, Port, Program, Server, served
from tests.storage.acts import front
from tests.storage.places import OTHER_BOT
from tests.storage.postgres_place import PostgresPlace

Story = Callable[[Server, SimServer, aiohttp.ClientSession], Awaitable[None]]
DJANGO = dict(re.findall(r"^# (\S+)\n((?:.*\n)*)", block)[0] for block in blocks("docs/django.md", "python"))


def told(folder: Path, story: Story) -> None:
    """With a Peik of its own and the simulated Telegram in this process."""

    async def main() -> None:
        async with (
            asyncio.timeout(PATIENCE_S),
            SimServer(options=Options(limits=Limits(on=False)), seed=7) as sim,
            aiohttp.ClientSession() as http,
            served(folder, sim.url, http) as server,
        ):
            await story(server, sim, http)

    asyncio.run(main())


def typed(*words: str, folder: Path, **environment: str) -> str:
    """What a program of the page says in a folder where it stands."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PEIK_", "BOT_"))}
    ran = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=kept | environment | {"PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


# ---- BlockingPeik ----


def test_code_that_is_not_async_sends_reads_and_forks(tmp_path: Path) -> None:
    async def story(server: Server, sim: SimServer, _: aiohttp.ClientSession) -> None:
        def program() -> None:
            with BlockingPeik.connect(server.url, key=KEY) as peik:
                first = peik.send_text(5, "from the parent", wait=PATIENCE_S)
                assert [letter.id for letter in peik.letters(state="completed")] == [first.id]
                assert peik.run(lambda inner: inner.get_queue_stats()).completed == 1
                child = os.fork()
                if child == 0:
                    try:
                        peik.send_text(5, "from the child", wait=PATIENCE_S)
                    finally:
                        os._exit(0)
                os.waitpid(child, 0)
                with pytest.raises(AttributeError, match="run\\(\\)"):
                    peik.on_update  # noqa: B018
            assert peik.send_text(6, "after it was closed", wait=PATIENCE_S).message_id
            peik.close()

        await asyncio.to_thread(program)
        assert sim.telegram.sent.texts(5) == ["from the parent", "from the child"]

    told(tmp_path, story)


def test_it_refuses_to_stop_an_event_loop_and_says_what_is_unreachable() -> None:
    port = Port()  # bound, and nobody listens
    with BlockingPeik.connect(f"http://127.0.0.1:{port.number}", key=KEY) as peik:

        async def program() -> None:
            peik.send_text(5, "hi")

        with pytest.raises(RuntimeError, match="use Peik and await"):
            asyncio.run(program())
        with pytest.raises(Unavailable):
            peik.send_text(5, "hi")


# ---- FastAPI, Flask: the page's module behind a real server ----


async def ordered(http: aiohttp.ClientSession, url: str, chat: int | str, *, as_form: bool) -> tuple[int, object]:
    given = {"data" if as_form else "params": {"chat_id": str(chat)}}
    async with http.post(f"{url}/orders/17/sent", **given) as answer:
        return answer.status, await answer.json()


@pytest.mark.parametrize(
    ("page", "arguments", "ready"),
    [
        ("fastapi", ("-m", "uvicorn", "shop:app", "--port", "{port}"), r"(Uvicorn running)"),
        ("flask", ("-m", "flask", "--app", "shop", "run", "--port", "{port}"), r"(Running on http)"),
    ],
)
def test_a_route_hands_its_letter_over_once(page: str, arguments: tuple[str, ...], ready: str, tmp_path: Path) -> None:
    (module,) = blocks(f"docs/{page}.md", "python")
    (tmp_path / "shop.py").write_text(module, encoding="utf-8")

    async def story(server: Server, sim: SimServer, http: aiohttp.ClientSession) -> None:
        port = Port()
        words = [word.format(port=port.number) for word in arguments]
        given = {"PEIK_URL": server.url, "PEIK_KEY": KEY, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
        shop = Program(*words, folder=tmp_path, **given)
        await shop.start(re.compile(ready))
        try:
            url, as_form = f"http://127.0.0.1:{port.number}", page == "flask"
            answers = [await ordered(http, url, 42, as_form=as_form) for _ in range(2)]
            assert [status for status, _ in answers] == [202, 202]
            assert answers[0] == answers[1]  # one letter
            assert (await server.quiet())["completed"] == 1
            assert sim.telegram.sent.texts(42) == ["Order 17 is on its way."]
            refused, _ = await ordered(http, url, 43, as_form=as_form)  # the same key for something else
            await server.program.kill()
            unavailable, _ = await ordered(http, url, 43, as_form=as_form)
            assert (refused, unavailable) == (409, 503)
        finally:
            await shop.terminate()

    told(tmp_path, story)


# ---- Celery: a worker with forked processes, and files as its broker ----


@pytest.mark.gate  # a worker of Celery and an outage
def test_a_task_of_celery_becomes_one_letter_through_an_outage(tmp_path: Path) -> None:
    module, *_ = blocks("docs/from-celery.md", "python")
    (tmp_path / "shop.py").write_text(module + FILES_AS_BROKER, encoding="utf-8")
    (tmp_path / "broker").mkdir()

    async def story(server: Server, sim: SimServer, _: aiohttp.ClientSession) -> None:
        given = {"PEIK_URL": server.url, "PEIK_KEY": KEY, "BROKER": "filesystem://"}
        call = "from shop import send_telegram as send; [send.delay(42, 'Your order is on its way', 'order-17') for _ in '12']"
        await server.program.kill()
        await asyncio.to_thread(typed, "-c", call, folder=tmp_path, **given)
        arguments = ("-m", "celery", "-A", "shop", "worker", "--concurrency=2", "--loglevel=INFO")
        worker = Program(*arguments, folder=tmp_path, **given, PYTHONPATH=f"{ROOT}{os.pathsep}{tmp_path}")
        await worker.start(re.compile(r"(Retry in|retry: Retry)"))
        try:
            await server.start()
            await sim.until(lambda: sim.telegram.sent.total >= 1, timeout=PATIENCE_S)
            await said(worker, "succeeded", times=2)
        finally:
            await worker.terminate()
        assert (await server.quiet())["completed"] == 1
        assert sim.telegram.sent.texts(42) == ["Your order is on its way"]

    told(tmp_path, story)


async def said(program: Program, words: str, *, times: int) -> None:
    while True:
        if sum(words in line for line in program.output) >= times:
            return
        await asyncio.sleep(0.05)


FILES_AS_BROKER = """
here = os.path.dirname(__file__)
folder = f"{here}/broker"
app.conf.broker_transport_options = {"data_folder_in": folder, "data_folder_out": folder, "control_folder": f"{here}/control"}
send_telegram.retry_backoff_max = 1
"""


# ---- Django: a project of the page's files ----


def project(folder: Path, databases: Mapping[str, object], *more: str) -> None:
    written = {
        "settings.py": "import os\nINSTALLED_APPS = ['shop']\nSECRET_KEY = 'x'\nROOT_URLCONF = 'urls'\nUSE_TZ = True\n"
        f"DEFAULT_AUTO_FIELD = 'django.db.models.BigAutoField'\nDATABASES = {{'default': {databases!r}}}\n"
        + DJANGO["settings.py"]
        + "\n".join(more),
        "urls.py": "from django.urls import path\nfrom shop.views import buy\nurlpatterns = [path('buy', buy)]\n",
        "manage.py": "import os, sys\nos.environ['DJANGO_SETTINGS_MODULE'] = 'settings'\n"
        "from django.core.management import execute_from_command_line as run\nrun(sys.argv)\n",
        "shop/__init__.py": "",
        "shop/models.py": "from django.db import models\n"
        "class Order(models.Model):\n    chat_id = models.BigIntegerField()\n",
        **{name: text for name, text in DJANGO.items() if name != "settings.py"},
    }
    for name, text in written.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    typed("manage.py", "makemigrations", "shop", folder=folder, PEIK_KEY=KEY)
    typed("manage.py", "migrate", "--verbosity=0", folder=folder, PEIK_KEY=KEY)


SELLING = """
import django
django.setup()
from django.db import transaction
from django.test import Client
from peik.integrations.django import send_text
from shop.models import Order

assert Client().post("/buy", {"chat_id": 42}, headers={"host": "localhost"}).status_code == 201
try:
    with transaction.atomic():
        order = Order.objects.create(chat_id=42)
        send_text(42, "Never sent")
        raise RuntimeError("rolled back")
except RuntimeError:
    pass
with transaction.atomic():
    try:
        with transaction.atomic():
            send_text(42, "Nor this, of a savepoint")
            raise RuntimeError("rolled back")
    except RuntimeError:
        pass
    send_text(42, "Sent with the outer one")
print(Order.objects.count(), "order")
"""


ROLLED_BACK = """
from contextlib import redirect_stdout, suppress
from io import StringIO
from django.db import transaction
from django.test import TestCase, TransactionTestCase, override_settings
from peik.integrations import django as courier

HERE = "peik.integrations.django."


def two_orders():
    with suppress(ZeroDivisionError), transaction.atomic():
        courier.send_text(1, "never sent")
        1 / 0
    with transaction.atomic():
        with suppress(ZeroDivisionError), transaction.atomic():
            courier.send_text(1, "nor this, of a savepoint")
            1 / 0
        courier.send_text(1, "sent")
        assert not courier.sent


@override_settings(PEIK={"BACKEND": HERE + "MemoryBackend"})
class InATestCase(TestCase):
    def test_what_is_rolled_back_is_not_recorded(self):
        courier.sent.clear()
        with self.captureOnCommitCallbacks(execute=True):
            two_orders()
        self.assertEqual([b'"sent"' in call.as_asked.params for call in courier.sent], [True])


class WithRealTransactions(TransactionTestCase):
    @override_settings(PEIK={"BACKEND": HERE + "MemoryBackend"})
    def test_what_is_rolled_back_is_not_recorded(self):
        courier.sent.clear()
        two_orders()
        self.assertEqual([b'"sent"' in call.as_asked.params for call in courier.sent], [True])

    @override_settings(PEIK={"BACKEND": HERE + "ConsoleBackend"})
    def test_nor_is_it_shown(self):
        courier.sent.clear()
        with redirect_stdout(StringIO()) as shown:
            two_orders()
        self.assertEqual(shown.getvalue(), "sendMessage {'chat_id': 1, 'text': 'sent'}\\n")
"""


def test_a_project_of_django_sends_at_its_commit_alone(tmp_path: Path) -> None:
    sqlite = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "shop.db")}
    project(tmp_path, sqlite, "PEIK['URL'] = os.environ.get('SHOP_PEIK', '')\nALLOWED_HOSTS = ['*']\n")
    (tmp_path / "sell.py").write_text(SELLING, encoding="utf-8")
    (tmp_path / "shop" / "test_rolled_back.py").write_text(ROLLED_BACK, encoding="utf-8")
    said = typed("manage.py", "test", "shop", folder=tmp_path, PEIK_KEY=KEY)
    assert "Ran 4 tests" in said
    assert "OK" in said

    async def story(server: Server, sim: SimServer, _: aiohttp.ClientSession) -> None:
        given = {"SHOP_PEIK": server.url, "PEIK_KEY": KEY, "DJANGO_SETTINGS_MODULE": "settings"}
        said = await asyncio.to_thread(typed, "sell.py", folder=tmp_path, **given)
        assert "1 order" in said
        assert (await server.quiet())["completed"] == 2
        assert sim.telegram.sent.texts(42) == ["Order 1 is on its way.", "Sent with the outer one"]
        stats = await asyncio.to_thread(typed, "manage.py", "peik", "stats", "--json", folder=tmp_path, **given)
        assert '"completed": 2' in stats

    told(tmp_path, story)


def test_on_postgresql_the_letter_is_in_the_transaction_of_django_itself(tmp_path: Path) -> None:
    PostgresPlace.skip_if_missing()
    place = PostgresPlace(tmp_path)
    where = urlsplit(place.server.url)
    postgres = {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": where.hostname,
        "PORT": where.port,
        "USER": where.username,
    }
    backend = {"BACKEND": "peik.integrations.django.DatabaseBackend", "SCHEMA": place.schema}
    database = {**postgres, "NAME": "postgres", "OPTIONS": {"options": f"-c search_path=shop_{place.schema}"}}

    async def story() -> None:
        async with place.open() as node:
            await node.remove_bot(OTHER_BOT)
            await place.run(f"CREATE SCHEMA shop_{place.schema}")
            more = f"PEIK = {backend!r}\nALLOWED_HOSTS = ['*']\n"
            await asyncio.to_thread(project, tmp_path, database, more)
            (tmp_path / "sell.py").write_text(SELLING, encoding="utf-8")
            given = {"PEIK_KEY": KEY, "DJANGO_SETTINGS_MODULE": "settings"}
            assert "1 order" in await asyncio.to_thread(typed, "sell.py", folder=tmp_path, **given)
            texts = [json.loads(letter.params)["text"] for letter in await front(node, 42)]
            assert texts == ["Order 1 is on its way.", "Sent with the outer one"]

    asyncio.run(story())


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("{'BACKEND': 'peik.integrations.django.DatabaseBackend'}", "needs PostgreSQL"),
        ("{'URI': 'http://127.0.0.1:8081'}", "PEIK has no URI"),
        ("{'URL': 'http://127.0.0.1:8081'}", "missing 1 required"),
    ],
)
def test_settings_that_cannot_be_are_told(given: str, words: str, tmp_path: Path) -> None:
    project(tmp_path, {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}, f"PEIK = {given}\n")
    call = "import django; django.setup(); from peik.integrations.django import send_text; send_text(1, 'hi')"
    with pytest.raises(AssertionError, match=f"ImproperlyConfigured.*{words}"):
        typed("-c", call, folder=tmp_path, PEIK_KEY=KEY, DJANGO_SETTINGS_MODULE="settings")


def test_handlers_in_a_command_of_django_use_its_models(tmp_path: Path) -> None:
    sqlite = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "shop.db")}
    project(tmp_path, sqlite, f"PEIK_STORE = 'sqlite:///bot.db'\nBOT_TOKEN = {TOKEN!r}\n")
    order = "import django; django.setup(); from shop.models import Order; Order.objects.create(chat_id=42)"
    typed("-c", order, folder=tmp_path, PEIK_KEY=KEY, DJANGO_SETTINGS_MODULE="settings")

    async def main() -> None:
        options = Options(limits=Limits(on=False))
        async with asyncio.timeout(PATIENCE_S), SimServer(options=options, seed=7) as sim:
            sim.telegram.write(TOKEN, 42, "How many?")
            given = {"PEIK_API_ROOT": sim.url, "PEIK_KEY": KEY, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
            bot = Program("manage.py", "runbot", folder=tmp_path, **given)
            begun = asyncio.create_task(bot.start(re.compile("(never said)")))
            await sim.until(lambda: sim.telegram.sent.total >= 1, timeout=PATIENCE_S)
            assert await bot.terminate() == 0
            await asyncio.gather(begun, return_exceptions=True)
            assert sim.telegram.sent.texts(42) == ["You have 1 order(s)."]

    asyncio.run(main())
