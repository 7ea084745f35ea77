"""What clients see: the text of an error, and how long a PING on another connection is delayed."""

import threading

import pytest
import redis


def refusal(client, *command) -> str:
    with pytest.raises(redis.ResponseError) as caught:
        client.execute_command(*command)
    return str(caught.value)


class Pings:
    """A context manager that sends PINGs on another connection. `longest` is the most CPU time, in seconds, that the
    server's main thread used between the sending of a PING and its reply."""

    def __init__(self, server):
        self.server, self.client = server, server.client()
        self.longest, self.stop = 0.0, threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        while not self.stop.is_set():
            started = self.server.processor()
            self.client.ping()
            self.longest = max(self.longest, self.server.processor() - started)

    def __enter__(self) -> "Pings":
        self.client.ping()
        self.thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.stop.set()
        self.thread.join()
        self.client.close()
