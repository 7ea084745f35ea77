"""Servers of tests that run at the same time don't get each other's ports."""

import subprocess
import sys

from kit import servers
from kit.servers import ROOT, Server, free_port

TAKES = """
from kit import servers
servers.PORTS = [{port}]
print(servers.free_port())
"""


def taken_by_another_process(port: int) -> bool:
    done = subprocess.run(
        [sys.executable, "-c", TAKES.format(port=port)], cwd=ROOT / "tests", capture_output=True, text=True, timeout=60
    )
    assert done.stdout == f"{port}\n" or "there is no free port" in done.stderr, done
    return done.returncode == 0


def test_a_port_is_reserved_until_it_is_given_back():
    port = free_port()
    assert not taken_by_another_process(port)
    servers.give_back(port)
    assert taken_by_another_process(port)


def test_a_server_whose_port_is_used_moves_to_another(server, monkeypatch):
    """If the new server kept the port, the server that already listens on the port would answer instead."""
    ports = iter([server.port, free_port()])
    monkeypatch.setattr(servers, "free_port", lambda: next(ports))
    monkeypatch.setattr(servers, "give_back", lambda port: None)
    with Server(server.spec, module=None) as other:
        assert other.port != server.port
        assert other.command("INFO", "server")["process_id"] == other.process.pid
