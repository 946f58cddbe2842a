// The objects that forms and filters choose from: how they are searched on the server, and how one is named by its ID.
import { useEffect, useState } from "preact/hooks";
import { merged, type Suggested, type Suggestion } from "../part/combobox";
import { at, call, may, mayIn } from "./client";
import { type List, useList } from "./list";
import type { SelectorAccess } from "./shapes";
import type { Endpoint, Key, Member, Model, Page, Principal, Project, Provider } from "./types";

/** The number of suggestions. */
export const FOUND_MAX = 20;
/** The rows of a page of which the console leaves out some. */
const READ_ROWS = 50;
/** The pages that are read for one search at most. */
const PAGES_MAX = 40;

/** Where objects are chosen from. */
export type Source = {
  /** Finds those whose name holds a text. */
  suggest: (text: string) => Promise<Suggested>;
  /** The path of one object; null if its value is its name. */
  path: (value: string) => string | null;
  /** The text that stands for the object at that path. */
  text: (object: object) => string;
};

type Query = Record<string, string>;

/** Finds the first rows of a list that fit, and says whether there may be more. */
export async function search<T>(
  path: string,
  query: Query,
  fits: ((row: T) => boolean) | null = null,
): Promise<{ rows: T[]; more: boolean }> {
  const rows: T[] = [];
  const given = Object.entries(query).filter(([, value]) => value !== "");
  let cursor: string | null = "";
  for (let pages = 0; cursor !== null && rows.length < FOUND_MAX && pages < PAGES_MAX; pages += 1) {
    const limit = String(fits ? READ_ROWS : FOUND_MAX);
    const asked = new URLSearchParams([...given, ["limit", limit], ...(cursor ? [["cursor", cursor]] : [])]);
    const { data }: { data: Page<T> } = await call<Page<T>>("GET", `${path}?${asked}`);
    rows.push(...(fits ? data.data.filter(fits) : data.data));
    cursor = data.next_cursor;
  }
  return { rows: rows.slice(0, FOUND_MAX), more: cursor !== null || rows.length > FOUND_MAX };
}

/** Suggests the rows of a list. */
export async function suggestRows<T>(
  path: string,
  query: Query,
  shown: (row: T) => Suggestion,
  fits: ((row: T) => boolean) | null = null,
): Promise<Suggested> {
  const { rows, more } = await search<T>(path, query, fits);
  return { found: rows.map(shown), more };
}

const BY_NAME: Query = { sort: "name", order: "asc" };

type Kind<T> = {
  path: string;
  shown: (row: T) => Suggestion;
};

/** The objects of a kind that fit, in order of their names. */
function source<T extends object>({ path, shown }: Kind<T>, query: Query = {}, fits: ((row: T) => boolean) | null = null): Source {
  return {
    suggest: (text) => suggestRows<T>(path, { ...BY_NAME, ...query, q: text.trim() }, shown, fits),
    path: (id) => at(path, id),
    text: (object) => shown(object as T).text,
  };
}

const named = (value: string, text: string, note: string | null = null): Suggestion => ({ value, text, title: text, note });

const PROJECT: Kind<Project> = { path: "projects", shown: ({ id, name }) => named(id, name) };
const HUMAN: Kind<Principal> = { path: "principals", shown: ({ id, name, email }) => named(id, name, email) };
const KEY: Kind<Key> = { path: "keys", shown: ({ id, name, prefix }) => named(id, name, `${prefix}…`) };
const PROVIDER: Kind<Provider> = { path: "providers", shown: ({ id }) => named(id, id) };

/** Objects whose value is their name. */
const BY_VALUE: Pick<Source, "path" | "text"> = { path: () => null, text: () => "" };

const ENABLED: Query = { disabled: "false" };

export const projects: Source = source(PROJECT);
export const humans: Source = source(HUMAN);
/** The subjects that a limit may have, by their kinds. */
export const subjects = { key: source(KEY), project: projects, principal: humans, provider: source(PROVIDER) };

export const enabledHumans: Source = source(HUMAN, ENABLED);
export const enabledProjects: Source = source(PROJECT, ENABLED);
/** The projects that are not disabled and fit. */
export const projectsWhich = (fits: (project: Project) => boolean): Source => source(PROJECT, ENABLED, fits);
/** The keys that clients may send. */
export const activeKeys: Source = source(KEY, { state: "active" });
export const readyProvidersWhich = (fits: (provider: Provider) => boolean): Source => source(PROVIDER, { state: "ready" }, fits);

/** The members of a project that are not disabled. */
export const membersOf = (project: string): Source => ({
  suggest: async (text) => {
    if (!project) return NONE;
    return suggestRows<Member>(`${at("projects", project)}/members`, { ...ENABLED, q: text.trim() }, (member) =>
      named(member.principal, member.principal_name ?? member.principal, member.principal_email),
    );
  },
  path: humans.path,
  text: humans.text,
});

/** What can be sent as: keys by which the caller may send requests, and for administrators humans. */
export const callers: Source = {
  suggest: async (text) => {
    const query = { ...BY_NAME, q: text.trim() };
    const mine = ({ project, acts_as }: Key): boolean => mayIn(project, "run_requests", acts_as);
    const keys = suggestRows<Key>("keys", { ...query, state: "active" }, caller, may("administer") ? null : mine);
    const people = may("administer") ? suggestRows<Principal>("principals", { ...query, ...ENABLED }, caller) : NONE;
    return merged(await Promise.all([keys, people]));
  },
  path: (id) => at(id.startsWith("prn_") ? "principals" : "keys", id),
  text: (object) => caller(object as Key | Principal).text,
};

function caller(one: Key | Principal): Suggestion {
  return "prefix" in one ? named(one.id, `key ${one.name}`, `${one.prefix}…`) : named(one.id, `human ${one.name}`, one.email);
}

const NONE: Suggested = { found: [], more: false };

/**
 * The selectors that a key may use: endpoints, and for humans, who see no endpoints elsewhere, models as well. Without a key, the
 * endpoints of the gateway.
 */
export const selectorsOf = (key: string): Source => ({
  suggest: async (text) => {
    if (!key) return may("administer") ? endpoints().suggest(text) : NONE;
    const query = { allowed: "true", q: text.trim() };
    const path = `${at("keys", key)}/access`;
    const shown = ({ selector }: SelectorAccess): Suggestion => named(selector, selector);
    const first = await suggestRows<SelectorAccess>(path, { ...query, kind: "endpoint" }, shown);
    if (may("administer")) return first;
    return merged([first, await suggestRows<SelectorAccess>(path, query, shown, ({ kind }) => kind !== "endpoint")]);
  },
  ...BY_VALUE,
});

/** The endpoints of the gateway, or those of one source; each is its own name. */
export const endpoints = (query: Query = {}): Source => ({
  suggest: (text) =>
    suggestRows<Endpoint>(
      "endpoints",
      { ...BY_NAME, ...query, q: text.trim() },
      ({ name, failover }) => named(name, name, failover.map((target) => target.provider).join(", ")),
      ({ shadowed }) => !shadowed,
    ),
  ...BY_VALUE,
});

/** The models of a provider, without its name. */
export const modelsOf = (provider: string): Source => ({
  suggest: (text) => suggestRows<Model>("catalog", { ...BY_NAME, provider, q: text.trim() }, ({ model }) => named(model, model)),
  ...BY_VALUE,
});

/**
 * Returns the first objects that can be chosen, for the default of a field; null until they are known. `key` names what `of` depends
 * on, and is null while that is not known.
 */
export function useFirst(of: Source, key: string | null = ""): Suggested | null {
  const [first, setFirst] = useState<{ key: string; found: Suggested } | null>(null);
  useEffect(() => {
    if (key === null) return;
    let isOver = false;
    const take = (found: Suggested): void => {
      if (!isOver) setFirst({ key, found });
    };
    of.suggest("").then(take, () => take({ found: [], more: false }));
    return () => {
      isOver = true;
    };
  }, [key]);
  return first?.key === key ? first.found : null;
}

/** Returns all rows of a list, page after page; `isWhole` once the last one is read. */
export function useAll<T>(path: string, query: Query = {}): { list: List<T>; rows: T[]; isWhole: boolean } {
  const list = useList<T>(path, query);
  const next = list.next.value;
  const error = list.error.value;
  const isBusy = list.busy.value;
  useEffect(() => {
    if (next !== null && error === null && !isBusy) void list.more();
  }, [list, next, error, isBusy]);
  const rows = list.pages.value.flatMap((page) => page.rows ?? []);
  return { list, rows, isWhole: list.isRead && next === null };
}
