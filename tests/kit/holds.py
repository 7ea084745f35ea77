"""How long a command holds the main thread of a server, in which time no other client is served.

The time is the processor time of that thread alone, so a busy machine doesn't count. A command holds the thread for as
long as that, unless it waits for workers.
"""

import dataclasses
import time

import redis


@dataclasses.dataclass
class Hold:
    """The longest time that a command held the main thread, and what it was doing."""

    seconds: float
    what: str


class Clock:
    """Runs commands, and keeps of each the longest hold."""

    def __init__(self, server):
        self.server = server
        self.client = server.client(socket_timeout=600)
        self.holds: dict[str, Hold] = {}

    def run(self, what: str, *words):
        seconds, reply = self.time(*words)
        command = words[0]
        if seconds >= self.holds.get(command, Hold(0, "")).seconds:
            self.holds[command] = Hold(seconds, what)
        return reply

    def time(self, *words):
        """The seconds that a command takes, and its reply, which may be an error. Others are served while the arguments
        come in, so it counts from the last byte of them.
        """
        connection = self.client.connection_pool.get_connection()
        *parts, last = connection.pack_command(*words)
        connection.connect()
        connection.send_packed_command([*parts, last[:-1]])
        before = self.idle()
        connection.send_packed_command([last[-1:]])
        try:
            reply = connection.read_response()
        except redis.ResponseError as error:
            reply = error
        seconds = self.idle() - before
        self.client.connection_pool.release(connection)
        return seconds, reply

    def idle(self) -> float:
        """The time used when the thread has done what there was to do; its periodic work is a few microseconds."""
        seen, now = -1.0, self.server.processor()
        while now - seen > 0.0005:
            time.sleep(0.004)
            seen, now = now, self.server.processor()
        return now

    def quietly(self, *words):
        return self.client.execute_command(*words)
