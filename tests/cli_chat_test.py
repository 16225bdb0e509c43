"""`run` on a terminal: history, commands, Ctrl-C, pasted text."""

import json
import os
import pty
import re
import select
import signal
import time

import pytest

from cli_support import environment
from conftest import SPARKLING


class Terminal:
    """A chat on a pseudo-terminal."""

    def __init__(self, tmp_path, *arguments):
        self.seen = ""
        self.child, self.fd = pty.fork()
        if self.child == 0:
            variables = environment(XDG_STATE_HOME=str(tmp_path), TERM="xterm", NO_COLOR="1", LC_ALL="C.UTF-8")
            os.execve(str(SPARKLING), [str(SPARKLING), "run", *map(str, arguments)], variables)

    def expect(self, pattern, timeout=60):
        """Waits for new output that matches; returns what came up to its end."""
        end = time.monotonic() + timeout
        while True:
            found = re.search(pattern, self.seen)
            if found:
                text, self.seen = self.seen[: found.end()], self.seen[found.end() :]
                return text
            left = end - time.monotonic()
            assert left > 0 and select.select([self.fd], [], [], left)[0], f"no {pattern!r} in {self.seen!r}"
            try:
                self.seen += os.read(self.fd, 65536).decode("utf-8", "replace")
            except OSError:  # the other side closed
                raise AssertionError(f"ended without {pattern!r}: {self.seen!r}") from None

    def send(self, text):
        os.write(self.fd, text.encode())

    def status(self):
        for _ in range(600):
            done, status = os.waitpid(self.child, os.WNOHANG)
            if done:
                self.child = 0
                return os.waitstatus_to_exitcode(status)
            try:
                if select.select([self.fd], [], [], 0.1)[0]:
                    os.read(self.fd, 65536)
            except OSError:
                time.sleep(0.05)
        raise AssertionError("did not end")

    def close(self):
        if self.child:
            os.kill(self.child, signal.SIGKILL)
            os.waitpid(self.child, 0)
        os.close(self.fd)


@pytest.fixture
def terminal(tmp_path):
    made = []

    def make(*arguments):
        made.append(Terminal(tmp_path, *arguments))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_chat_answers_keeps_history_and_quits(terminal, tmp_path):
    chat = terminal("--max-tokens", 12, "--temperature", 0)
    chat.expect("> ")
    chat.send("Say hello.\n")
    chat.expect("tok/s")
    chat.expect("> ")
    chat.send("And again.\n")
    line = chat.expect("tok/s[^\n]*\n")
    assert re.search(r"[1-9][0-9]* cached", line), line  # the live session was extended, not rebuilt
    chat.expect("> ")
    chat.send("/quit\n")
    assert chat.status() == 0
    history = (tmp_path / "sparkling" / "history").read_text()
    assert "Say" in history and "/quit" in history


def test_chat_commands(terminal, tmp_path):
    chat = terminal("--max-tokens", 4, "--temperature", 0)
    chat.expect("> ")
    for command, expected in [
        ("/help", "/thinking"),
        ("/hlep", "did you mean '/help'"),
        ("/system Be brief.", "system"),
        ("/thinking off", "off"),
        ("/thinking perhaps", "expected on or off"),
        ("/clear", "clear"),
    ]:  # fmt: skip
        chat.send(command + "\n")
        chat.expect(re.escape(expected))
        chat.expect("> ")
    chat.send("Hello\n")
    chat.expect("tok/s")
    chat.expect("> ")
    chat.send(f"/save {tmp_path}/chat.json\n")
    chat.expect("saved")
    saved = json.loads((tmp_path / "chat.json").read_text())
    assert [m["role"] for m in saved["messages"]] == ["system", "user", "assistant"]
    chat.expect("> ")  # between two prompts the terminal itself would take the next key
    chat.send("\x04")  # Ctrl-D
    assert chat.status() == 0


def test_ctrl_c_stops_the_answer_not_the_chat(terminal):
    chat = terminal("--ignore-eos", "--max-tokens", 20000)
    chat.expect("> ")
    chat.send("Count.\n")
    chat.expect("Count\\.\r\n.")
    time.sleep(1)
    chat.send("\x03")
    chat.expect("stopped")
    chat.expect("> ")
    chat.send("half a line\x03")
    chat.expect("> ")
    chat.send("/quit\n")
    assert chat.status() == 0


def test_pasted_lines_are_one_message(terminal, tmp_path):
    chat = terminal("--max-tokens", 2, "--temperature", 0)
    chat.expect("> ")
    chat.send("first line\nsecond line\nthird line\n")
    chat.expect("tok/s")
    chat.expect("> ")
    chat.send(f"/save {tmp_path}/chat.json\n")
    chat.expect("saved")
    saved = json.loads((tmp_path / "chat.json").read_text())
    assert saved["messages"][0]["content"] == "first line\nsecond line\nthird line"
