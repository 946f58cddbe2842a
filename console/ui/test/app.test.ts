import { expect, test } from "vitest";
import { Fault } from "../api/client";
import type { Backup, RequestRecord, Setting, Target, UsageLine } from "../api/types";
import { matching, searchable } from "../app/palette";
import { preferences } from "../app/preferences";
import { match } from "../app/router";
import { wordsOf } from "../app/sign_in";
import { chainWords, differences, nameOf } from "../page/audit";
import { ageWords } from "../page/backups";
import { filled } from "../page/connect";
import { bodyOf } from "../page/connect_provider";
import { actionOf, mayWait, reachedAt } from "../page/quotas";
import { lostOf } from "../page/request";
import { changesOf as changesOfRoute, type Draft } from "../page/route/draft";
import { targetOf } from "../page/routes";
import { boundRow, groupsOf, settingFits } from "../page/settings";
import texts from "../page/snippets.json";
import { changeWords, seriesOf } from "../page/usage/groups";
import { before, bucketsOf, spanOf } from "../page/usage/span";
import { stackedAt } from "../part/chart";
import { changesOf, contested, merged } from "../part/conflict";
import { concerns } from "../part/form";
import { moved } from "../part/reorder";
import { barsOf, ticksOf } from "../part/waterfall";

test("patterns match whole paths, and names may hold dots and encoded slashes", () => {
  expect(match("/keys", "/keys")).toEqual({});
  expect(match("/keys/:id", "/keys/key_1")).toEqual({ id: "key_1" });
  expect(match("/routes/:name", "/routes/claude-opus-5.5")).toEqual({ name: "claude-opus-5.5" });
  expect(match("/models/:id", "/models/a%2Fb")).toEqual({ id: "a/b" });
  for (const path of ["/keys/", "/keys/a/b", "/key", "/models/%zz"]) expect(match("/models/:id", path)).toBeNull();
});

test("a refused sign-in says why", () => {
  const words = (status: number, code: string) => wordsOf(new Fault(status, code, "the server's", null, null));
  expect(words(401, "invalid_key")).toBe("This is not an administrator key of this gateway.");
  expect(words(403, "forbidden")).toBe("This is a project key. Project keys cannot administer the gateway.");
  expect(words(403, "forbidden_origin")).toBe("the server's");
  expect(words(429, "too_many")).toBe("Too many wrong keys from your address. The right key still works.");
});

test("a lost race is merged field by field", () => {
  const before = { name: "a", models: ["x"], note: null as string | null };
  const theirs = { name: "b", models: ["x"], note: null };
  const mine = { name: "a", models: ["x", "y"], note: null };
  expect(changesOf(before, mine)).toEqual({ models: ["x", "y"] });
  expect(contested(before, theirs, mine)).toEqual(["name", "models"]);
  expect(merged(before, theirs, mine)).toEqual({ name: "b", models: ["x", "y"], note: null });
});

test("the server's parameter names a field or a part of it", () => {
  expect(concerns("limits[0].limit", "limits")).toBe(true);
  expect(concerns("name", "name")).toBe(true);
  expect(concerns("names", "name")).toBe(false);
  expect(concerns(null, "name")).toBe(false);
});

test("the search finds entries by every word", () => {
  const entries = ["API keys", "Mint a project key", "Keys of the house"].map((title) => ({ title }));
  expect(matching(entries, "key").map(({ title }) => title)).toEqual(["Keys of the house", "API keys", "Mint a project key"]);
  expect(matching(entries, "key mint").map(({ title }) => title)).toEqual(["Mint a project key"]);
});

test("a pasted key is never sent whole", () => {
  expect(searchable(" llmgw_Q68EAbCdEfGhIjKlMnOp ")).toBe("llmgw_Q68EAb");
  expect(searchable("coding")).toBe("coding");
});

test("items move within their list", () => {
  expect(moved(["a", "b", "c"], 2, 0)).toEqual(["c", "a", "b"]);
  expect(moved(["a", "b", "c"], 0, 1)).toEqual(["b", "a", "c"]);
  const same = ["a", "b"];
  for (const [from, to] of [
    [0, -1],
    [1, 2],
    [1, 1],
  ] as const)
    expect(moved(same, from, to)).toBe(same);
});

test("a draft of an endpoint says what it changes", () => {
  const of = (...ids: string[]) => ids.map(targetOf);
  const plain = { order: "listed", sticky: null, also: [], preamble: "", cursor_bodies: false } as const;
  const draft = (more: Partial<Draft>): Draft => ({ failover: of("a/x", "b/y", "c/z/1"), ...plain, also: [], ...more });
  const before = draft({});
  expect(changesOfRoute(before, before)).toEqual([]);
  expect(changesOfRoute(before, draft({ failover: of("b/y", "a/x", "d/w"), preamble: "p" }))).toEqual([
    "b/y moved up to 1",
    "d/w added",
    "c/z/1 removed",
    "preamble changed",
  ]);
  const [first, ...rest] = of("a/x", "b/y", "c/z/1");
  const weighted = draft({ failover: [{ ...(first as Target), weight: 3, tier: 2 }, ...rest], order: "least_busy", also: ["n-*"] });
  expect(changesOfRoute(before, weighted)).toEqual(["weight of a/x 3", "tier of a/x 2", "order least busy", "name n-* added"]);
  expect(changesOfRoute(weighted, { ...weighted, sticky: false, also: [] })).toEqual(["sessions do not stay", "name n-* removed"]);
  expect(changesOfRoute(before, draft({ cursor_bodies: true }))).toEqual(["bodies of Cursor accepted"]);
});

test("what connects a provider holds the fields that were filled", () => {
  const empty = {
    id: "mine",
    api_key: "",
    base_url: "",
    region: "",
    project: "",
    location: "",
    models: "",
    proxy: "",
    timeout: "",
    stream_idle_timeout: "",
    first_content_timeout: "",
  };
  expect(bodyOf({ id: "groq", name: "Groq", type: "compatible", registry: true }, { ...empty, api_key: " k ", proxy: "direct" })).toEqual({
    id: "mine",
    registry_id: "groq",
    api_key: "k",
    proxy: "direct",
  });
  expect(bodyOf({ id: "echo", name: "Echo", type: "echo", registry: false }, { ...empty, models: "a, b", timeout: 20 })).toEqual({
    id: "mine",
    type: "echo",
    models: ["a", "b"],
    timeout: 20,
  });
});

test("the texts of clients are filled with the address and the endpoint", () => {
  const filling = { origin: "http://127.0.0.1:8787", model: "default", context: null, vision: null };
  expect(filled("{{base}}/v1 {{model}} {{key}} {{other}}", filling)).toBe("http://127.0.0.1:8787/v1 default YOUR-KEY {{other}}");
  expect(filled("{{base_from_container}}", filling)).toBe("http://host.docker.internal:8787");
  expect(filled("{{reachable_check}}|{{context_window}}", { ...filling, origin: "https://gw.example", context: 200_000 })).toBe("|200000");
  for (const { code, run = "", note = "", steps = [] } of texts.snippets as {
    code: string;
    run?: string;
    note?: string;
    steps?: string[];
  }[]) {
    expect(filled([code, run, note, ...steps].join("\n"), filling)).not.toContain("{{");
  }
});

test("attempts are laid end to end, and time that no record accounts for is one block", () => {
  const step = (result: string, spent_us?: number) => ({
    provider: "p",
    model: "m",
    result,
    ...(spent_us === undefined ? {} : { spent_us }),
  });
  const record = {
    duration_us: 8_000,
    first_content_us: 3_000,
    trace: [step("status", 400), step("circuit_open"), step("served", 1_000)],
  } as unknown as RequestRecord;
  expect(barsOf(record).map(({ kind, from, until }) => [kind, from, until])).toEqual([
    ["failed", 0, 400],
    ["passed", 400, 400],
    ["unrecorded", 400, 2_000],
    ["served", 2_000, 8_000],
  ]);
  const timed = (result: string, start_us: number | undefined, spent_us?: number) => ({ ...step(result, spent_us), start_us });
  const recent = {
    duration_us: 8_000_000,
    first_content_us: 2_330_000,
    trace: [
      timed("status", 200, 410_000),
      timed("circuit_open", undefined),
      timed("status", 1_010_200, 380_000),
      timed("served", 1_391_000, 939_000),
    ],
  } as unknown as RequestRecord;
  expect(barsOf(recent).map(({ kind, from, until }) => [kind, from, until])).toEqual([
    ["gateway", 0, 200],
    ["failed", 200, 410_200],
    ["passed", 410_200, 410_200],
    ["pause", 410_200, 1_010_200],
    ["failed", 1_010_200, 1_390_200],
    ["served", 1_391_000, 8_000_000],
  ]);
  expect(lostOf(recent as Parameters<typeof lostOf>[0])).toBe(1_390_800);
  expect(ticksOf(8_430_000)).toEqual([0, 2e6, 4e6, 6e6, 8e6]);
});

test("an audit record shows the members that differ", () => {
  expect(differences({ a: 1, b: { c: "x", d: [1] } }, { a: 1, b: { c: "y", d: [1, 2] }, e: null })).toEqual([
    ["b.c", "x", "y"],
    ["b.d", "[1]", "[1,2]"],
  ]);
  expect(differences(null, { name: "new" })).toEqual([["name", "", "new"]]);
});

test("a limit is reached when use goes on at its rate", () => {
  const day = 86_400_000;
  const resets = Date.UTC(2026, 10, 23);
  const quota = (used: number, window: "day" | "month" | "minute" | "total" = "day") => ({
    used,
    limit: 100,
    window,
    resets_at_ms: resets,
  });
  const noon = resets - day / 2;
  expect(reachedAt(quota(80), noon)).toBe(resets - day + (day / 2) * 1.25);
  expect(reachedAt(quota(40), noon)).toBeNull();
  expect(reachedAt(quota(0), noon)).toBeNull();
  expect(reachedAt(quota(80, "total"), noon)).toBeNull();
  const december = Date.UTC(2026, 11, 1);
  expect(reachedAt({ used: 90, limit: 100, window: "month", resets_at_ms: december }, Date.UTC(2026, 10, 16))).toBe(
    Date.UTC(2026, 10, 1) + (15 * day) / 0.9,
  );
});

test("usage is stacked by its largest groups, and the rest is one series", () => {
  const hour = 3_600_000;
  const times = bucketsOf(hour / 2, 3 * hour, "hour");
  expect(times).toEqual([0, hour, 2 * hour]);
  const line = (model: string | null, at: number, requests: number) =>
    ({ group: { model }, bucket_start_ms: at, requests }) as unknown as UsageLine;
  const names = ["a", "b", "c", "d", "e", "f", "g"];
  const series = seriesOf(
    [...names.map((name, i) => line(name, hour, 10 - i)), line("a", 0, 1)],
    "model",
    ({ requests }) => requests,
    times,
  );
  expect(series.map(({ name }) => name)).toEqual(["a", "b", "c", "d", "e", "2 more"]);
  expect(series[0]?.values).toEqual([1, 10, 0]);
  expect(series[5]?.values).toEqual([0, 5 + 4, 0]);
  expect(seriesOf([line(null, 0, 1)], "model", ({ requests }) => requests, times)[0]?.name).toBe("no model");
});

test("the age of the last archive that is whole", () => {
  const archive = (name: string, created_at: string, checked_at_ms: number | null, fault: string | null = null) =>
    ({ name, bytes: 1, checked_at_ms, fault, manifest: { created_at } }) as unknown as Backup;
  const now = Date.parse("2026-11-22T12:00:00Z");
  expect(ageWords([], now)).toEqual({ kind: "bad", words: "No archive was found whole yet" });
  const old = archive("a", "2026-11-19T12:00:00Z", 1);
  const broken = archive("b", "2026-11-22T11:00:00Z", 1, "cut off");
  expect(ageWords([old, broken], now)).toEqual({ kind: "warn", words: "The last good archive is of 19 Nov 12:00, 3 d ago" });
  expect(ageWords([old, archive("c", "2026-11-22T11:00:00Z", 1)], now).kind).toBe("ok");
});

test("the result of a verification is one sentence", () => {
  const since_ms = Date.parse("2026-10-03T10:00:00Z");
  expect(chainWords({ ok: true, rows: 18_204, since_ms, broken_at: null, fault: null })).toBe("18,204 records, unbroken since 3 Oct 2026");
  expect(chainWords({ ok: false, rows: 9, since_ms, broken_at: 4, fault: "it was changed." })).toBe(
    "The chain is broken at record 4: it was changed.",
  );
});

test("settings are found by name, path, value and description, and by layer", () => {
  const setting = { name: "LLMGW_PORT", path: "server.port", value: "0", doc: "Port to listen on", source: "environment" } as Setting;
  for (const text of ["llmgw_p", "server.", "listen", " "]) expect(settingFits(setting, text, "")).toBe(true);
  expect([settingFits(setting, "nothing", ""), settingFits(setting, "", "file"), settingFits(setting, "", "set")]).toEqual([
    false,
    false,
    true,
  ]);
});

test("a report's time is in whole hours, and has a time of the same length before it", () => {
  const now = Date.parse("2026-11-22T12:20:00Z");
  const hours = (n: number): number => n * 3_600_000;
  const week = spanOf("", "", "", now);
  expect(week).toEqual({ from: Date.parse("2026-11-15T13:00:00Z"), to: Date.parse("2026-11-22T13:00:00Z"), bucket: "day" });
  expect(before(week)).toEqual({ from: week.from - hours(168), to: week.from, bucket: "day" });
  expect(spanOf("24h", "", "", now).bucket).toBe("hour");
  expect(spanOf("24h", String(hours(10) + 1), String(hours(20) - 1), now)).toEqual({ from: hours(10), to: hours(20), bucket: "hour" });
  expect(spanOf("7d", "nonsense", "", now)).toEqual(week);
});

test("a change is a share of what was before", () => {
  expect([changeWords(112, 100), changeWords(50, 100), changeWords(1, 1), changeWords(3, 0), changeWords(0, 0)]).toEqual([
    "+12 %",
    "−50 %",
    "±0 %",
    "new",
    "",
  ]);
});

test("a press on a stacked bar takes the part below the pointer", () => {
  const series = [[4], [0], [6]].map((values, i) => ({ name: String(i), values, className: "" }));
  expect([0, 3.9, 4, 9.9, 10, -1].map((value) => stackedAt(series, 0, value))).toEqual([0, 0, 2, 2, -1, -1]);
});

test("an audit record names its object wherever the record has the name", () => {
  const of = (after: unknown, before?: unknown) =>
    nameOf({ object_kind: "key", detail: { after, before } } as Parameters<typeof nameOf>[0]);
  expect(of({ name: "ci" })).toBe("ci");
  expect(of({ key: { name: "ci" }, quotas: [] })).toBe("ci");
  expect(of({ old: {}, new: { name: "rotated" } })).toBe("rotated");
  expect(of(null, { name: "deleted" })).toBe("deleted");
  expect([of("text"), of({ key: "text" }), of({ name: "" }), of(undefined)]).toEqual([null, null, null, null]);
});

test("settings stand in groups, each in one", () => {
  const setting = (name: string) => ({ name }) as Setting;
  const names = ["LLMGW_API_KEY", "OTEL_SERVICE_NAME", "LLMGW_PORT", "LLMGW_DRAIN_SECONDS", "cors.origins", "LLMGW_LOG"];
  expect(groupsOf(names.map(setting)).map(([title, found]) => [title, found.map(({ name }) => name)])).toEqual([
    ["Keys and secrets", ["LLMGW_API_KEY"]],
    ["Address and files", ["LLMGW_PORT"]],
    ["Telemetry", ["OTEL_SERVICE_NAME"]],
    ["Logs and diagnosis", ["LLMGW_LOG"]],
    ["Limits and times", ["LLMGW_DRAIN_SECONDS"]],
    ["Requests and providers", ["cors.origins"]],
  ]);
});

test("buckets of days begin at midnight of the chosen zone", () => {
  const utc = bucketsOf(Date.UTC(2026, 9, 24, 13), Date.UTC(2026, 9, 27), "day");
  expect(utc).toEqual([24, 25, 26].map((day) => Date.UTC(2026, 9, day)));
  preferences.zone.value = "local";
  const local = bucketsOf(new Date(2026, 9, 24, 13).getTime(), new Date(2026, 9, 27).getTime(), "day");
  expect(local).toEqual([24, 25, 26].map((day) => new Date(2026, 9, day).getTime()));
  preferences.zone.value = "utc";
});

test("a bound that was reached is shown with what gave way and what to do", () => {
  const reached = { bound: "exports", max: 4, reached: 1, last_at_ms: Date.now(), gives_way: "Exports fail.", remedy: "Wait." };
  expect(boundRow(reached)).toEqual(["Bound exports (4)", "Reached 1 time, last now. Exports fail. Wait."]);
  expect(boundRow({ ...reached, max: null, reached: 2 })[0]).toBe("Bound exports");
});

test("a limit says whether requests that do not fit are rejected, only warn or wait, and how many wait", () => {
  const of = (enforcement: "hard" | "warn", wait_ms: number, waiting: number): string => actionOf({ enforcement, wait_ms, waiting });
  expect([of("warn", 0, 0), of("hard", 0, 0), of("hard", 1, 0), of("hard", 1, 7)]).toEqual(["warn", "reject", "wait", "7 wait"]);
  expect([mayWait("concurrent_requests", null), mayWait("requests", "minute"), mayWait("requests", "day")]).toEqual([true, true, false]);
});
