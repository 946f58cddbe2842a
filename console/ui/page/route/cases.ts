// The requests that the matrix asks about, and what the gateway's answer means for each target.
import { type ExplainedCase, plainRequest } from "../../api/explain";
import type { ExplainCase, Model, Target } from "../../api/types";
import { passedShort, stepWords } from "../../part/outcome";
import { sameTarget } from "../routes";
import { idOf } from "./draft";

/** Operations that go to the first target of an endpoint alone. */
export const FIRST_ONLY: Record<string, string> = {
  embeddings: "Embeddings",
  speech: "Speech",
  transcription: "Transcription",
  images: "Image generation",
  videos: "Video",
};

/** A transparent picture of one pixel. */
const PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII=";

/** The requests to ask about, named as the matrix does: those of each protocol first. */
export function casesFor(model: string, used: string[], keys: string[]): ExplainCase[] {
  const plain = (name: string, operation: string): ExplainCase[] => {
    const request = plainRequest(operation, model);
    return request ? [{ name, ...request }] : [];
  };
  const parts = [
    { type: "text", text: "What is this?" },
    { type: "image_url", image_url: { url: PIXEL } },
  ];
  const [chat] = plain("", "chat_completions");
  return [
    ...plain(TEXTS[0], "chat_completions"),
    ...plain(TEXTS[1], "messages"),
    ...plain(TEXTS[2], "responses"),
    { name: "Images", path: "/v1/chat/completions", body: { model, messages: [{ role: "user", content: parts }] } },
    {
      name: "Tools",
      path: "/v1/chat/completions",
      body: { model, messages: [{ role: "user", content: "What is the time?" }], tools: [TOOL] },
    },
    { name: "Responses that keep state", path: "/v1/responses", body: { model, input: "Say hello.", store: true } },
    ...used.flatMap((operation) => plain(FIRST_ONLY[operation] ?? operation, operation)),
    ...keys.flatMap((key_id) => (chat ? [{ ...chat, name: key_id, key_id }] : [])),
  ];
}

/** A function that a model may call. */
const TOOL = { type: "function", function: { name: "time", parameters: { type: "object", properties: {} } } };

const TEXTS = ["Text through Chat", "Text through Messages", "Text through Responses"] as const;

/** What happens to a request at one target. `short` is null if the target serves; `adapted` are the protocols of an adaptation. */
export type Cell = {
  short: string | null;
  words: string;
  adapted?: [client: string, target: string];
  /** True if the target is tried, and it is not known that its model can do it. */
  isUnknown?: boolean;
};

/** What a case needs of a model, as the catalog names it. */
const NEEDS: Record<string, "vision" | "tools"> = { Images: "vision", Tools: "tools" };

export function cellOf(of: ExplainedCase, target: Target, model?: Model): Cell {
  const need = NEEDS[of.name];
  const unknown = need !== undefined && model !== undefined && model[need] === null ? { isUnknown: true } : {};
  const candidate = of.candidates.find((other) => sameTarget(other, target));
  const [protocol] = of.needs;
  if (candidate?.adapted && protocol)
    return { short: null, words: `serves, adapted to ${candidate.adapted}`, adapted: [protocol, candidate.adapted], ...unknown };
  if (candidate) return { short: null, words: "serves", ...unknown };
  const passed = of.passed_over.find((other) => sameTarget(other, target));
  if (passed) {
    const words = stepWords({ ...target, result: passed.reason });
    return passed.param
      ? { short: `no ${passed.param}`, words: `${words}: ${passed.param}` }
      : { short: passedShort(passed.reason), words };
  }
  if (of.refusal) return { short: "refused", words: of.refusal.message };
  return { short: "never used", words: "these requests go to the first target alone, or the provider is not in use" };
}

export type Row = { name: string; cells: Cell[]; refusal: string | null };

/** The rows of the matrix. Protocols that fare alike share one row. */
export function rowsOf(cases: ExplainedCase[], targets: Target[], models: Map<string, Model> = new Map()): Row[] {
  const rows = cases.map((of) => ({
    name: of.name,
    cells: targets.map((target) => cellOf(of, target, models.get(idOf(target)))),
    refusal: of.candidates.length ? null : (of.refusal?.message ?? null),
  }));
  const texts = rows.slice(0, TEXTS.length);
  const [first] = texts;
  const isAlike = texts.length === TEXTS.length && texts.every(({ cells }) => JSON.stringify(cells) === JSON.stringify(first?.cells));
  return first && isAlike ? [{ ...first, name: "Text, any protocol" }, ...rows.slice(TEXTS.length)] : rows;
}
