import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { call, currentSession, Fault, mayIn, offlineSince, session, signedIn, signInWanted, Unreachable } from "../api/client";
import type { Session } from "../api/types";

type Sent = { method: string; path: string; headers: Record<string, string>; body: unknown };

let sent: Sent[] = [];
let answers: (() => Response)[] = [];

const json =
  (status: number, body: unknown, headers: Record<string, string> = {}) =>
  () =>
    new Response(JSON.stringify(body), { status, headers });
const fault = (status: number, code: string, param: string | null = null) =>
  json(status, { error: { message: `no: ${code}`, type: "t", code, param, request_id: "req_1" } });
const opened = (csrf_token: string): Session => ({
  administrator: true,
  key: "admin",
  csrf_token,
  expires_at_ms: 1,
  idle_seconds_max: 3600,
  by: "session",
  human: null,
  permissions: ["administer"],
  roles: {},
  extents: {},
  sso: null,
});

beforeEach(() => {
  sent = [];
  answers = [];
  session.value = opened("one");
  signInWanted.value = false;
  offlineSince.value = null;
  vi.stubGlobal("document", { hidden: true });
  vi.stubGlobal("fetch", async (path: string, init: RequestInit) => {
    sent.push({ method: init.method ?? "GET", path, headers: init.headers as Record<string, string>, body: init.body });
    const answer = answers.shift();
    if (!answer) throw new TypeError("no network");
    return answer();
  });
});

afterEach(() => vi.unstubAllGlobals());

test("an ended session waits for a sign-in and repeats the call with the new token", async () => {
  answers = [fault(401, "invalid_key"), json(201, { id: "prj_1" })];
  const made = call<{ id: string }>("POST", "projects", { body: { name: "blue" } });
  await vi.waitFor(() => expect(signInWanted.value).toBe(true));
  signedIn(opened("two"));
  expect((await made).data).toEqual({ id: "prj_1" });
  expect(signInWanted.value).toBe(false);
  expect(sent.map(({ headers }) => headers["x-csrf-token"])).toEqual(["one", "two"]);
  expect(sent[0]?.headers["idempotency-key"]).toMatch(/^[0-9a-f]{32}$/);
  expect(sent[1]?.headers["idempotency-key"]).toBe(sent[0]?.headers["idempotency-key"]);
  expect(sent[1]?.body).toBe('{"name":"blue"}');
});

test("a gateway that knows no session of this browser says so without an error", async () => {
  answers = [
    json(200, {
      administrator: false,
      key: null,
      csrf_token: null,
      expires_at_ms: null,
      idle_seconds_max: 3600,
      by: "session",
      human: null,
      permissions: ["administer"],
      roles: {},
      extents: {},
      sso: null,
    }),
  ];
  expect(await currentSession()).toBeNull();
});

test("a token that another tab has replaced is read again", async () => {
  answers = [fault(403, "forbidden"), json(200, opened("two")), json(200, {})];
  await call("PATCH", "keys/key_1", { body: {}, ifMatch: 3 });
  expect(sent.map(({ path }) => path)).toEqual(["/admin/api/keys/key_1", "/admin/api/session", "/admin/api/keys/key_1"]);
  expect(sent[2]?.headers).toMatchObject({ "x-csrf-token": "two", "if-match": '"3"' });
});

test("a refusal that is not about the token is an error at once", async () => {
  answers = [fault(403, "forbidden"), json(200, opened("one"))];
  await expect(call("DELETE", "keys/key_1")).rejects.toMatchObject({ status: 403 });
});

test("an error has the server's message, the field it names and the request's id", async () => {
  answers = [fault(400, "invalid_request", "name")];
  const error = await call("POST", "projects", { body: {} }).catch((error: unknown) => error);
  expect(error).toBeInstanceOf(Fault);
  expect(error).toMatchObject({ status: 400, message: "no: invalid_request", param: "name", requestId: "req_1" });
});

test("an answer that is no JSON is an error with its status", async () => {
  answers = [() => new Response("<html>", { status: 502 })];
  await expect(call("GET", "state")).rejects.toMatchObject({ status: 502, code: "unknown" });
});

test("a gateway that does not answer is noticed, and its return as well", async () => {
  await expect(call("GET", "state")).rejects.toBeInstanceOf(Unreachable);
  expect(offlineSince.value).not.toBeNull();
  answers = [json(200, {})];
  await call("GET", "state");
  expect(offlineSince.value).toBeNull();
});

test("a call ends when the gateway must have answered, also one that can be given up before", async () => {
  const times: number[] = [];
  vi.spyOn(AbortSignal, "timeout").mockImplementation((ms) => {
    times.push(ms);
    return AbortSignal.abort();
  });
  vi.stubGlobal("fetch", (_: string, { signal }: RequestInit) => (signal?.aborted ? Promise.reject(signal.reason) : new Promise(() => {})));
  for (const [path, options] of [
    ["providers/p/test", { body: {} }],
    ["endpoints/smart?dry_run=true", { body: {}, signal: new AbortController().signal }],
  ] as const) {
    offlineSince.value = null;
    await expect(call("POST", path, options)).rejects.toBeInstanceOf(Unreachable);
    expect(offlineSince.value).not.toBeNull();
  }
  expect(times.slice(0, 2)).toEqual([160_000, 40_000]);
  vi.restoreAllMocks();
});

test("a human has a permission in a project as far as its extent reaches", () => {
  const human = { id: "prn_me", name: "Me", email: null };
  const extents = { admin: { reveal_keys: "own", mint_keys: "free", change_keys: "all", change_owners: "nothing" } } as const;
  session.value = { ...opened("one"), administrator: false, human, permissions: ["mint_keys"], roles: { prj_a: "admin" }, extents };
  const reach = (permission: keyof typeof extents.admin, project = "prj_a"): boolean[] =>
    ["prn_me", null, "prn_other"].map((owner) => mayIn(project, permission, owner));
  expect(reach("reveal_keys")).toEqual([true, false, false]);
  expect(reach("mint_keys")).toEqual([true, true, false]);
  expect(reach("change_keys")).toEqual([true, true, true]);
  expect(reach("change_owners")).toEqual([false, false, false]);
  expect(reach("change_keys", "prj_b")).toEqual([false, false, false]);
  session.value = opened("one");
  expect(reach("change_owners", "prj_b")).toEqual([true, true, true]);
});
