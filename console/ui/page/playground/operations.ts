// The operations of the playground: the request that a form makes, and the text of what comes back.

export type Turn = { role: "user" | "assistant"; text: string };

export type Draft = {
  model: string;
  system: string;
  /** The conversation so far, and the message that is sent now. */
  turns: Turn[];
  message: string;
  stream: boolean;
  /** Between 0 and 2; empty for the model's own. */
  temperature: string;
  /** The most output tokens; empty for the model's own. */
  tokensMax: string;
  voice: string;
  /** A JSON list of tools, as the protocol has them; empty for none. */
  tools: string;
  /** An image as a `data:` URL, or null. */
  image: string | null;
  /** The recording to transcribe. */
  file: File | null;
};

export type OperationId = "chat" | "responses" | "messages" | "embeddings" | "speech" | "transcription" | "image" | "video";

type Operation = { id: OperationId; title: string; path: string; isConversation: boolean };

export const OPERATIONS: Operation[] = [
  { id: "chat", title: "Chat", path: "v1/chat/completions", isConversation: true },
  { id: "responses", title: "Responses", path: "v1/responses", isConversation: true },
  { id: "messages", title: "Messages", path: "v1/messages", isConversation: true },
  { id: "embeddings", title: "Embeddings", path: "v1/embeddings", isConversation: false },
  { id: "speech", title: "Speech", path: "v1/audio/speech", isConversation: false },
  { id: "transcription", title: "Transcription", path: "v1/audio/transcriptions", isConversation: false },
  { id: "image", title: "Image", path: "v1/images/generations", isConversation: false },
  { id: "video", title: "Video", path: "v1/videos/generations", isConversation: false },
];

export const operationOf = (id: string): Operation => OPERATIONS.find((known) => known.id === id) ?? (OPERATIONS[0] as Operation);

const OUTPUT_TOKENS_MAX = 1024;

/** The tools of a draft. Throws if they are not a list. */
function toolsOf({ tools }: Draft): { tools?: unknown[] } {
  if (!tools.trim()) return {};
  const found: unknown = JSON.parse(tools);
  if (!Array.isArray(found)) throw new Error("Tools: write a JSON list, as the protocol has them.");
  return { tools: found };
}

/** The settings that are not left to the model; `tokens` is the name of the limit in the protocol. */
function settingsOf({ temperature, tokensMax }: Draft, tokens: string): Record<string, unknown> {
  return {
    ...(temperature.trim() ? { temperature: numberOf("Temperature", temperature) } : {}),
    ...(tokensMax.trim() ? { [tokens]: numberOf("Output tokens", tokensMax) } : {}),
  };
}

function numberOf(name: string, text: string): number {
  const number = Number(text);
  if (Number.isNaN(number)) throw new Error(`${name}: write a number.`);
  return number;
}

const history = ({ turns }: Draft) => turns.map(({ role, text }) => ({ role, content: text }));

/** The content of the present message, with its image where it has one. */
function contentOf(id: OperationId, { message, image }: Draft): unknown {
  if (!image) return message;
  const [head = "", data = ""] = image.split(",");
  const type = /^data:([^;]+)/.exec(head)?.[1] ?? "image/png";
  const text = id === "responses" ? { type: "input_text", text: message } : { type: "text", text: message };
  if (id === "responses") return [text, { type: "input_image", image_url: image }];
  if (id === "messages") return [text, { type: "image", source: { type: "base64", media_type: type, data } }];
  return [text, { type: "image_url", image_url: { url: image } }];
}

/** The body of a request. Throws if a field cannot be sent. */
export function bodyOf(id: OperationId, draft: Draft): Record<string, unknown> | FormData {
  const { model, system, message, stream, voice, file } = draft;
  const said = { role: "user", content: contentOf(id, draft) };
  switch (id) {
    case "chat":
      return {
        model,
        stream,
        ...(stream ? { stream_options: { include_usage: true } } : {}),
        ...settingsOf(draft, "max_tokens"),
        messages: [...(system ? [{ role: "system", content: system }] : []), ...history(draft), said],
        ...toolsOf(draft),
      };
    case "responses":
      return {
        model,
        stream,
        store: false,
        ...settingsOf(draft, "max_output_tokens"),
        ...(system ? { instructions: system } : {}),
        input: [...history(draft), said],
        ...toolsOf(draft),
      };
    case "messages":
      return {
        model,
        stream,
        max_tokens: OUTPUT_TOKENS_MAX,
        ...settingsOf(draft, "max_tokens"),
        ...(system ? { system } : {}),
        messages: [...history(draft), said],
        ...toolsOf(draft),
      };
    case "embeddings":
      return { model, input: message };
    case "speech":
      return { model, input: message, voice };
    case "image":
      return { model, prompt: message };
    case "video":
      return { model, prompt: message };
    case "transcription": {
      if (!file) throw new Error("Choose a recording to transcribe.");
      const form = new FormData();
      form.set("model", model);
      form.set("file", file);
      return form;
    }
  }
}

// biome-ignore lint/suspicious/noExplicitAny: an answer of any protocol
type Answer = any;

/** The text that one event of a stream adds. */
export function deltaOf(event: Answer): string {
  if (typeof event?.choices?.[0]?.delta?.content === "string") return event.choices[0].delta.content;
  if (event?.type === "response.output_text.delta" && typeof event.delta === "string") return event.delta;
  if (event?.type === "content_block_delta" && typeof event.delta?.text === "string") return event.delta.text;
  return "";
}

/** The text of a whole answer. */
export function textOf(answer: Answer): string {
  if (typeof answer?.choices?.[0]?.message?.content === "string") return answer.choices[0].message.content;
  if (typeof answer?.text === "string") return answer.text;
  const parts: Answer[] = Array.isArray(answer?.output)
    ? answer.output.flatMap((item: Answer) => item?.content ?? [])
    : Array.isArray(answer?.content)
      ? answer.content
      : [];
  return parts.map((part) => (typeof part?.text === "string" ? part.text : "")).join("");
}

/** The images of an answer, as addresses that the page's policy permits. */
export function imagesOf(answer: Answer): string[] {
  const found: Answer[] = Array.isArray(answer?.data) ? answer.data : [];
  return found.flatMap((image) => (typeof image?.b64_json === "string" ? [`data:image/png;base64,${image.b64_json}`] : []));
}

/** Collects the text of an event stream from its pieces, which may end anywhere. */
export class StreamText {
  text = "";
  private rest = "";

  push(piece: string): void {
    const lines = (this.rest + piece).split(/\r?\n/);
    this.rest = lines.pop() ?? "";
    for (const line of lines) {
      if (!line.startsWith("data:")) continue;
      const data = line.slice(5).trim();
      if (data === "[DONE]") continue;
      try {
        this.text += deltaOf(JSON.parse(data));
      } catch {
        // An event that is not JSON adds no text; the raw stream shows it.
      }
    }
  }
}
