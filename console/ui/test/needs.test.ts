import { expect, test } from "vitest";
import type { Alert, GatewayState, Quota } from "../api/types";
import { backupNeed, needsOf } from "../page/overview/needs";

const DAY = 86_400_000;
const NOW = Date.UTC(2026, 10, 23, 3);
const alert = (change: Partial<Alert>): Alert => ({
  acked_at_ms: null,
  acked_by: null,
  figures: {},
  first_at_ms: NOW - 60_000,
  id: "alr_1",
  kind: "provider_down",
  last_at_ms: NOW,
  object: "openai-main",
  object_name: change.object ?? "openai-main",
  resolved_at_ms: null,
  rule: "rule_provider_down",
  severity: "warn",
  state: "open",
  text: "4 attempts in a row have failed.",
  times: 1,
  ...change,
});
const state = (backup: GatewayState["backup"], alerts = { total: 0, bad: 0 }): GatewayState => ({ backup, alerts }) as GatewayState;
const props = { limits: { fullest: [], near: 0 }, unpriced: 0, now: NOW, isSetUp: true };
const good = (days: number) => ({ last_good_at_ms: NOW - days * DAY, last_failure: null });

test("the overview names a backup that is over two days old, and none that is younger", () => {
  expect(backupNeed(good(1.9), undefined, NOW)).toEqual([]);
  expect(backupNeed(good(3.5), undefined, NOW)[0]?.text).toBe("The last good backup is 3 days old");
  const none = { last_good_at_ms: null, last_failure: null };
  expect(backupNeed(none, undefined, NOW)[0]?.text).toBe("No backup was made yet");
  expect(needsOf({ ...props, isSetUp: false, state: state(none) })).toEqual([]);
});

test("a failed backup stands with the state of its alert", () => {
  const failed = { last_good_at_ms: NOW - DAY, last_failure: { at_ms: NOW, message: "no space left" } };
  const open = backupNeed(failed, alert({ kind: "backup_failed", object: null }), NOW)[0];
  expect([open?.kind, open?.text]).toEqual(["bad", "The last backup failed"]);
  expect(open?.note).toContain("no space left. The last good one is of 22 Nov");
  expect(open?.note).toContain("Its alert is open.");
  const seen = alert({ kind: "backup_failed", object: null, state: "acknowledged", acked_by: "admin" });
  expect(backupNeed(failed, seen, NOW)[0]?.note).toContain("Its alert is acknowledged by admin.");
});

test("open alerts stand by their titles, and a limit that has an alert stands once", () => {
  const alerts = [alert({}), alert({ id: "alr_2", kind: "quota_warning", object: "quo_1", object_name: "load-test", severity: "bad" })];
  const quota = { id: "quo_1", limit: 10, used: 9, reserved: 0, exceeded: false, subject: { kind: "gateway" } } as Quota;
  const needs = needsOf({ ...props, limits: { fullest: [quota], near: 1 }, alerts, state: state(good(0), { total: 3, bad: 1 }) });
  expect(needs.map(({ kind, text }) => [kind, text])).toEqual([
    ["warn", "Provider down: openai-main"],
    ["bad", "Quota nearly used up: load-test"],
    ["warn", "1 more alert"],
  ]);
});

test("the fullest limits stand by name, and the others as their number", () => {
  const limit = (n: number) =>
    ({
      id: `quo_${n}`,
      metric: "requests",
      limit: 10,
      used: 9,
      reserved: 0,
      subject: { kind: "key", id: `key_${n}`, name: `key ${n}` },
    }) as Quota;
  const limits = { fullest: [1, 2, 3, 4, 5, 6, 7].map(limit), near: 640 };
  const needs = needsOf({ ...props, limits, alerts: [alert({ object: "quo_2" })], state: state(good(0), { total: 1, bad: 0 }) });
  expect(needs.map(({ text }) => text)).toEqual([
    "Provider down: quo_2",
    "key 1: Requests is used to 90 %",
    "key 3: Requests is used to 90 %",
    "key 4: Requests is used to 90 %",
    "key 5: Requests is used to 90 %",
    "key 6: Requests is used to 90 %",
    "634 more limits",
  ]);
});

test("open alerts stand first, and no alert is no line", () => {
  const needs = needsOf({ ...props, unpriced: 1, state: state(good(0), { total: 3, bad: 1 }) });
  expect(needs.map(({ kind, text }) => [kind, text])).toEqual([
    ["bad", "3 open alerts"],
    ["warn", "1 attempt of today without a price"],
  ]);
  expect(needsOf({ ...props, state: state(good(0)) })).toEqual([]);
});
