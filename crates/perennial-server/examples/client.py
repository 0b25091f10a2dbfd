#!/usr/bin/env python3
"""A client of Perennial's HTTP API, with nothing but Python's standard library.

    python3 client.py http://127.0.0.1:7370 NAME ID INPUT EVENT PAYLOAD

Starts instance ID of orchestration NAME, follows its history, raises EVENT when the first turn is recorded, waits for the
result, and lists the instances of that orchestration. INPUT and PAYLOAD are JSON. The stream goes on through restarts of
the server: every turn is printed once. If the server wants a token, it is taken from the variable PERENNIAL_TOKEN.
"""

import base64
import json
import os
import sys
import time
import urllib.error
import urllib.parse
import urllib.request


class Problem(Exception):
    """An error of the API: a code, what happened, and what to do."""

    def __init__(self, members):
        super().__init__(f"{members['code']} {members['title']}: {members['detail']}; {members['remedy']}")
        self.code = members["code"]
        self.retryable = members["retryable"]


# What a restart of the server, or of a proxy before it, looks like.
AWAY = (urllib.error.URLError, ConnectionError, TimeoutError, OSError)


class Client:
    def __init__(self, url, token=None, patience=60):
        self.base = url.rstrip("/") + "/api/v1/"
        # For how many seconds a server may be away.
        self.patience = patience
        self.headers = {"Content-Type": "application/json"}
        if token:
            self.headers["Authorization"] = f"Bearer {token}"

    def open(self, method, path, body=None, headers=None, timeout=90):
        data = None if body is None else json.dumps(body).encode()
        headers = {**self.headers, **(headers or {})}
        request = urllib.request.Request(self.base + path, data=data, method=method, headers=headers)
        try:
            return urllib.request.urlopen(request, timeout=timeout)
        except urllib.error.HTTPError as error:
            if error.headers.get_content_type() != "application/problem+json":
                raise
            raise Problem(json.load(error)) from None

    def call(self, method, path, body=None, headers=None):
        """Sends a request, and again while the server cannot be reached: all requests here can be repeated."""
        until = time.monotonic() + self.patience
        while True:
            try:
                with self.open(method, path, body, headers) as answer:
                    return json.load(answer)
            except Problem as problem:
                if not problem.retryable or time.monotonic() > until:
                    raise
            except AWAY:
                if time.monotonic() > until:
                    raise
            time.sleep(0.2)

    def start(self, name, instance, payload):
        body = {"name": name, "id": instance, "input": payload, "on_existing": "use"}
        return self.call("POST", "instances", body)

    def signal(self, instance, event, payload):
        # The key makes it safe to send the event again.
        path = f"instances/{segment(instance)}/events/{segment(event)}"
        return self.call("POST", path, payload, {"Idempotency-Key": f"{instance}-{event}"})

    def result(self, instance):
        while True:
            result = self.call("GET", f"instances/{segment(instance)}/result?wait_ms=20000")
            if result["status"] not in ("pending", "running"):
                return result

    def list(self, **filters):
        """Yields all instances of a filter, page by page."""
        while True:
            page = self.call("GET", "instances?" + urllib.parse.urlencode(filters))
            yield from page["rows"]
            if page["next"] is None:
                return
            filters["cursor"] = page["next"]

    def follow(self, instance):
        """Yields messages about an instance. Goes on behind the last one when the connection is lost."""
        last, away_since = None, None
        while True:
            headers = {"Last-Event-ID": last} if last else {}
            try:
                path = "stream?" + urllib.parse.urlencode({"instance": instance})
                with self.open("GET", path, headers=headers, timeout=40) as stream:
                    away_since = None
                    for kind, identity, data in messages(stream):
                        if kind == "end":
                            break
                        last = identity or last
                        yield kind, data
            except (Problem, *AWAY) as error:
                away_since = away_since or time.monotonic()
                is_final = isinstance(error, Problem) and not error.retryable
                if is_final or time.monotonic() > away_since + self.patience:
                    raise
            time.sleep(0.2)


def segment(name):
    """An id or name as one segment of a path."""
    if name in ("", ".", "..") or name.startswith("~"):
        return "~" + base64.urlsafe_b64encode(name.encode()).decode().rstrip("=")
    return urllib.parse.quote(name, safe="")


def messages(stream):
    """Reads server-sent events."""
    kind, identity, data = None, None, []
    for line in stream:
        line = line.decode().rstrip("\n")
        field, _, value = line.partition(": ")
        if line == "":
            if kind:
                yield kind, identity, json.loads("".join(data))
            kind, identity, data = None, None, []
        elif field == "event":
            kind = value
        elif field == "id":
            identity = value
        elif field == "data":
            data.append(value)


def main():
    url, name, instance, payload, event, content = sys.argv[1:]
    client = Client(url, os.environ.get("PERENNIAL_TOKEN"))
    started = client.start(name, instance, json.loads(payload))
    print("started", started["id"], flush=True)
    for kind, data in client.follow(instance):
        if kind == "turn":
            print("turn", data["execution"], data["turn"]["number"], flush=True)
            if data["turn"]["number"] == 1:
                client.signal(instance, event, json.loads(content))
        elif kind == "instance" and data["ended_ms"] is not None:
            break
    result = client.result(instance)
    print("result", result["status"], json.dumps(result.get("output")), flush=True)
    print("listed", sum(1 for _ in client.list(name=name, limit=2)), flush=True)


if __name__ == "__main__":
    main()
