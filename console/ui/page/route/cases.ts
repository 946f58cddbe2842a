// The requests that the matrix asks about, and what the gateway's answer means for each target.
import { type ExplainedCase, plainRequest } from "../../api/explain";
import type { ExplainCase, Model, Target } from "../../api/types";
import { short } from "../../part/format";
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

/** A PDF of one empty page. */
const PDF = btoa(
  "%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj 2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj " +
    "3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF",
);

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
  const document = { type: "document", source: { type: "base64", media_type: "application/pdf", data: PDF } };
  const [chat] = plain("", "chat_completions");
  return [
    ...plain(TEXTS[0], "chat_completions"),
    ...plain(TEXTS[1], "messages"),
    ...plain(TEXTS[2], "responses"),
    { name: "Images", path: "/v1/chat/completions", body: { model, messages: [{ role: "user", content: parts }] } },
    // As Messages: every adaptation from Chat has a place for a file, also where the target does not read files.
    { name: PDF_ROW, path: "/v1/messages", body: { model, max_tokens: 128, messages: [{ role: "user", content: [document] }] } },
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

const PDF_ROW = "PDF through Messages";

/** The length of the input that the row about long input assumes, in tokens. */
const LONG_TOKENS = 100_000;

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

/** True if the catalog does not state whether the model can do what a case needs. It has no fact about PDF. */
function isUnknownTo(model: Model | undefined, name: string): boolean {
  const need = NEEDS[name];
  return name === PDF_ROW || (need !== undefined && model !== undefined && model[need] === null);
}

export function cellOf(of: ExplainedCase, target: Target, model?: Model): Cell {
  const unknown = isUnknownTo(model, of.name) ? { isUnknown: true } : {};
  const candidate = of.candidates.find((other) => sameTarget(other, target));
  const [protocol] = of.needs;
  if (candidate?.adapted && protocol)
    return { short: null, words: `serves, adapted to ${candidate.adapted}`, adapted: [protocol, candidate.adapted], ...unknown };
  if (candidate) return { short: null, words: "serves", ...unknown };
  const passed = of.passed_over.find((other) => sameTarget(other, target));
  if (passed) {
    const words = stepWords({ ...target, result: passed.reason });
    if (passed.param && of.name === PDF_ROW) return { short: "no PDF", words: `${words}: ${passed.param}` };
    return passed.param
      ? { short: `no ${passed.param}`, words: `${words}: ${passed.param}` }
      : { short: passedShort(passed.reason), words };
  }
  if (of.refusal) return { short: "refused", words: of.refusal.message };
  return { short: "never used", words: "these requests go to the first target alone, or the provider is not in use" };
}

/** What happens to a long text at a target. The gateway does not compare an input with context windows, so all are tried. */
function longCellOf(plain: Cell, window: number | null | undefined): Cell {
  if (plain.short !== null) return plain;
  if (window == null) return { ...plain, isUnknown: true };
  if (window > LONG_TOKENS) return plain;
  const words = `Its context window has ${short(window)} tokens. The target is still tried, and it refuses or shortens the input.`;
  return { short: `only ${short(window)}, still tried`, words };
}

export type Row = { name: string; cells: Cell[]; refusal: string | null };

/** The rows of the matrix. Protocols that fare alike share one row. */
export function rowsOf(cases: ExplainedCase[], targets: Target[], models: Map<string, Model> = new Map()): Row[] {
  const rows = cases.map((of) => ({
    name: of.name,
    cells: targets.map((target) => cellOf(of, target, models.get(idOf(target)))),
    refusal: of.candidates.length ? null : (of.refusal?.message ?? null),
  }));
  const chat = rows.find(({ name }) => name === TEXTS[0]);
  const long = chat && {
    ...chat,
    name: `Long input, ${short(LONG_TOKENS)} tokens`,
    cells: chat.cells.map((cell, i) => longCellOf(cell, models.get(idOf(targets[i] as Target))?.context_window)),
  };
  const texts = rows.slice(0, TEXTS.length);
  const [first] = texts;
  const isAlike = texts.length === TEXTS.length && texts.every(({ cells }) => JSON.stringify(cells) === JSON.stringify(first?.cells));
  return [...(first && isAlike ? [{ ...first, name: "Text, any protocol" }] : texts), ...(long ? [long] : []), ...rows.slice(TEXTS.length)];
}
