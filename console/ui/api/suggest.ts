// Suggestions for pickers, from the lists that the admin API has.
import type { Suggestion } from "../part/combobox";
import { price } from "../part/format";
import { call } from "./client";
import type { Endpoint, Model, Page } from "./types";

const FOUND_MAX = 20;

/** Endpoints whose name holds `text`. */
export async function suggestEndpoints(text: string): Promise<Suggestion[]> {
  const { data } = await call<Page<Endpoint>>("GET", "endpoints?limit=500");
  const wanted = text.trim().toLowerCase();
  const found = data.data.filter(({ name, shadowed }) => !shadowed && name.toLowerCase().includes(wanted));
  return found
    .slice(0, FOUND_MAX)
    .map(({ name, failover }) => ({ value: name, text: name, title: name, note: failover.map((target) => target.provider).join(", ") }));
}

async function catalog(filter: Record<string, string>): Promise<Model[]> {
  const given = Object.entries(filter).filter(([, value]) => value !== "");
  const search = new URLSearchParams([...given, ["limit", String(FOUND_MAX)]]);
  return (await call<Page<Model>>("GET", `catalog?${search}`)).data.data;
}

/** Models of the catalog whose name holds `text`. Before a slash stands a provider; a text that fits no model may be one. */
export async function suggestModels(text: string): Promise<Suggestion[]> {
  const wanted = text.trim();
  const slash = wanted.indexOf("/");
  let found = slash > 0 ? await catalog({ provider: wanted.slice(0, slash), q: wanted.slice(slash + 1) }) : await catalog({ q: wanted });
  if (found.length === 0) found = await catalog(slash > 0 ? { q: wanted } : { provider: wanted });
  return found.map((model) => ({ value: model.id, text: model.id, title: model.id, note: notes(model) }));
}

function notes({ prices, context_window }: Model): string {
  const input = prices?.input;
  const context = context_window ? `${Math.round(context_window / 1000)} k context` : "";
  return [typeof input === "number" ? price(input) : "", context].filter(Boolean).join(" · ");
}

/** Models, and all models of each provider. */
export async function suggestModelEntries(text: string): Promise<Suggestion[]> {
  const models = await suggestModels(text);
  const providers = [...new Set(models.map(({ value }) => value.split("/")[0] ?? ""))];
  const whole = providers.map((provider) => ({
    value: `${provider}/*`,
    text: provider,
    title: `${provider}/*`,
    note: "all of this provider",
  }));
  return [...whole, ...models].slice(0, FOUND_MAX);
}

const OPERATIONS = [
  "chat_completions",
  "responses",
  "messages",
  "count_tokens",
  "embeddings",
  "transcription",
  "speech",
  "images",
  "videos",
  "models",
];

/** Operations that a key may be restricted to. */
export const suggestOperations = (text: string): Suggestion[] =>
  OPERATIONS.filter((name) => name.includes(text.trim().toLowerCase())).map((name) => ({ value: name, text: name, title: name }));
