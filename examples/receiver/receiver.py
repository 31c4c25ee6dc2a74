# examples/receiver/receiver.py: takes webhooks of Weir into a table, with Python's standard library.
import base64, hmac, json, os, sqlite3, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECRET = base64.b64decode(os.environ["HOOK_SECRET"].removeprefix("whsec_") + "==")
DATABASE = os.environ.get("DATABASE", "bananas.db")
TOLERANCE = 300  # seconds that the sender's clock may be off


def open_database():
    db = sqlite3.connect(DATABASE, timeout=30)
    db.execute("PRAGMA synchronous = FULL")
    db.execute("""CREATE TABLE IF NOT EXISTS bananas (
        service TEXT, entity TEXT, version INTEGER NOT NULL, doc TEXT, PRIMARY KEY (service, entity))""")
    return db


def is_genuine(headers, body):
    """Verify: the signature covers the id, the time and the exact bytes of the body."""
    stamp = headers.get("webhook-timestamp", "")
    if not stamp.isdigit() or abs(time.time() - int(stamp)) > TOLERANCE:
        return False
    signed = f"{headers.get('webhook-id')}.{stamp}.".encode() + body
    want = b"v1," + base64.b64encode(hmac.digest(SECRET, signed, "sha256"))
    given = headers.get("webhook-signature", "").encode().split()
    return any(hmac.compare_digest(want, g) for g in given)  # two while a secret is rotated


def apply(db, change):
    """Deduplicate and order: one statement, which a known or an older version does not pass."""
    if change["op"] not in ("upsert", "retract"):
        return {"key": change["key"], "status": 422, "error": "unknown op"}
    doc = json.dumps(change["doc"]) if change["op"] == "upsert" else None  # a retraction keeps its row
    applied = db.execute("""INSERT INTO bananas VALUES (?, ?, ?, ?)
        ON CONFLICT DO UPDATE SET version = excluded.version, doc = excluded.doc
        WHERE excluded.version > version""",
        (change["service"], change["entity"], change["version"], doc)).rowcount > 0
    return {"key": change["key"], "status": 200, "applied": applied}


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if not is_genuine(self.headers, body):
            return self.answer(401, {"error": "wrong signature"})
        changes = json.loads(body)
        batched = isinstance(changes, list)  # webhook.batch; else a request is one change
        with open_database() as db:  # one transaction
            results = [apply(db, change) for change in (changes if batched else [changes])]
        statuses = {result["status"] for result in results}  # 2xx only after the commit
        if batched:
            return self.answer(207 if len(statuses) > 1 else 200, results)
        self.answer(statuses.pop(), results[0])

    def do_GET(self):
        row = open_database().execute("SELECT doc FROM bananas WHERE entity = ?", (self.path[1:],)).fetchone()
        self.answer(200 if row and row[0] else 404, json.loads(row[0]) if row and row[0] else {})

    def answer(self, status, value):
        body = json.dumps(value, separators=(",", ":")).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


open_database()
ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "8700"))), Receiver).serve_forever()
