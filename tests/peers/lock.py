"""Runs redis-py's own lock on commands from stdin, and exits when stdin closes.

The requests, one per line. Each is answered with `ok ANSWER` or `err TEXT`:
    lock NAME LEASE_MS WAIT_MS   whether the lock was acquired
    unlock NAME                  whether it was still held
    extend NAME MS               whether it was still held; sets its lease to MS
    token NAME                   the token that the record should contain
    loop NAME TIMES LEASE_MS     TIMES, after adding 1 to the key `counter` that often by GET and SET
"""

import sys

import redis
from redis.exceptions import LockError

client = redis.Redis(port=int(sys.argv[1]))
locks = {}


def lock(name, lease, wait):
    taken = client.lock(name, timeout=int(lease) / 1000, blocking_timeout=int(wait) / 1000, sleep=0.02)
    if not taken.acquire():
        return False
    locks[name] = taken
    return True


def unlock(name):
    try:
        locks[name].release()
        return True
    except LockError:
        return False


def extend(name, time):
    try:
        return locks[name].extend(int(time) / 1000, replace_ttl=True)
    except LockError:
        return False


def token(name):
    return locks[name].local.token.decode()


def loop(name, times, lease):
    for _ in range(int(times)):
        with client.lock(name, timeout=int(lease) / 1000, sleep=0.005):
            client.set("counter", int(client.get("counter") or 0) + 1)
    return times


for line in sys.stdin:
    command, *words = line.split()
    try:
        answer = {"lock": lock, "unlock": unlock, "extend": extend, "token": token, "loop": loop}[command](*words)
        print("ok", str(answer).lower(), flush=True)
    except Exception as error:
        print("err", type(error).__name__, " ".join(str(error).split()), flush=True)
