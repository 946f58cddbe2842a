import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { session } from "../api/client";
import { List } from "../api/list";
import { inSight } from "../part/table";

type Row = { id: number };
let asked: URLSearchParams[] = [];
let total = 0;
/** The number of answers that hold no row but a cursor. */
let barren = 0;

beforeEach(() => {
  asked = [];
  barren = 0;
  session.value = {
    administrator: true,
    key: "admin",
    csrf_token: "t",
    expires_at_ms: 1,
    idle_seconds_max: 1,
    by: "session",
    human: null,
    permissions: ["administer"],
    roles: {},
    extents: {},
    sso: null,
  };
  vi.stubGlobal("fetch", async (path: string) => {
    const search = new URL(path, "http://x").searchParams;
    asked.push(search);
    const from = Number(search.get("cursor") ?? 0);
    if (barren > 0) {
      barren -= 1;
      return Response.json({ data: [], next_cursor: String(from + 1) });
    }
    const data = Array.from({ length: Math.min(Number(search.get("limit")), total - from) }, (_, i) => ({ id: from + i }));
    const next = from + data.length;
    return Response.json({ data, next_cursor: next < total ? String(next) : null });
  });
});

afterEach(() => vi.unstubAllGlobals());

test("a list is read page by page to its end", async () => {
  total = 250;
  const list = new List<Row>("keys", { state: "active" });
  await list.load();
  expect([list.count, list.next.value]).toEqual([100, "100"]);
  await list.more();
  await list.more();
  await list.more();
  expect([list.count, list.next.value, list.row(249)?.id, list.row(250)]).toEqual([250, null, 249, undefined]);
  expect(asked.every((search) => search.get("state") === "active")).toBe(true);
});

test("far rows leave memory and are read again when they come into sight", async () => {
  total = 3000;
  const list = new List<Row>("keys", {});
  await list.load();
  while (list.next.value) await list.more();
  await list.see(2950, 3000);
  expect(list.count).toBe(3000);
  const rows = () => list.pages.value.reduce((sum, page) => sum + (page.rows?.length ?? 0), 0);
  expect(rows()).toBeLessThanOrEqual(2000);
  expect(list.row(0)).toBeUndefined();
  await list.see(0, 40);
  expect(list.row(0)?.id).toBe(0);
  expect(rows()).toBeLessThanOrEqual(2100);
});

test("a search that stops for lack of time goes on three times and then asks", async () => {
  total = 5;
  barren = 10;
  const list = new List<Row>("requests", {});
  await list.load();
  expect(asked.length).toBe(4);
  expect(list.stoppedAt.value).toBe("4");
  barren = 0;
  await list.more();
  expect([list.stoppedAt.value, list.count]).toEqual([null, 1]);
});

test("after an error what was there stays", async () => {
  total = 10;
  const list = new List<Row>("keys", {});
  await list.load();
  vi.stubGlobal("document", { hidden: true });
  vi.stubGlobal("fetch", async () => new Response("{}", { status: 500 }));
  await list.load();
  expect([list.count, list.error.value?.message]).toEqual([10, "The gateway answered with status 500."]);
});

test("only rows in sight are in the document", () => {
  const rows: [count: number, top: number, from: number, to: number][] = [
    [0, 200, 0, 0],
    [5, 200, 0, 5],
    [100_000, 200, 0, 32],
    [100_000, -36_000, 988, 1037],
    [40, -36_000, 39, 40],
  ];
  for (const [count, top, from, to] of rows) expect(inSight(count, 36, top, 900)).toEqual([from, to]);
});
