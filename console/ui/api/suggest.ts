// Suggestions for pickers, from the lists that the admin API has.
import { fitting, type Suggested, type Suggestion } from "../part/combobox";
import { provenAt } from "../part/evidence";
import { price, short, UNKNOWN } from "../part/format";
import { at, may } from "./client";
import { endpoints, FOUND_MAX, search, suggestRows } from "./objects";
import { phraseOf } from "./phrase";
import type { SelectorAccess } from "./shapes";
import type { Model } from "./types";

/** Selectors that the keys of a project may use, for humans, who see no catalog. */
async function suggestOf(project: string, kind: "endpoint" | "model", text: string): Promise<Suggested> {
  if (!project) return { found: [], more: false };
  return suggestRows<SelectorAccess>(`${at("projects", project)}/access`, { kind, allowed: "true", q: text.trim() }, ({ selector }) => ({
    value: selector,
    text: selector,
    title: selector,
  }));
}

/** Endpoints whose name holds `text`; for a human, those that a project may use. */
export const suggestEndpoints = (text: string, project: string): Promise<Suggested> =>
  may("administer") ? endpoints().suggest(text) : suggestOf(project, "endpoint", text);

const catalog = (filter: Record<string, string>) => search<Model>("catalog", filter);

/**
 * Models of the catalog whose name holds `text`, those that a test has proven first. Before a slash stands a provider; a text that
 * fits no model may be one. A text may also name what the model has to be, such as "images under $2".
 */
export async function suggestModels(text: string): Promise<Suggested> {
  const { filters, rest } = phraseOf(text);
  let found = await ranked({ ...filters, ...nameOf(rest) });
  if (found.rows.length === 0 && rest) found = await ranked(rest.includes("/") ? { ...filters, q: rest } : { ...filters, provider: rest });
  if (found.rows.length === 0 && Object.keys(filters).length) found = await ranked({ q: text.trim() });
  const shown = found.rows.map((model) => ({ value: model.id, text: model.id, title: model.id, note: notes(model) }));
  return { found: shown, more: found.more };
}

function nameOf(text: string): Record<string, string> {
  const slash = text.indexOf("/");
  return slash > 0 ? { provider: text.slice(0, slash), q: text.slice(slash + 1) } : { q: text };
}

/** The proven models that fit, and then others. */
async function ranked(filter: Record<string, string>): Promise<{ rows: Model[]; more: boolean }> {
  const [proven, all] = await Promise.all([catalog({ ...filter, proven: "true" }), catalog(filter)]);
  const rows = [...proven.rows, ...all.rows.filter(({ id }) => !proven.rows.some((model) => model.id === id))];
  return { rows: rows.slice(0, FOUND_MAX), more: all.more || rows.length > FOUND_MAX };
}

function notes(of: Model): string {
  const { prices, context_window, vision } = of;
  const both = [prices?.input, prices?.output].map((amount) => (typeof amount === "number" ? price(amount) : UNKNOWN));
  const words = [
    provenAt(of) === null ? "" : "proven",
    vision ? "images" : "",
    context_window ? `${short(context_window)} context` : "",
    prices ? both.join(" in, ").concat(" out") : "price unknown",
  ];
  return words.filter(Boolean).join(" · ");
}

/** Models, and all models of each provider; for a human, the models that a project may use. */
export async function suggestModelEntries(text: string, project: string): Promise<Suggested> {
  if (!may("administer")) return suggestOf(project, "model", text);
  const { found, more } = await suggestModels(text);
  const providers = [...new Set(found.map(({ value }) => value.split("/")[0] ?? ""))];
  const whole = providers.map((provider) => ({
    value: `${provider}/*`,
    text: provider,
    title: `${provider}/*`,
    note: "all of this provider",
  }));
  return { found: [...whole, ...found], more };
}

const OPERATIONS = [
  "chat_completions",
  "responses",
  "messages",
  "count_tokens",
  "generate_content",
  "embeddings",
  "transcription",
  "speech",
  "images",
  "videos",
  "models",
];

/** Operations that a key may be restricted to. */
export const suggestOperations = (text: string): Suggested =>
  fitting(
    OPERATIONS.map((name): Suggestion => ({ value: name, text: name, title: name })),
    text,
  );
