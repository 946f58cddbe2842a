// Suggestions for the scope of a rule: the objects that its alerts may be about.
import { call } from "../../api/client";
import type { Page, Quota } from "../../api/types";
import type { Suggestion } from "../../part/combobox";
import { limitName } from "../../part/limits";
import type { About } from "./kinds";

type Named = { id?: string; name?: string };

/** The lists that hold the objects; other alerts are about the gateway. */
const LISTS: Partial<Record<About, string[]>> = {
  key: ["keys"],
  provider: ["providers"],
  endpoint: ["endpoints"],
  spender: ["keys", "projects"],
};

/** True if rules about these objects can be restricted to some. */
export const isScoped = (about: About): boolean => about === "quota" || about in LISTS;

export async function suggestAbout(about: About, text: string): Promise<Suggestion[]> {
  if (about === "quota") return suggestQuotas(text);
  const query = new URLSearchParams({ q: text.trim(), limit: String(FOUND_MAX) });
  const lists = (LISTS[about] ?? []).map(async (list) => {
    const { data } = await call<Page<Named>>("GET", `${list}?${query}`);
    return data.data.map(({ id, name }) => suggestion(id ?? name ?? "", name ?? id ?? "", list.slice(0, -1)));
  });
  return (await Promise.all(lists)).flat();
}

async function suggestQuotas(text: string): Promise<Suggestion[]> {
  const { data } = await call<Page<Quota>>("GET", "quotas?limit=500");
  const wanted = text.trim().toLowerCase();
  const found = data.data.map((quota) => {
    const { kind, id } = quota.subject;
    return suggestion(quota.id, limitName(quota), id === undefined ? kind : `${kind} ${id}`);
  });
  return found.filter(({ text, note }) => `${text} ${note}`.toLowerCase().includes(wanted)).slice(0, FOUND_MAX);
}

const suggestion = (value: string, text: string, note: string): Suggestion => ({ value, text, title: text, note });

const FOUND_MAX = 20;
