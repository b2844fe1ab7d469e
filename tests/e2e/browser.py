"""Headless Chromium, driven over the DevTools protocol (https://chromedevtools.github.io/devtools-protocol/)."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

from tests.e2e.servers import running, wait_for

ANSWER_S = 10.0
POLL_S = 0.1
FLAGS = (
    "--headless=new",
    "--no-sandbox",  # its sandbox does not work for root
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-port=0",
    "--hide-scrollbars",
)


class Tab:
    """One page: what it shows, and every error that it reported."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse[bool]) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.errors: list[str] = []

    async def listen(self) -> None:
        """Take answers and events until the connection ends."""
        async for message in self._socket:
            answer = message.json()
            if "id" in answer:
                self._waiting.pop(answer["id"]).set_result(answer)
            else:
                self._note(answer["method"], answer["params"])

    def _note(self, method: str, event: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            details = event["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and event["type"] in ("error", "assert"):
            self.errors.append(" ".join(str(argument.get("value")) for argument in event["args"]))
        elif method == "Log.entryAdded" and event["entry"]["level"] == "error":
            self.errors.append(f"{event['entry']['text']} {event['entry'].get('url', '')}")

    async def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command and its result."""
        number = next(self._numbers)
        self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        answer = await asyncio.wait_for(self._waiting[number], ANSWER_S)
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    async def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression on the page."""
        answer = await self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise AssertionError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    async def until(self, expression: str, within_s: float) -> Any:
        """Wait until an expression on the page is true."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + within_s
        while not (answer := await self.ask(expression)):
            if loop.time() > end_s:
                raise AssertionError(f"not within {within_s:g} s: {expression}; errors: {self.errors}")
            await asyncio.sleep(POLL_S)
        return answer

    async def screenshot(self, file: Path) -> None:
        """The whole page as a PNG."""
        shot = await self.send("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(shot["data"]))


@contextlib.asynccontextmanager
async def tab(program: Path, folder: Path, size: str = "1400,1000") -> AsyncIterator[Tab]:
    """An empty tab of a Chromium with a profile of its own."""
    log, profile = folder / "chromium.log", folder / "profile"
    command: list[str | Path] = [
        program,
        *FLAGS,
        f"--window-size={size}",
        f"--user-data-dir={profile}",
        "about:blank",
    ]
    with running(command, log) as process:
        port_file = profile / "DevToolsActivePort"  # Chromium writes it when it listens: port, then path
        port, _ = wait_for(
            process, log, lambda: port_file.read_text().split() if port_file.exists() else None, "it listens"
        )
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                pages = [target for target in await answer.json() if target["type"] == "page"]
            async with session.ws_connect(pages[0]["webSocketDebuggerUrl"], max_msg_size=64 << 20) as socket:
                opened = Tab(socket)
                listener = asyncio.create_task(opened.listen())
                try:
                    for domain in ("Runtime", "Log", "Page"):
                        await opened.send(f"{domain}.enable")
                    yield opened
                finally:
                    listener.cancel()
