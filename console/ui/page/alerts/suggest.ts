// Suggestions for the scope of a rule: the objects that its alerts may be about.
import { search } from "../../api/objects";
import type { Quota } from "../../api/types";
import { merged, type Suggested, type Suggestion } from "../../part/combobox";
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

export async function suggestAbout(about: About, text: string): Promise<Suggested> {
  if (about === "quota") return suggestQuotas(text);
  const lists = (LISTS[about] ?? []).map(async (list) => {
    const { rows, more } = await search<Named>(list, { sort: "name", order: "asc", q: text.trim() });
    return { found: rows.map(({ id, name }) => suggestion(id ?? name ?? "", name ?? id ?? "", list.slice(0, -1))), more };
  });
  return merged(await Promise.all(lists));
}

/** Limits by what they bind, count and apply to. */
async function suggestQuotas(text: string): Promise<Suggested> {
  const { rows, more } = await search<Quota>("quotas", { sort: "name", order: "asc", q: text.trim() });
  const found = rows.map((quota) => {
    const { kind, id, name } = quota.subject;
    return suggestion(quota.id, `${name ?? id ?? "the gateway"}: ${limitName(quota)}`, kind);
  });
  return { found, more };
}

const suggestion = (value: string, text: string, note: string): Suggestion => ({ value, text, title: text, note });
