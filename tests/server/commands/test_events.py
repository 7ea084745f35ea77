"""Events for other modules. The module in this file is hostile: when it gets an event for a key, it tests an item in
that key's filter and deletes the key. A command that used the filter after its event would access freed memory."""

import shutil
import subprocess
import time

import pytest

from kit.servers import wait_for

EVERY_SERVER = pytest.mark.every_server("the server calls the other module in the middle of a command")

# A module that adds each event to the list `seen`, with the answer to `BF.EXISTS key new`, and deletes the key. It
# declares only the part of the module API that it needs.
HOSTILE = r"""
#include <stdio.h>
typedef struct Context Context;
typedef struct String String;
typedef struct Reply Reply;
static int (*SetModuleAttribs)(Context *, const char *, int, int);
static int (*SubscribeToKeyspaceEvents)(Context *, int, int (*)(Context *, int, const char *, String *));
static Reply *(*Call)(Context *, const char *, const char *, ...);
static long long (*CallReplyInteger)(Reply *);
static void (*FreeCallReply)(Reply *);

static int heard(Context *ctx, int type, const char *event, String *key) {
    char line[100];
    Reply *reply = Call(ctx, "BF.EXISTS", "sc", key, "new");
    snprintf(line, sizeof line, "%s %lld", event, reply ? CallReplyInteger(reply) : -1);
    if (reply) FreeCallReply(reply);
    FreeCallReply(Call(ctx, "RPUSH", "cc", "seen", line));
    FreeCallReply(Call(ctx, "DEL", "s", key));
    return 0;
}

int RedisModule_OnLoad(Context *ctx, void **argv, int argc) {
    int (*get)(const char *, void *) = *(int (**)(const char *, void *))ctx;
    get("RedisModule_SetModuleAttribs", &SetModuleAttribs);
    get("RedisModule_SubscribeToKeyspaceEvents", &SubscribeToKeyspaceEvents);
    get("RedisModule_Call", &Call);
    get("RedisModule_CallReplyInteger", &CallReplyInteger);
    get("RedisModule_FreeCallReply", &FreeCallReply);
    SetModuleAttribs(ctx, "hostile", 1, 1);
    return SubscribeToKeyspaceEvents(ctx, 1 << 13, heard); /* the events of modules */
}
"""


@pytest.fixture
def hostile(new_server, tmp_path):
    compiler = shutil.which("cc") or pytest.skip("there is no C compiler")
    (tmp_path / "hostile.c").write_text(HOSTILE)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", "hostile.so", "hostile.c"], cwd=tmp_path, check=True)
    server = new_server()
    with server.client(decode_responses=True) as client:
        yield lambda: client.execute_command("MODULE", "LOAD", str(tmp_path / "hostile.so")), client


@EVERY_SERVER
def test_events_come_when_the_command_is_done(hostile):
    """A rotation by the clock has its own event. When other modules get it, the item has been added, and the command no
    longer uses the filter."""
    load, client = hostile
    client.execute_command("BF.RESERVE", "kept", 0.001, 100, "WINDOW", 3, "EVERY", 30)
    load()
    for command in (["BF.ADD", "key", "new"], ["BF.MADD", "key", "new", "b"], ["BF.BULKADD", "key", "FIXED", 3, "new"]):
        client.copy("kept", "key")  # COPY sends no module event
        time.sleep(0.05)
        assert client.execute_command(*command) in (1, [1, 1])
        assert client.lrange("seen", 0, -1) == ["bf.rotate 1", "bf.add 0"]
        assert not client.exists("key")
        client.delete("seen")


COMMANDS = [
    *("BF.RESERVE key 0.01 100", "BF.ADD key new", "BF.ADDNX key new", "BF.MADD key a new", "BF.INSERT key ITEMS new"),
    *("BF.BULKADD key FIXED 3 new", "BF.MERGE key other", "BF.IMPORT key GOZERO missing BITS 1024"),
    *("CF.RESERVE key 100", "CF.ADD key new", "CF.ADDNX key new", "CF.INSERT key ITEMS new a"),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_key_goes_with_the_event(hostile, command):
    """A module deletes the key when it gets the event, even in the middle of a script. The reply is the same as always.
    """
    load, client = hostile
    client.execute_command("BF.RESERVE", "other", 0.01, 100)
    expected = client.execute_command(*command.split())
    client.delete("key")
    load()
    for run in (
        lambda: client.execute_command(*command.split()),
        lambda: client.eval(f"return redis.call({', '.join(map(repr, command.split()))})", 0),
    ):
        assert str(run()).replace("True", "1") == str(expected).replace("True", "1")
        assert client.lrange("seen", 0, -1), "there was an event"
        wait_for(lambda: not client.exists("key"), "the key to be deleted")
        client.delete("seen")
