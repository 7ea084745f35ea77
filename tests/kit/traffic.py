"""Clients that add items to a cluster's filters while the cluster changes, and record which adds were acknowledged.

An add counts as acknowledged when its reply has arrived. Items without a reply may be present or not. Now and then a
client tests an item that it added before: it must find its own writes, wherever they have moved.
"""

import collections
import random
import threading
import time

import redis

from kit.filters import adding, batches

# Items are numbers, because some filters of other systems accept nothing else. They are greater than any item that
# these filters have at the start, and less than 2^31. Each client has its own range.
FIRST_ITEM, ITEMS_OF_A_CLIENT = 100_000_000, 20_000_000


class Traffic(threading.Thread):
    """One client with its own number. `keys` maps each key to the family of its filter. Use it in a `with` statement.

    `latest` maps the keys of filters that may drop items to the number of latest items that they must have
    (`Kind.latest`). With `safe`, an add counts only if WAIT says that a replica also has it, because the primary
    might be killed.
    """

    def __init__(
        self,
        cluster,
        keys: dict[str, str],
        *,
        number: int = 0,
        seed: int = 0,
        safe: bool = False,
        latest: dict[str, int | None] | None = None,
    ):
        super().__init__(daemon=True)
        self.cluster, self.keys, self.safe = cluster, keys, safe
        self.random = random.Random(f"{seed}:{number}")
        self.next_item = FIRST_ITEM + number * ITEMS_OF_A_CLIENT
        self.acknowledged = {key: collections.deque(maxlen=(latest or {}).get(key)) for key in keys}
        self.count = 0  # number of acknowledged items
        self.missed: list[str] = []  # its own items that it tested and didn't find
        self.refused: collections.Counter[str] = collections.Counter()  # errors from filters
        self.failed: collections.Counter[str] = collections.Counter()  # errors because a node was unavailable
        self.unexpected: BaseException | None = None
        self._over = threading.Event()

    def __enter__(self) -> "Traffic":
        self.start()
        return self

    def __exit__(self, *_) -> None:
        self._over.set()
        self.join()
        if self.unexpected:
            raise self.unexpected

    def run(self) -> None:
        keys = sorted(self.keys)
        try:
            with self.cluster.client() as client:
                while not self._over.is_set():
                    self._step(client, self.random.choice(keys))
        except BaseException as error:  # `__exit__` raises it again in the test's thread
            self.unexpected = error

    def _step(self, client, key: str) -> None:
        try:
            if self.acknowledged[key] and self.random.random() < 0.3:
                self._read(client, key)
            else:
                self._write(client, key)
        except (redis.ConnectionError, redis.TimeoutError, redis.exceptions.ClusterError, redis.ReadOnlyError) as error:
            self.failed[type(error).__name__] += 1
            time.sleep(0.02)
            self._look_again(client)
        except redis.ResponseError as error:
            # A node that has just joined, left or lost contact returns one of the first group of errors. The second
            # group means that the filter is full.
            words = str(error).split()
            if words[0] in ("MOVED", "ASK", "CLUSTERDOWN", "LOADING", "UNBLOCKED", "MASTERDOWN", "NOREPLICAS"):
                self.failed[words[0]] += 1
                self._look_again(client)
            elif "full" in str(error).lower() or "expansions" in str(error):
                self.refused[" ".join(words[:6])] += 1
            else:
                raise

    def _look_again(self, client) -> None:
        try:
            client.nodes_manager.initialize()
        except redis.RedisError:
            self.failed["no cluster"] += 1

    def _read(self, client, key: str) -> None:
        item = self.random.choice(self.acknowledged[key])
        if not client.execute_command(f"{self.keys[key]}.EXISTS", key, item):
            self.missed.append(f"{key}: {item}")

    def _write(self, client, key: str) -> None:
        items = [str(self.next_item + place) for place in range(self.random.choice((1, 1, 5)))]
        self.next_item += len(items)
        command = adding(self.keys[key], key, items)
        replies = self._write_safely(client, key, command) if self.safe else client.execute_command(*command)
        for item, reply in zip(items, replies, strict=False):
            if isinstance(reply, redis.ResponseError) or reply == -1:
                self.refused[str(reply)] += 1
            else:
                self.acknowledged[key].append(item)
                self.count += 1

    def _write_safely(self, client, key: str, command: list) -> list:
        """Sends the add and WAIT on one connection to the key's node. WAIT covers only its own connection's writes."""
        node = client.get_redis_connection(client.get_node_from_key(key))
        with node.pipeline(transaction=False) as pipeline:
            pipeline.execute_command(*command)
            pipeline.execute_command("WAIT", 1, 1000)
            replies, replicas = pipeline.execute()
        return replies if replicas else []

    def lost(self, client) -> list[str]:
        """The acknowledged items that this thread didn't find, or that `client` doesn't find now."""
        return self.missed + [
            f"{key}: {item}"
            for key, added in self.acknowledged.items()
            for items in batches(added, 1000)
            for item, found in zip(
                items, client.execute_command(f"{self.keys[key]}.MEXISTS", key, *items), strict=True
            )
            if not found
        ]
