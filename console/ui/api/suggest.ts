// Suggestions for pickers, from the lists that the admin API has.
import type { Suggestion } from "../part/combobox";
import { price, short, UNKNOWN } from "../part/format";
import { call, may } from "./client";
import { phraseOf } from "./phrase";
import type { SelectorAccess } from "./shapes";
import type { Endpoint, Model, Page } from "./types";

const FOUND_MAX = 20;

/** Selectors that the keys of a project may use, for humans, who see no catalog. */
async function suggestOf(project: string, kind: "endpoint" | "model", text: string): Promise<Suggestion[]> {
  if (!project) return [];
  const search = new URLSearchParams({ kind, allowed: "true", limit: String(FOUND_MAX), q: text.trim() });
  const { data } = await call<Page<SelectorAccess>>("GET", `projects/${encodeURIComponent(project)}/access?${search}`);
  return data.data.map(({ selector }) => ({ value: selector, text: selector, title: selector }));
}

/** Endpoints whose name holds `text`; for a human, those that a project may use. */
export async function suggestEndpoints(text: string, project: string): Promise<Suggestion[]> {
  if (!may("administer")) return suggestOf(project, "endpoint", text);
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

/**
 * Models of the catalog whose name holds `text`, those that a test has proven first. Before a slash stands a provider; a text that
 * fits no model may be one. A text may also name what the model has to be, such as "images under $2".
 */
export async function suggestModels(text: string): Promise<Suggestion[]> {
  const { filters, rest } = phraseOf(text);
  let found = await ranked({ ...filters, ...nameOf(rest) });
  if (found.length === 0 && rest) found = await ranked(rest.includes("/") ? { ...filters, q: rest } : { ...filters, provider: rest });
  if (found.length === 0 && Object.keys(filters).length) found = await ranked({ q: text.trim() });
  return found.map((model) => ({ value: model.id, text: model.id, title: model.id, note: notes(model) }));
}

function nameOf(text: string): Record<string, string> {
  const slash = text.indexOf("/");
  return slash > 0 ? { provider: text.slice(0, slash), q: text.slice(slash + 1) } : { q: text };
}

/** The proven models that fit, and then others. */
async function ranked(filter: Record<string, string>): Promise<Model[]> {
  const [proven, all] = await Promise.all([catalog({ ...filter, proven: "true" }), catalog(filter)]);
  return [...proven, ...all.filter(({ id }) => !proven.some((model) => model.id === id))].slice(0, FOUND_MAX);
}

function notes({ prices, context_window, vision, proven_at_ms }: Model): string {
  const both = [prices?.input, prices?.output].map((amount) => (typeof amount === "number" ? price(amount) : UNKNOWN));
  const words = [
    proven_at_ms === null ? "" : "proven",
    vision ? "images" : "",
    context_window ? `${short(context_window)} context` : "",
    prices ? both.join(" in, ").concat(" out") : "price unknown",
  ];
  return words.filter(Boolean).join(" · ");
}

/** Models, and all models of each provider; for a human, the models that a project may use. */
export async function suggestModelEntries(text: string, project: string): Promise<Suggestion[]> {
  if (!may("administer")) return suggestOf(project, "model", text);
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
