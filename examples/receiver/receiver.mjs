// examples/receiver/receiver.mjs: takes webhooks of Weir into a journal, with what Node.js 18 brings.
import { createHmac, timingSafeEqual } from "node:crypto";
import { existsSync, fsyncSync, openSync, readFileSync, writeSync } from "node:fs";
import { createServer } from "node:http";

const secret = Buffer.from(process.env.HOOK_SECRET.replace(/^whsec_/, ""), "base64");
const file = process.env.DATABASE ?? "bananas.jsonl";
const tolerance = 300; // seconds that the sender's clock may be off

// The journal stands in for your database: what it holds survives a crash.
const bananas = new Map(); // service and entity: { version, doc }
const remember = ({ service, entity, version, doc }) =>
  bananas.set(`${service} ${entity}`, { version: BigInt(version), doc });
for (const line of existsSync(file) ? readFileSync(file, "utf8").split("\n") : []) {
  try {
    remember(JSON.parse(line));
  } catch {
    // empty, or torn by a crash and so never answered
  }
}
const journal = openSync(file, "a");

// Verify: the signature covers the id, the time and the exact bytes of the body.
function isGenuine(headers, body) {
  const stamp = headers["webhook-timestamp"] ?? "";
  if (!/^\d+$/.test(stamp) || Math.abs(Date.now() / 1000 - Number(stamp)) > tolerance) return false;
  const hmac = createHmac("sha256", secret).update(`${headers["webhook-id"]}.${stamp}.`).update(body);
  const want = Buffer.from("v1," + hmac.digest("base64"));
  return (headers["webhook-signature"] ?? "").split(" ").map((s) => Buffer.from(s)) // two while a secret is rotated
    .some((given) => given.length === want.length && timingSafeEqual(given, want));
}

// Deduplicate and order: a version that is known, or older, changes nothing. Nothing here awaits, so
// two requests cannot come between one another.
function apply({ service, entity, op, key, doc }, version) {
  if (op !== "upsert" && op !== "retract") return { key, status: 422, error: "unknown op" };
  if (version <= (bananas.get(`${service} ${entity}`)?.version ?? -1n)) return { key, status: 200, applied: false };
  const entry = { service, entity, version: `${version}`, doc: op === "upsert" ? doc : null }; // a retraction keeps its row
  writeSync(journal, "\n" + JSON.stringify(entry) + "\n");
  remember(entry);
  return { key, status: 200, applied: true };
}

// Versions by key: they have 64 bits, too many for a number of JavaScript.
const versions = (body) => new Map([...body.matchAll(/"version":(\d+),"key":"(\w+)"/g)].map(([, v, key]) => [key, BigInt(v)]));

const answer = (response, status, value) => response.writeHead(status).end(JSON.stringify(value));

createServer(async (request, response) => {
  if (request.method === "GET") {
    const row = [...bananas].find(([key]) => key.endsWith(" " + request.url.slice(1)))?.[1];
    return row?.doc ? answer(response, 200, row.doc) : answer(response, 404, {});
  }
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const body = Buffer.concat(chunks);
  if (!isGenuine(request.headers, body)) return answer(response, 401, { error: "wrong signature" });
  const changes = JSON.parse(body);
  const of = versions(body.toString());
  const results = [changes].flat().map((c) => apply(c, of.get(c.key))); // webhook.batch sends arrays
  fsyncSync(journal); // 2xx only after it
  if (!Array.isArray(changes)) return answer(response, results[0].status, results[0]);
  answer(response, new Set(results.map((r) => r.status)).size > 1 ? 207 : 200, results);
}).listen(Number(process.env.PORT ?? 8700), "127.0.0.1");
