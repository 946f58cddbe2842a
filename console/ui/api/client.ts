// Calls of the admin API. One place handles an ended session, a gateway that does not answer, and errors.
import { signal } from "@preact/signals";
import { awaited } from "./arrival";
import { gatewayPath } from "./base";
import { seeReach } from "./reach";
import type { Permission, Session, SessionSso } from "./types";

const ROOT = gatewayPath("/admin/api/");

/** An error that the gateway answered. */
export class Fault extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    /** The name of the invalid field or parameter. */
    readonly param: string | null,
    readonly requestId: string | null,
  ) {
    super(message);
  }
}

/** The gateway did not answer. */
export class Unreachable extends Error {
  constructor() {
    super("The gateway does not answer.");
  }
}

export type Answer<T> = { data: T; etag: string | null };

/** The session of this page; null while nobody is signed in. */
export const session = signal<Session | null>(null);
/** Single sign-on, as the last look at the session showed it; null if it is off. */
export const sso = signal<SessionSso | null>(null);

/** True if the caller has the permission for some objects at least. The gateway decides about each. */
export const may = (permission: Permission): boolean => session.value?.permissions.includes(permission) ?? false;

/** The ID of the human who signed in; null for an administrator's key. */
export const self = (): string | null => session.value?.human?.id ?? null;

/** True if the caller has the permission in a project for an object that belongs to `owner`, or to no human. */
export function mayIn(project: string, permission: Permission, owner: string | null): boolean {
  if (may("administer")) return true;
  const role = session.value?.roles[project];
  const extent = role && session.value?.extents[role]?.[permission];
  return extent === "all" || (extent === "free" && owner === null) || ((extent === "free" || extent === "own") && owner === self());
}

/** What humans without the administrators' group may read. */
const OF_HUMANS = [
  "session",
  "device-sign-ins",
  "principals",
  "projects",
  "keys",
  "providers",
  "quotas",
  "requests",
  "run",
  "running",
  "search",
  "series",
  "suggest",
  "usage",
];

/** True if the caller may read the path; pages do not ask for what would be refused. */
export const readable = (path: string): boolean =>
  session.value === null || may("administer") || OF_HUMANS.includes(path.split(/[/?]/)[0] ?? "");

/** True while the sign-in is open. */
export const signInWanted = signal(false);
/** The time at which the gateway stopped answering. */
export const offlineSince = signal<number | null>(null);
/** Counts how often the gateway has answered again after it did not; pages that saw an error load again. */
export const returns = signal(0);

let waiting: (() => void)[] = [];

/** Takes the session of a sign-in and repeats the calls that waited for it. */
export function signedIn(opened: Session): void {
  session.value = opened;
  signInWanted.value = false;
  const repeated = waiting;
  waiting = [];
  for (const go of repeated) go();
}

function askForSignIn(): Promise<void> {
  signInWanted.value = true;
  return new Promise((resolve) => waiting.push(resolve));
}

/** A random name for a request that must not be carried out twice. */
export function newRepeatKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

export type Options = {
  body?: unknown;
  /** The version that the caller has seen. */
  ifMatch?: string | number | null | undefined;
  /** The name under which a repeated POST gets the first answer. */
  repeatKey?: string;
  signal?: AbortSignal;
  /** The answer is shown in a place of its own size, so nothing moves when it comes: the page does not wait for it. */
  hasPlace?: boolean;
};

/** The parts of a path, encoded. */
export const at = (...parts: string[]): string => parts.map((part, i) => (i % 2 ? encodeURIComponent(part) : part)).join("/");

function headersOf(method: string, options: Options): Record<string, string> {
  const headers: Record<string, string> = { accept: "application/json" };
  if (options.body !== undefined) headers["content-type"] = "application/json";
  if (method !== "GET" && session.value?.csrf_token) headers["x-csrf-token"] = session.value.csrf_token;
  if (options.ifMatch != null) headers["if-match"] = typeof options.ifMatch === "number" ? `"${options.ifMatch}"` : options.ifMatch;
  if (method === "POST") headers["idempotency-key"] = options.repeatKey ?? newRepeatKey();
  return headers;
}

async function send(method: string, path: string, options: Options): Promise<Response> {
  const limit = AbortSignal.timeout(answerMs(path));
  try {
    const response = await fetch(ROOT + path, {
      method,
      headers: headersOf(method, options),
      credentials: "same-origin",
      cache: "no-store",
      redirect: "error",
      ...(options.body === undefined ? {} : { body: JSON.stringify(options.body) }),
      signal: options.signal ? AbortSignal.any([options.signal, limit]) : limit,
    });
    answered();
    return response;
  } catch (error) {
    if (options.signal?.aborted) throw error;
    silent();
    throw new Unreachable();
  }
}

/** The time after which the gateway has given up, too: it answers in 30 s, and a test of a model in 150 s. */
const answerMs = (path: string): number => (path.split("?")[0]?.endsWith("/test") ? 160_000 : 40_000);

async function faultOf(response: Response): Promise<Fault> {
  const text = await response.text().catch(() => "");
  try {
    const { message, code, param, request_id } = JSON.parse(text).error;
    return new Fault(response.status, code, message, param, request_id);
  } catch {
    return new Fault(
      response.status,
      "unknown",
      `The gateway answered with status ${response.status}.`,
      null,
      response.headers.get("x-request-id"),
    );
  }
}

/** Calls the admin API. After an ended session it waits for a sign-in and repeats the call. */
export async function call<T>(
  method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE",
  path: string,
  options: Options = {},
): Promise<Answer<T>> {
  const once = { ...options, repeatKey: options.repeatKey ?? newRepeatKey() };
  const there = once.hasPlace ? () => {} : awaited();
  try {
    return await answerOf<T>(method, path, once);
  } finally {
    there();
  }
}

async function answerOf<T>(method: string, path: string, once: Options): Promise<Answer<T>> {
  for (let repeated = false; ; repeated = true) {
    const response = await send(method, path, once);
    if (response.status === 401) {
      await response.body?.cancel();
      await askForSignIn();
      continue;
    }
    if (response.ok) {
      if (method !== "GET") seeReach(response.headers);
      const data = response.status === 204 ? undefined : await bodyOf(response);
      return { data: data as T, etag: response.headers.get("etag") };
    }
    const fault = await faultOf(response);
    // Another tab has signed in: its session has another token.
    if (response.status === 403 && method !== "GET" && !repeated && (await renewToken())) continue;
    throw fault;
  }
}

async function bodyOf(response: Response): Promise<unknown> {
  try {
    return await response.json();
  } catch {
    silent();
    throw new Unreachable();
  }
}

async function renewToken(): Promise<boolean> {
  const known = session.value?.csrf_token;
  const response = await send("GET", "session", {});
  if (!response.ok) return false;
  const opened: Session = await response.json();
  if (!isOpen(opened)) return false;
  session.value = opened;
  return opened.csrf_token !== known;
}

const isOpen = (found: Session): boolean => found.administrator || found.human !== null;

/** Returns the session of the cookie, or null. */
export async function currentSession(): Promise<Session | null> {
  const response = await send("GET", "session", {});
  if (response.ok) {
    const found: Session = await response.json();
    sso.value = found.sso;
    return isOpen(found) ? found : null;
  }
  await response.body?.cancel();
  return null;
}

/** Opens a session with an administrator key. The key is sent in the body and kept nowhere. */
export const openSession = (key: string): Promise<Session> => opened({ key });

/** Opens a session as the human whom single sign-on has authenticated. */
export const openHumanSession = (): Promise<Session> => opened({ sso: true });

async function opened(body: { key: string } | { sso: true }): Promise<Session> {
  const response = await send("POST", "session", { body });
  if (response.ok) return response.json();
  throw await faultOf(response);
}

/** Ends the session. */
export async function closeSession(): Promise<void> {
  const leave = session.value?.human ? session.value.sso?.sign_out_url : null;
  await send("DELETE", "session", {}).then((response) => response.body?.cancel());
  // The session with the proxy ends there; without that, the next person could continue as this one.
  if (leave) location.assign(leave);
  session.value = null;
  signInWanted.value = true;
}

function answered(): void {
  if (offlineSince.value === null) return;
  offlineSince.value = null;
  returns.value += 1;
}

function silent(since = Date.now()): void {
  if (offlineSince.value !== null) return;
  offlineSince.value = since;
  setTimeout(knock, KNOCK_MS);
}

/** Asks the gateway once whether it answers, unless it is known to be silent: then `knock` asks. */
export async function seeWhetherAlive(): Promise<void> {
  if (offlineSince.value !== null) return;
  const asked = Date.now();
  if (!(await isAlive())) silent(asked);
}

/** True if the gateway answers soon. A process that is stopped accepts connections and never answers. */
const isAlive = (): Promise<boolean> =>
  fetch(gatewayPath("/health"), { cache: "no-store", signal: AbortSignal.timeout(HEALTH_MS) }).then(
    (response) => response.ok,
    () => false,
  );

/** Asks until the gateway answers again. A hidden page does not ask. */
async function knock(): Promise<void> {
  if (offlineSince.value === null) return;
  if (!document.hidden && (await isAlive())) return answered();
  setTimeout(knock, KNOCK_MS);
}

const KNOCK_MS = 2000;
/** The gateway answers `/health` within this time, or counts as silent. */
const HEALTH_MS = 4000;
