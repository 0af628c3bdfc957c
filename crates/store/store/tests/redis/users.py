"""Does what users of redis-py and of Django's cache do: users.py PORT"""

import asyncio
import json
import sys
import threading
import time

import redis
import redis.asyncio
from django.conf import settings

PORT = int(sys.argv[1])
TIMEOUT = 60


def until(what, condition):
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline, what


def client(**options):
    options = {"decode_responses": True, "socket_timeout": TIMEOUT, **options}
    return redis.Redis(host="127.0.0.1", port=PORT, **options)


def refused(call, *arguments):
    try:
        call(*arguments)
    except redis.ResponseError as error:
        return str(error)
    raise AssertionError("it is not refused")


def commands(protocol):
    r = client(protocol=protocol)
    assert r.flushall() and r.ping()
    assert r.set("a", "1", ex=100) and 90 < r.ttl("a") <= 100
    assert r.set("a", "2", nx=True) is None
    assert r.set("a", "2", get=True) == "1" and r.ttl("a") == -1
    assert r.mset({"b": 1, "c": 2}) and r.mget("a", "b", "none") == ["2", "1", None]
    assert not r.msetnx({"b": 0, "z": 0})
    assert r.incrby("b", 5) == 6 and r.decr("b") == 5
    assert r.append("a", "xyz") == 4 and r.getrange("a", 1, -1) == "xyz"
    assert sorted(r.scan_iter(count=2)) == ["a", "b", "c"] and r.dbsize() == 3
    assert r.rename("a", "d") and r.exists("a", "d") == 1 and r.type("d") == "string"
    assert r.expire("d", 50) and r.persist("d") and r.delete("d", "none") == 1
    assert r.getdel("c") == "2" and r.randomkey() == "b"
    assert r.info()["connected_clients"] >= 1 and r.config_get("databases") == {"databases": "16"}
    assert r.client_setname("tester") and r.client_getname() == "tester" and r.time()[0] > 0
    assert r.wait(0, 10) == 0
    r.set("text", "x")
    assert "not an integer" in refused(r.incr, "text")
    assert "unknown command" in refused(r.execute_command, "NONSENSE", "a")
    binary = client(protocol=protocol, decode_responses=False)
    everything = bytes(range(256)) * 100
    assert binary.set(b"\0\r\n", everything) and binary.get(b"\0\r\n") == everything


def pipelines(protocol):
    r = client(protocol=protocol)
    r.flushdb()
    with r.pipeline() as p:
        assert p.set("x", 1).incr("x").get("x").execute() == [True, 2, "2"]
    with r.pipeline(transaction=False) as p:
        for number in range(1000):
            p.set(f"key:{number}", number)
        assert p.execute() == [True] * 1000
    with r.pipeline() as p:
        p.set("x", "text").incr("x").set("y", "done")
        replies = p.execute(raise_on_error=False)
    assert isinstance(replies[1], redis.ResponseError) and r.get("y") == "done"

    # Clients count one counter with WATCH: each increment is made once.
    def increment(pipe):
        count = int(pipe.get("count") or 0)
        pipe.multi()
        pipe.set("count", count + 1)

    def work():
        mine = client(protocol=protocol)
        for _ in range(25):
            mine.transaction(increment, "count")

    r.set("count", 0)
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert r.get("count") == "100", r.get("count")


def collections(protocol):
    r = client(protocol=protocol)
    r.flushdb()
    assert r.hset("user:1", mapping={"name": "Alice", "age": 30}) == 2
    assert r.hgetall("user:1") == {"name": "Alice", "age": "30"}
    assert r.hincrby("user:1", "age") == 31
    assert r.rpush("list", *"abc") == 3 and r.lrange("list", 0, -1) == ["a", "b", "c"]
    assert r.linsert("list", "before", "b", "x") == 4 and r.lpos("list", "b") == 2
    assert r.lmpop(2, "none", "list", direction="LEFT", count=2) == ["list", ["a", "x"]]
    assert r.sadd("red", *"abc") == 3 and r.sadd("blue", *"bcd") == 3
    assert sorted(r.sinter("red", "blue")) == ["b", "c"]
    assert r.smismember("red", ["a", "z"]) == [1, 0] and r.sintercard(2, ["red", "blue"]) == 2
    assert r.zadd("board", {"alice": 10, "bob": 7.5}) == 2 and r.zadd("board", {"bob": 9}, ch=True)
    assert [(m, float(s)) for m, s in r.zrange("board", 0, -1, withscores=True)] == [
        ("bob", 9),
        ("alice", 10),
    ]
    assert r.zscore("board", "alice") == 10 and r.zrevrank("board", "alice") == 0
    assert r.zrangebyscore("board", "(9", "+inf") == ["alice"]
    assert r.zincrby("board", 2, "bob") == 11
    assert sorted(r.zunion(["red", "board"])) == ["a", "alice", "b", "bob", "c"]
    assert sorted(m for m, _ in r.zscan_iter("board")) == ["alice", "bob"]
    assert r.sort("red", alpha=True, desc=True) == ["c", "b", "a"]

    # A rate limiter with a sliding window.
    for moment in range(20):
        with r.pipeline() as p:
            p.zremrangebyscore("window", 0, moment - 10)
            p.zadd("window", {str(moment): moment}).zcard("window").expire("window", 10)
            assert p.execute()[2] == min(moment + 1, 10)

    # Workers take jobs from a queue, and keep each in a list of their own until it is done.
    done = []

    def work(name):
        mine = client(protocol=protocol)
        while (job := mine.blmove("jobs", name, TIMEOUT, "LEFT", "RIGHT")) != "end":
            done.append(job)
            assert mine.lrem(name, 1, job) == 1

    threads = [threading.Thread(target=work, args=(f"worker:{at}",)) for at in range(4)]
    for thread in threads:
        thread.start()
    for number in range(200):
        r.rpush("jobs", f"job:{number}")
    for _ in threads:
        r.rpush("jobs", "end")
    for thread in threads:
        thread.join()
    assert sorted(done) == sorted(f"job:{number}" for number in range(200)), len(done)
    assert r.blpop(["jobs"], timeout=0.01) is None and r.bzpopmin("board")[1] == "alice"


def scripts(protocol):
    r = client(protocol=protocol)
    assert r.flushall() and r.script_flush()
    take = r.register_script("""
        local left = tonumber(redis.call('GET', KEYS[1]) or ARGV[1])
        if left <= 0 then
            return redis.error_reply('EMPTY nothing is left')
        end
        redis.call('SET', KEYS[1], left - 1, 'EX', 100)
        return cjson.encode({left = left - 1, by = ARGV[2]})
    """)
    assert json.loads(take(keys=["left"], args=[2, "a"])) == {"left": 1, "by": "a"}
    assert r.script_exists(take.sha) == [True] and r.script_flush()
    # The client sends the text again when the server does not have the script.
    assert json.loads(take(keys=["left"], args=[2, "b"])) == {"left": 0, "by": "b"}
    assert "EMPTY nothing is left" in refused(lambda: take(keys=["left"], args=[2, "c"]))
    p = r.pipeline(transaction=True)
    take(keys=["other"], args=[5, "d"], client=p)
    p.get("other")
    taken, left = p.execute()
    assert json.loads(taken) == {"left": 4, "by": "d"} and left == "4"
    # Locks.
    lock = r.lock("lock", timeout=50)
    assert lock.acquire() and lock.owned() and not r.lock("lock").acquire(blocking=False)
    assert lock.extend(50, replace_ttl=True) and lock.reacquire()
    assert lock.release() is None and not r.exists("lock")
    with r.lock("lock", timeout=50):
        stolen = r.lock("lock")
        stolen.local.token = b"another"
        try:
            stolen.release()
            raise AssertionError("it is not the owner's")
        except redis.exceptions.LockError:
            pass


def messages(protocol):
    r = client(protocol=protocol)
    p = r.pubsub(ignore_subscribe_messages=True)
    p.subscribe("news", "other")
    p.psubscribe("n*")

    got = []

    def take():
        message = p.get_message(timeout=1)
        got.extend([] if message is None else [message])
        return len(got) == 3

    until("subscribed", lambda: r.pubsub_numsub("news")[0][1] == 1 and r.pubsub_numpat() == 1)
    assert r.publish("news", "hello") == 2 and r.publish("none", "x") == 1
    until("three messages", take)
    assert [m["type"] for m in got] == ["message", "pmessage", "pmessage"], got
    assert [m["data"] for m in got] == ["hello", "hello", "x"], got
    assert set(r.pubsub_channels()) == {"news", "other"}
    p.unsubscribe()
    p.punsubscribe()
    p.close()


async def asynchronous():
    r = redis.asyncio.Redis(host="127.0.0.1", port=PORT, decode_responses=True)
    await r.flushdb()
    counts = await asyncio.gather(*(r.incr("n") for _ in range(100)))
    assert sorted(counts) == list(range(1, 101))
    async with r.pipeline(transaction=True) as p:
        assert await p.set("a", "1").get("a").execute() == [True, "1"]
    async with r.pubsub() as p:
        await p.subscribe("work")
        assert (await p.get_message(timeout=TIMEOUT))["type"] == "subscribe"
        assert await r.publish("work", "now") == 1
        assert (await p.get_message(timeout=TIMEOUT))["data"] == "now"
    await r.aclose()


def cache():
    backend = "django.core.cache.backends.redis.RedisCache"
    location = f"redis://127.0.0.1:{PORT}/3"
    settings.configure(CACHES={"default": {"BACKEND": backend, "LOCATION": location}})
    from django.core.cache import cache as it

    it.clear()
    it.set("page", {"title": "Sprat", "parts": [1, 2.5, None]}, 60)
    assert it.get("page")["parts"] == [1, 2.5, None] and it.get("none", "other") == "other"
    assert not it.add("page", "again") and it.add("first", 1, None)
    assert it.incr("first") == 2 and it.decr("first", 5) == -3
    assert it.touch("page", 600) and it.touch("page", None) and not it.touch("none")
    assert it.get_or_set("made", lambda: "once") == "once" and it.has_key("made")
    assert it.set_many({f"many:{number}": number for number in range(500)}, 300) == []
    assert it.get_many(["many:0", "many:499", "none"]) == {"many:0": 0, "many:499": 499}
    it.delete_many(f"many:{number}" for number in range(500))
    assert it.get("many:7") is None and it.delete("page") and not it.delete("page")
    assert it.incr_version("made") == 2 and it.get("made", version=2) == "once"
    it.set("gone", 1, 0)
    assert it.get("gone") is None
    it.clear()
    assert it.get("first") is None


for version in (2, 3):
    commands(version)
    pipelines(version)
    collections(version)
    scripts(version)
    messages(version)
asyncio.run(asynchronous())
cache()
