"""Real clusters on loopback: primaries with one replica each, and the ways in which slots move between them.

    with Cluster(spec) as cluster:
        with cluster.client() as client:                  # redis-py's RedisCluster: follows MOVED and ASK
            client.execute_command("BF.ADD", "seen", "ada")
        slot = key_slot(b"seen")
        cluster.move_slot(slot, cluster.other_primary(slot))    # as redis-cli --cluster reshard does
        replica = cluster.replica_of(cluster.owner(slot))
        cluster.promote(replica)

Each node is a `Server`. A `primary` is any node that currently has that role.
"""

import contextlib
import itertools
import re
import time

import redis
from redis.backoff import ConstantBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.crc import key_slot
from redis.retry import Retry

from kit.filters import batches, pairs
from kit.servers import Server, Spec, wait_for

SLOTS = 16384
PRIMARIES = 3

# How long a node may be silent before the others declare it dead. The time is normally long, so that a short pause of
# the machine doesn't cause a failover. It is short while nodes meet, fail over or come back, because a short time also
# makes them exchange messages more often.
PATIENT_MS, IMPATIENT_MS = 60_000, 1500

SETTLE_SECONDS = 60  # within which all nodes must agree on something that spreads by gossip


class Cluster:
    """Three primaries, each with a replica. `config` and `module_args` apply to every node. If `joined` is false, the
    nodes don't know about each other yet."""

    def __init__(self, spec: Spec, *, joined: bool = True, config=None, **options):
        settings = {
            "cluster-enabled": "yes",
            "cluster-config-file": "nodes.conf",
            "cluster-node-timeout": IMPATIENT_MS,
            # A replica takes over no matter how long it has been disconnected from its primary.
            "cluster-replica-validity-factor": 0,
            "cluster-migration-barrier": 9,  # replicas stay with their primaries
            **(config or {}),
        }
        self.spec = spec
        self.nodes: list[Server] = []
        try:
            for _ in range(2 * PRIMARIES):
                self.nodes.append(Server(spec, config=settings, **options))
            self._ids = {node: node.command("CLUSTER", "MYID").decode() for node in self.nodes}
            if joined:
                self._join()
        except BaseException:
            self.destroy()
            raise

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_) -> None:
        self.destroy()

    def destroy(self) -> None:
        for node in self.nodes:
            node.destroy()

    def check(self) -> None:
        for node in self.nodes:
            node.check()

    def _join(self) -> None:
        first, *others = self.nodes
        for epoch, node in enumerate(self.nodes, 1):
            node.command("CLUSTER", "SET-CONFIG-EPOCH", epoch)  # otherwise nodes would have to resolve conflicts
        for node in others:
            first.command("CLUSTER", "MEET", "127.0.0.1", node.port)
        bounds = [SLOTS * number // PRIMARIES for number in range(PRIMARIES + 1)]
        for node, start, end in zip(self.nodes, bounds[:-1], bounds[1:], strict=False):
            node.command("CLUSTER", "ADDSLOTSRANGE", start, end - 1)
        self._until(lambda node: int(cluster_info(node)["cluster_known_nodes"]) == len(self.nodes), "to meet")
        for replica, primary in zip(self.nodes[PRIMARIES:], self.nodes, strict=False):
            self._until(lambda node, primary=primary: self._ids[primary] in peers(node), "to know each other")
            replica.command("CLUSTER", "REPLICATE", self._ids[primary])
        self.wait_until_ok()
        self._set_node_timeout(PATIENT_MS)

    def _until(self, condition, what: str) -> None:
        for node in self.nodes:
            if node.alive():
                wait_for(lambda node=node: condition(node), f"{node} {what}", SETTLE_SECONDS)

    # ---- who is who -------------------------------------------------------------------------------------------------

    def id(self, node: Server) -> str:
        return self._ids[node]

    def primaries(self) -> list[Server]:
        return [node for node in self.nodes if node.alive() and role(node) == "master"]

    def replica_of(self, primary: Server) -> Server:
        """The primary's only replica."""
        alive = [node for node in self.nodes if node.alive()]
        (replica,) = [node for node in alive if peers(node)[self._ids[node]].of == self._ids[primary]]
        return replica

    def owner(self, slot: int) -> Server:
        (owner,) = [node for node in self.nodes if node.alive() and slot in own_slots(node)]
        return owner

    def other_primary(self, slot: int) -> Server:
        """The primary after the slot's owner, so that a slot that is moved again and again visits all primaries."""
        primaries = self.primaries()
        return primaries[(primaries.index(self.owner(slot)) + 1) % len(primaries)]

    def wait_until_ok(self) -> None:
        """Waits until every slot is served, every replica is in sync, and all nodes agree on roles and slots. A primary
        that doesn't know its replica yet might not let the replica take over."""

        def is_ok(node: Server) -> bool:
            try:
                info = cluster_info(node)
            except redis.BusyLoadingError:  # a replica that is loading its primary's data
                return False
            if info["cluster_state"] != "ok" or int(info["cluster_slots_ok"]) != SLOTS:
                return False
            replication = node.info("replication")
            return replication["role"] == "master" or replication["master_link_status"] == "up"

        def agree() -> bool:
            alive = [node for node in self.nodes if node.alive()]
            ids = {self._ids[node] for node in alive}
            views = [
                {peer.id: (peer.of, peer.slots) for peer in peers(node).values() if peer.id in ids} for node in alive
            ]
            return all(view == views[0] for view in views)

        self._until(is_ok, "to find the cluster well")
        wait_for(agree, "all nodes to agree", SETTLE_SECONDS)

    def wait_for_replicas(self) -> None:
        """Waits until every replica has applied everything that its primary has written so far."""
        for replica in self.nodes:
            if replica.alive() and role(replica) == "slave":
                at = peers(replica)[self._ids[replica]].of
                (primary,) = [node for node in self.nodes if self._ids[node] == at]
                written = primary.info("replication")["master_repl_offset"]
                wait_for(
                    lambda replica=replica, written=written: (
                        replica.info("replication")["slave_repl_offset"] >= written
                    ),
                    f"{replica} to catch up",
                    SETTLE_SECONDS,
                )

    # ---- clients ----------------------------------------------------------------------------------------------------

    def client(self, **options) -> RedisCluster:
        """A client that follows redirections. If a primary is down, the client retries until a replica is elected."""
        nodes = [ClusterNode("127.0.0.1", node.port) for node in self.nodes if node.alive()]
        options = {"protocol": 2, "socket_timeout": 60, "retry": Retry(ConstantBackoff(0.2), 5), **options}
        return RedisCluster(startup_nodes=nodes, **options)

    def reader(self, node: Server) -> redis.Redis:
        """A client of one node. It may read data even if the node is a replica."""

        def connect(connection) -> None:
            connection.on_connect()
            connection.send_command("READONLY")
            connection.read_response()

        return node.client(redis_connect_func=connect)

    # ---- moving slots -----------------------------------------------------------------------------------------------

    def move_slot(self, slot: int, target: Server, *, batch: int = 10, between=None) -> None:
        """Moves a slot as `redis-cli --cluster reshard` does: a few keys at a time, then the slot. `between` runs after
        each batch."""
        source = self.owner(slot)
        assert source is not target
        self.begin_move(slot, source, target)
        with source.client() as client:
            while keys := client.execute_command("CLUSTER", "GETKEYSINSLOT", slot, batch):
                migrate(client, target, keys)
                if between:
                    between()
        self.finish_move(slot, source, target)

    def begin_move(self, slot: int, source: Server, target: Server) -> None:
        set_slot(target, slot, "IMPORTING", self._ids[source])
        set_slot(source, slot, "MIGRATING", self._ids[target])

    def finish_move(self, slot: int, source: Server, target: Server) -> None:
        """Assigns the slot, first on the target: if a later step fails, the source redirects clients to the target."""
        others = [node for node in self.primaries() if node not in (source, target)]
        for node in (target, source, *others):
            set_slot(node, slot, "NODE", self._ids[target])

    def move_atomically(self, slots: list[int], target: Server) -> None:
        """Moves whole slots of one owner in a single step, as Valkey 9 can."""
        source = self.owner(slots[0])
        ranges = [word for slot in slots for word in (slot, slot)]
        source.command("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", *ranges, "NODE", self._ids[target])
        deadline = time.monotonic() + SETTLE_SECONDS
        while (job := last_migration(source))["state"] not in ("success", "failed", "cancelled"):
            assert time.monotonic() < deadline, f"the migration has not ended: {job}"
            time.sleep(0.01)
        assert job["state"] == "success", job
        self._until(lambda node: role(node) != "master" or node is target or not owned(node, slots), "to let go")

    # ---- failover ---------------------------------------------------------------------------------------------------

    def promote(self, replica: Server) -> None:
        """An orderly failover: the primary and the replica change roles, and nothing is lost."""
        with self._impatient():
            replica.command("CLUSTER", "FAILOVER")
            wait_for(lambda: role(replica) == "master", f"{replica} to become a primary", SETTLE_SECONDS)
            self.wait_until_ok()

    def lose(self, primary: Server, *, meanwhile=lambda: None) -> Server:
        """Kills a primary with kill -9. Returns its replica after the other nodes have noticed the loss and elected it.
        `meanwhile` runs right after the kill."""
        replica = self.replica_of(primary)
        primary.kill()
        meanwhile()
        with self._impatient():
            wait_for(lambda: role(replica) == "master", f"{replica} to be elected", SETTLE_SECONDS)
            self.wait_until_ok()
        return replica

    def come_back(self, node: Server) -> None:
        """Restarts a killed node, which becomes a replica of its successor."""
        with self._impatient():
            node.start()
            wait_for(lambda: role(node) == "slave", f"{node} to become a replica", SETTLE_SECONDS)
            self.wait_until_ok()

    @contextlib.contextmanager
    def _impatient(self):
        self._set_node_timeout(IMPATIENT_MS)
        yield
        self._set_node_timeout(PATIENT_MS)

    def _set_node_timeout(self, milliseconds: int) -> None:
        for node in self.nodes:
            if node.alive():
                node.command("CONFIG", "SET", "cluster-node-timeout", milliseconds)


# ---- what a node says -----------------------------------------------------------------------------------------------


class Peer:
    """A line of CLUSTER NODES."""

    def __init__(self, line: str):
        self.id, self.address, flags, self.of, _, _, _, self.link, *slots = line.split(" ")
        self.flags = flags.split(",")
        self.slots: set[int] = set()
        for part in slots:
            if not part.startswith("["):  # brackets mark slots that are being moved
                first, _, last = part.partition("-")
                self.slots.update(range(int(first), int(last or first) + 1))


def peers(node: Server) -> dict[str, Peer]:
    lines = node.command("CLUSTER", "NODES")
    lines = lines if isinstance(lines, bytes) else lines.encode()
    return {peer.id: peer for peer in map(Peer, lines.decode().splitlines())}


def own_slots(node: Server) -> set[int]:
    (me,) = [peer for peer in peers(node).values() if "myself" in peer.flags]
    return me.slots


def owned(node: Server, slots) -> bool:
    return not own_slots(node).isdisjoint(slots)


def cluster_info(node: Server) -> dict[str, str]:
    lines = node.command("CLUSTER", "INFO").decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def role(node: Server) -> str:
    return node.command("ROLE")[0].decode()


def migrates_atomically(node: Server) -> bool:
    """Whether the node supports CLUSTER MIGRATESLOTS."""
    subcommands = node.command("COMMAND LIST", "FILTERBY", "PATTERN", "cluster|migrateslots")
    return bool(subcommands)


def last_migration(node: Server) -> dict:
    """The latest atomic slot migration that the node took part in."""
    newest, *_ = node.command("CLUSTER", "GETSLOTMIGRATIONS")
    return pairs([word.decode() if isinstance(word, bytes) else word for word in newest])


def set_slot(node: Server, slot: int, *words) -> None:
    """Runs CLUSTER SETSLOT. A Valkey node first runs it on its replicas, and returns an error if they need more than
    two seconds. In that case, the command is sent again."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        try:
            node.command("CLUSTER", "SETSLOT", slot, *words)
            return
        except redis.ResponseError as error:
            if "NOREPLICAS" not in str(error) or time.monotonic() > deadline:
                raise


def migrate(source: redis.Redis, target: Server, keys, *words) -> bytes:
    """Migrates some keys to another server with MIGRATE."""
    return source.execute_command("MIGRATE", "127.0.0.1", target.port, "", 0, 30_000, *words, "KEYS", *keys)


def tag_in(slots) -> str:
    """A hash tag whose slot is one of `slots`."""
    return next(tag for number in range(1 << 30) if key_slot((tag := f"tag:{number}").encode()) in slots)


# ---- what the filters of a node look like ----------------------------------------------------------------------------


def looks(client, keys) -> dict[str, tuple]:
    """For each key, its digest, which covers everything that its answers depend on, and the replies to the INFO and
    DEBUG commands of both families, without sizes: how much memory a table has to spare depends on its past. None of
    these includes the time that is left until a window rotates."""
    found = {}
    for some in batches(keys, 200):
        digests = client.execute_command("DEBUG", "DIGEST-VALUE", *some)
        with client.pipeline(transaction=False) as pipeline:
            for key in some:
                pipeline.execute_command("BF.INFO", key)
                pipeline.execute_command("CF.INFO", key)
                pipeline.execute_command("BF.DEBUG", key)
                pipeline.execute_command("CF.DEBUG", key)
            replies = map(shown, pipeline.execute(raise_on_error=False))
            for key, digest in zip(some, digests, strict=True):
                found[key] = (digest, *itertools.islice(replies, 4))
    return found


def shown(reply):
    """The reply without sizes, or its text if it is an error. Commands of the other family return an error for the key.
    """
    if not isinstance(reply, list):
        return str(reply)
    if b"Size" in reply:
        reply[reply.index(b"Size") + 1] = None
    return [re.sub(rb"^bytes:\d+ bits:\d+", b"", part) if isinstance(part, bytes) else part for part in reply]
