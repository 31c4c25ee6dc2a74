#!/usr/bin/env bash
# standardwebhooks 1.1.1 of npm, with a genuine message:
#
# 1. verify() finds no header in a Headers, the object that fetch, Next.js, Hono and Deno have
#    ("Missing required headers"): it looks at the object's own keys, and a Headers has none.
# 2. It returns the parsed body, in which whole numbers above 2^53, such as versions, are rounded.
#
# Remedies: Object.fromEntries(headers) for 1; {jsonParse: false}, which only verifies, and a parser that
# keeps digits for 2. Seen 2026-11-28 with Node.js 20.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
npm init --yes >/dev/null
npm install --silent --no-audit --no-fund standardwebhooks@1.1.1
node - <<'JAVASCRIPT'
const assert = require("node:assert");
const { Webhook } = require("standardwebhooks");

const hook = new Webhook("whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz");
const body = '{"version":9007199254740993}';
const now = new Date();
const plain = {
  "webhook-id": "msg_1",
  "webhook-timestamp": String(Math.floor(now / 1000)),
  "webhook-signature": hook.sign("msg_1", now, body),
};
const outcome = (headers, options) => {
  try {
    return JSON.stringify(hook.verify(body, headers, options));
  } catch (e) {
    return e.name + ": " + e.message;
  }
};
console.log("standardwebhooks", require("standardwebhooks/package.json").version, "Node.js", process.version);
for (const [what, got, seen] of [
  ["a plain object", outcome(plain), '{"version":9007199254740992}'],
  ["a Headers", outcome(new Headers(plain)), "WebhookVerificationError: Missing required headers"],
  ["Object.fromEntries of it", outcome(Object.fromEntries(new Headers(plain))), '{"version":9007199254740992}'],
  ["{jsonParse: false}", outcome(plain, { jsonParse: false }), undefined],
]) {
  console.log(`${what}: ${got}`);
  assert.strictEqual(got, seen, what);
}
JAVASCRIPT
