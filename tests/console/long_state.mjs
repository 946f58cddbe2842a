// A gateway with as many rows in each list as the checks of long lists ask for, made by the same ways as in real life: objects by the admin
// API, requests by the journal. Only the history of alerts and deliveries, which takes days to come about, is inserted into the stopped
// gateway's database.

import { execFileSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { join } from "node:path";

import { Gateway } from "./gateway.mjs";

/** The rows of each list. */
export const ROWS = 10_000;
/** Each change of a provider publishes all of them, so that many take long to make. */
export const PROVIDERS = 300;
/** Writes at a time: the gateway commits those that wait together. */
const LANES = 64;
/** A number for each row that is not in their order; both have no factor in common. */
const shuffled = (n) => (n * 7_919) % ROWS;
const padded = (n) => String(n).padStart(5, "0");

/** Makes `count` objects, many at a time; returns the answers in order. */
async function many(gateway, count, path, body) {
  const made = [];
  let next = 0;
  const lane = async () => {
    for (let n = next++; n < count; n = next++) made[n] = await gateway.api("POST", path, body(n));
  };
  const began = performance.now();
  await Promise.all(Array.from({ length: LANES }, lane));
  console.log(`figure  ${count} ${path}: ${Math.round((1_000 * count) / (performance.now() - began))} a second`);
  return made;
}

/** Starts a gateway whose lists are long. Their names are `PREFIX-00000` and so on, each once, in an order of their own. */
export async function longState(binary, home) {
  const own = join(home, "long");
  mkdirSync(own);
  const gateway = new Gateway(binary, own);
  await gateway.start();
  const began = performance.now();
  const projects = await many(gateway, ROWS, "projects", (n) => ({ name: `project-${padded(shuffled(n))}` }));
  await many(gateway, ROWS, "principals", (n) => ({ name: `human-${padded(shuffled(n))}`, email: `${padded(n)}@example.com` }));
  const far = Date.now() + 40 * 86_400_000;
  const keys = await many(gateway, ROWS, "keys", (n) => ({
    name: `key-${padded(shuffled(n))}`,
    // The projects that were made last have the keys.
    project: projects[ROWS - 1 - (n % 100)].id,
    recoverable: false,
    limits: [{ metric: "total_tokens", window: "month", limit: 1_000_000 + shuffled(n) }],
    ...(n % 2 ? { expires_at: far + shuffled(n) * 1_000 } : {}),
  }));
  await gateway.api("POST", "providers", { id: "second", type: "echo", models: ["echo"] });
  const failover = ["second", "echo"].map((provider) => ({ provider, model: "echo" }));
  await many(gateway, ROWS, "endpoints", (n) => ({ name: `endpoint-${padded(shuffled(n))}`, failover: failover.slice(n % 2) }));
  await many(gateway, PROVIDERS, "providers", (n) => ({ id: `provider-${padded(shuffled(n))}`, type: "echo", models: ["echo"] }));
  await gateway.api("POST", "providers", { id: "wide", type: "compatible", base_url: "http://127.0.0.1:9/v1", api_key: "sk-of-a-test", models: Array.from({ length: ROWS }, (_, n) => `model-${padded(n)}`) });
  const webhook = await gateway.api("POST", "webhooks", { name: "pager", url: "http://127.0.0.1:9/" });
  console.log(`figure  ${5 * ROWS + PROVIDERS} objects are made after ${Math.round(performance.now() - began)} ms`);
  await gateway.stop();
  request(join(own, ".llmgw/journal"), keys);
  insertHistory(join(own, ".llmgw/gateway.db"), keys, webhook.id);
  await gateway.start();
  while ((await gateway.api("GET", "state")).usage.queued > 0) await new Promise((resolve) => setTimeout(resolve, 50));
  return gateway;
}

/** Writes a request of each key, within the last seconds, so that all are of this month. */
function request(journal, keys) {
  const event = ({ id, project }, n) => ({
    request_id: "", started_at_ms: 0, duration_us: 10_000 + shuffled(n), operation: "chat_completions", key: id, project, selector: `endpoint-${padded(n)}`,
    endpoint: `endpoint-${padded(n)}`, provider: "echo", model: "echo", stream: true, status: 200, outcome: "completed",
    tokens: { input: 1 + shuffled(n) }, provenance: "reported", cost_nano_usd: 1_000 * (1 + shuffled(n)), head_us: 100, first_content_us: 1_000 + shuffled(n),
    trace: [{ provider: "echo", model: "echo", result: "served", start_us: 100, spent_us: 9_000 }],
  });
  execFileSync(process.env.FILL_JOURNAL, [journal, String(ROWS), "1"], { input: keys.map((key, n) => JSON.stringify(event(key, n))).join("\n") });
}

/** Inserts alerts that are over, each about a key, and deliveries of events that are done. */
function insertHistory(db, keys, webhook) {
  const now = Date.now();
  const rows = keys.map(({ id }, n) => {
    const at = now - shuffled(n) * 1_000;
    return {
      alert: [`alr_${padded(n)}`, "rule_quota_warning", "quota_warning", id, n % 3 ? "warn" : "bad", `The limit ${padded(n)} is nearly used up.`, "{}", at, at, 1 + shuffled(n), at + 1_000],
      event: [1_000_000 + n, `evt_${padded(n)}`, "quota_warning", id, "{}", at],
      delivery: [1_000_000 + n, webhook, n % 2 ? "delivered" : "dead", 1 + shuffled(n), at, at],
    };
  });
  const script = `
import json, sqlite3, sys
rows = json.load(sys.stdin)
db = sqlite3.connect(sys.argv[1])
db.executemany("INSERT INTO alerts (id, rule, kind, object, severity, text, figures, first_at_ms, last_at_ms, times, resolved_at_ms) VALUES (?,?,?,?,?,?,?,?,?,?,?)", (row["alert"] for row in rows))
db.executemany("INSERT INTO events (id, name, kind, object, data, created_at_ms) VALUES (?,?,?,?,?,?)", (row["event"] for row in rows))
db.executemany("INSERT INTO outbox (event, webhook, state, tries, created_at_ms, updated_at_ms) VALUES (?,?,?,?,?,?)", (row["delivery"] for row in rows))
# The next start computes the sums of all tables anew, as after an upgrade from a version without them.
db.execute("DELETE FROM row_sums")
db.commit()
assert db.execute("PRAGMA foreign_key_check").fetchall() == []
`;
  execFileSync("python3", ["-c", script, db], { input: JSON.stringify(rows) });
}
