// The playground: sends a request of any operation as a key or a human, never as the administrator, and shows both sides of the
// gateway.
import { useEffect, useRef, useState } from "preact/hooks";
import { at, may } from "../api/client";
import { callers, endpoints, type Source, selectorsOf, useFirst } from "../api/objects";
import { changed, useResource } from "../api/resource";
import { sendRun } from "../api/run";
import type { Endpoint } from "../api/types";
import { href, param, setParams } from "../app/router";
import { Chooser } from "../part/chooser";
import type { Suggested } from "../part/combobox";
import { Field, Labelled, Select, Text } from "../part/form";
import { Card, Page } from "../part/page";
import { bodyOf, type Draft, imagesOf, OPERATIONS, type OperationId, operationOf, StreamText, textOf } from "./playground/operations";
import { type Outcome, Result } from "./playground/result";

const EMPTY: Draft = {
  temperature: "",
  tokensMax: "",
  model: "",
  system: "",
  turns: [],
  message: "",
  stream: true,
  voice: "alloy",
  tools: "",
  image: null,
  file: null,
};
const BEGUN: Outcome = {
  requestId: null,
  status: null,
  text: "",
  images: [],
  audio: null,
  raw: "",
  error: null,
  isOver: false,
  selector: "",
  sentAt: 0,
};

export function PlaygroundPage() {
  const { as, caller, hasNone } = useCaller();
  const operation = operationOf(param("path"));
  const { model, type, fitting, targetNames } = useModel(as);
  const only = targetNames.includes(param("only")) ? param("only") : "";
  const [draft, setDraft] = useState<Draft>(EMPTY);
  const first = useRun();
  const second = useRun();
  const compared =
    param("against") && targetNames.includes(param("against"))
      ? param("against")
      : (targetNames.find((name) => name !== (only || targetNames[0])) ?? "");
  const set = (change: Partial<Draft>): void => setDraft((old) => ({ ...old, ...change }));
  const isBusy = [first, second].some(({ outcome }) => outcome !== null && !outcome.isOver);
  const canCompare = compared !== "";
  /** Sends the request, or with `isBoth` the same one to two targets. */
  const submit = async (isBoth: boolean): Promise<void> => {
    if (isBusy || !as || (isBoth && !canCompare)) return;
    const request = { operation: operation.id, path: operation.path, as, draft: { ...draft, model } };
    if (isBoth) void second.send({ ...request, only: compared });
    else second.clear();
    const text = await first.send({ ...request, only: isBoth ? only || (targetNames[0] ?? "") : only });
    if (text && operation.isConversation) {
      const turns: Draft["turns"] = [...draft.turns, { role: "user", text: draft.message }, { role: "assistant", text }];
      set({ turns, message: "", image: null });
    }
  };
  return (
    <Page
      title="Playground"
      lead={
        may("administer")
          ? "Sends a request as a key or a human, with their permissions and limits. Both sides of the gateway are shown."
          : "Sends a request with a key of yours, with its permissions and limits."
      }
    >
      <div class="filters">
        <Labelled label="Send as">
          <Chooser
            label="Send as"
            value={as}
            text={caller}
            onValue={(as) => setParams({ as }, "replace")}
            of={callers}
            placeholder="no key yet"
          />
        </Labelled>
        <Labelled label="Model or endpoint">
          <Text aria-label="Model or endpoint" class="mono" value={model} onValue={type} list="selectors" />
          <datalist id="selectors">
            {fitting?.found.map(({ value }) => (
              <option key={value} value={value} />
            ))}
          </datalist>
        </Labelled>
        {may("administer") && (
          <Labelled label="Only target">
            <Select
              aria-label="Only target"
              value={only}
              onValue={(only) => setParams({ only }, "replace")}
              options={[["", "any"], ...targetNames.map((name): [string, string] => [name, name])]}
            />
          </Labelled>
        )}
        {targetNames.length > 1 && (
          <Labelled label="Compare with">
            <Select
              aria-label="Compare with"
              value={compared}
              onValue={(against) => setParams({ against }, "replace")}
              options={targetNames.filter((name) => name !== (only || targetNames[0])).map((name): [string, string] => [name, name])}
            />
          </Labelled>
        )}
      </div>
      <span class="seg wrapping" role="group" aria-label="Operation">
        {OPERATIONS.map(({ id, title }) => (
          <button key={id} type="button" aria-pressed={id === operation.id} onClick={() => setParams({ path: id }, "replace")}>
            {title}
          </button>
        ))}
      </span>
      <div class="cols halves">
        <Card title={operation.title}>
          <form
            class="form"
            aria-label="Request"
            onSubmit={(event) => {
              event.preventDefault();
              void submit(false);
            }}
            onKeyDown={(event) => {
              if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) void submit(event.shiftKey);
            }}
          >
            <Fields
              operation={operation.id}
              isConversation={operation.isConversation}
              draft={draft}
              shown={shownAnswer(first.outcome, second.outcome)}
              set={set}
            />
            {hasNone && (
              <p class="help wrap">
                A request is sent as a key or a human, and there is none yet.{" "}
                {may("mint_keys") && <a href={href("/keys", { new: "1" })}>Mint key</a>}
              </p>
            )}
            <p class="help wrap">Hosted requests may be billable. It counts for the {caller ?? "key"} and its limits.</p>
            <div class="dialog-foot">
              {draft.turns.length > 0 && (
                <button type="button" class="btn plain" onClick={() => set({ turns: [], message: "" })}>
                  New conversation
                </button>
              )}
              {isBusy && (
                <button
                  type="button"
                  class="btn"
                  onClick={() => {
                    first.stop();
                    second.stop();
                  }}
                >
                  Stop
                </button>
              )}
              {canCompare && (
                <button type="button" class="btn" disabled={isBusy || !as || !model} onClick={() => void submit(true)}>
                  Compare <span class="kbd">Ctrl Shift Enter</span>
                </button>
              )}
              <button
                type="submit"
                class="btn primary"
                disabled={isBusy || !as || !model}
                title={canCompare ? "With Shift: to two targets" : undefined}
                onClick={(event) => {
                  if (!event.shiftKey || !canCompare) return;
                  event.preventDefault();
                  void submit(true);
                }}
              >
                Send <span class="kbd">Ctrl Enter</span>
              </button>
            </div>
          </form>
        </Card>
        {first.outcome ? (
          <div class="page-stack">
            <Result of={first.outcome} title={second.outcome ? first.target : "Result"} />
            {second.outcome && <Result of={second.outcome} title={second.target} />}
          </div>
        ) : (
          <Card title="Result">
            <p class="muted">The answer, its route and the bytes of both sides appear here. Nothing of it is stored.</p>
          </Card>
        )}
      </div>
    </Page>
  );
}

/** The answer that the result shows alone; of two none is that of the conversation. */
const shownAnswer = (first: Outcome | null, second: Outcome | null): string => (second ? "" : (first?.text ?? ""));

/** The key or human that the address names, else the first that may be used, with its name; `hasNone` if there is none. */
function useCaller(): { as: string; caller: string | undefined; hasNone: boolean } {
  const wanted = param("as");
  const known = useFirst(callers, wanted ? null : "");
  const named = useResource<object>(wanted ? callers.path(wanted) : null).data.value;
  if (wanted) return { as: wanted, caller: named ? callers.text(named) : undefined, hasNone: false };
  const first = known?.found[0];
  return { as: first?.value ?? "", caller: first?.text, hasNone: known?.found.length === 0 };
}

/** The model or endpoint that is asked for, the selectors that its text fits, and the targets of an endpoint. */
function useModel(as: string) {
  const [isTyped, setTyped] = useState(false);
  const selectors = may("administer") ? endpoints() : selectorsOf(as);
  const ofCaller = may("administer") ? "" : as;
  const first = useFirst(selectors, ofCaller);
  const model = param("model") || first?.found[0]?.value || "";
  const fitting = useFitting(selectors, isTyped ? model : null, ofCaller);
  // Of many that fit, the one with exactly this name may not be among the first.
  const isFound = fitting.text === model && (fitting.more || fitting.found.some(({ value }) => value === model));
  const isEndpoint = isTyped ? isFound : !model.includes("/");
  const type = (model: string): void => {
    setTyped(true);
    setParams({ model, only: null }, "replace");
  };
  const targets = useResource<Endpoint>(model && isEndpoint ? at("endpoints", model) : null).data.value?.failover ?? [];
  return { model, type, fitting: isTyped ? fitting : first, targetNames: targets.map(({ provider, model }) => `${provider}/${model}`) };
}

/** Finds what fits a text once it has not changed for a moment; `key` names what `of` depends on. */
function useFitting(of: Source, text: string | null, key: string): Suggested & { text: string | null } {
  const [fitting, setFitting] = useState<Suggested & { text: string | null }>({ text: null, found: [], more: false });
  useEffect(() => {
    if (text === null) return;
    let isOver = false;
    const read = (): void =>
      void of.suggest(text).then(
        (found) => !isOver && setFitting({ ...found, text }),
        () => undefined,
      );
    const timer = setTimeout(read, PAUSE_MS);
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [text, key]);
  return fitting;
}

/** The pause after which what was typed is searched for. */
const PAUSE_MS = 150;

type FieldsProps = {
  operation: OperationId;
  isConversation: boolean;
  draft: Draft;
  /** The answer that the result shows: the conversation does not repeat it. */
  shown: string;
  set: (change: Partial<Draft>) => void;
};

const PROMPTS: Partial<Record<OperationId, string>> = { embeddings: "Input", speech: "Text to speak", image: "Prompt", video: "Prompt" };

function Fields({ operation, isConversation, draft, shown, set }: FieldsProps) {
  const last = draft.turns.at(-1);
  const turns = last?.role === "assistant" && last.text === shown ? draft.turns.slice(0, -1) : draft.turns;
  if (operation === "transcription") {
    return (
      <Field label="Recording" name="file">
        <input
          type="file"
          class="input file"
          accept="audio/*,video/*"
          onChange={(e) => set({ file: e.currentTarget.files?.[0] ?? null })}
        />
      </Field>
    );
  }
  return (
    <>
      {isConversation && turns.length > 0 && (
        <ol class="turns" aria-label="Conversation">
          {turns.map(({ role, text }, i) => (
            <li key={i} class={`turn ${role}`}>
              <span class="faint">{role === "user" ? "You" : "Model"}</span>
              <p class="wrap answer">{text}</p>
            </li>
          ))}
        </ol>
      )}
      <Field label={PROMPTS[operation] ?? "Message"} name="message">
        <textarea class="input" rows={4} value={draft.message} onInput={(e) => set({ message: e.currentTarget.value })} />
      </Field>
      {operation === "speech" && (
        <Field label="Voice" name="voice">
          <Text value={draft.voice} onValue={(voice) => set({ voice })} />
        </Field>
      )}
      {isConversation && (
        <div class="form-row">
          <Field label="Temperature" name="temperature" optional>
            <Text inputMode="decimal" value={draft.temperature} onValue={(temperature) => set({ temperature })} />
          </Field>
          <Field label="Output tokens at most" name="max_tokens" optional>
            <Text inputMode="numeric" value={draft.tokensMax} onValue={(tokensMax) => set({ tokensMax })} />
          </Field>
        </div>
      )}
      {isConversation && <More draft={draft} set={set} />}
    </>
  );
}

/** What a conversation may have besides its message. */
function More({ draft, set }: Pick<FieldsProps, "draft" | "set">) {
  const attach = (file: File | undefined): void => {
    if (!file) return set({ image: null });
    const reader = new FileReader();
    reader.onload = () => set({ image: String(reader.result) });
    reader.readAsDataURL(file);
  };
  return (
    <details>
      <summary>System text, tools, image, stream</summary>
      <div class="form more">
        <Field label="System" name="system" optional>
          <textarea class="input" rows={2} value={draft.system} onInput={(e) => set({ system: e.currentTarget.value })} />
        </Field>
        <Field label="Tools" name="tools" optional help="A JSON list, as the protocol has them.">
          <textarea class="input mono" rows={3} value={draft.tools} onInput={(e) => set({ tools: e.currentTarget.value })} />
        </Field>
        <Field label="Image" name="image" optional>
          <input type="file" class="input file" accept="image/*" onChange={(e) => attach(e.currentTarget.files?.[0])} />
        </Field>
        <label class="pick">
          <input type="checkbox" checked={draft.stream} onChange={(e) => set({ stream: e.currentTarget.checked })} />
          <span>Stream the answer</span>
        </label>
      </div>
    </details>
  );
}

type Sending = { operation: OperationId; path: string; as: string; only: string; draft: Draft };

/** Sends runs, one at a time, and follows what comes back. */
function useRun() {
  const [outcome, setOutcome] = useState<Outcome | null>(null);
  const [target, setTarget] = useState("");
  const running = useRef<AbortController | null>(null);
  useEffect(() => () => running.current?.abort(), []);
  const audio = outcome?.audio ?? null;
  useEffect(() => () => (audio ? URL.revokeObjectURL(audio) : undefined), [audio]);
  const stop = (): void => running.current?.abort();
  const clear = (): void => setOutcome(null);
  /** Returns the answer's text, or an empty one after a failure. */
  const send = async ({ operation, path, as, only, draft }: Sending): Promise<string> => {
    const controller = new AbortController();
    running.current = controller;
    let now: Outcome = { ...BEGUN, selector: draft.model, sentAt: Date.now() };
    setTarget(only);
    const take = (change: Partial<Outcome>): void => {
      now = { ...now, ...change };
      setOutcome(now);
    };
    take({});
    try {
      const response = await sendRun({ path, as, only, body: bodyOf(operation, draft), signal: controller.signal });
      take({ status: response.status, requestId: response.headers.get("x-request-id") });
      await read(response, take);
    } catch (error) {
      take({ error: controller.signal.aborted ? "Stopped." : (error as Error).message });
    }
    take({ isOver: true });
    changed("requests");
    return now.error ? "" : now.text;
  };
  return { outcome, target, send, stop, clear };
}

/** Reads an answer as it comes: a stream of events, a sound, or JSON. */
async function read(response: Response, take: (change: Partial<Outcome>) => void): Promise<void> {
  const type = response.headers.get("content-type") ?? "";
  if (response.ok && type.startsWith("text/event-stream") && response.body) {
    const stream = new StreamText();
    const decoder = new TextDecoder();
    const reader = response.body.getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      stream.push(decoder.decode(value, { stream: true }));
      take({ text: stream.text });
    }
    return;
  }
  if (response.ok && type.startsWith("audio/")) {
    take({ audio: URL.createObjectURL(await response.blob()) });
    return;
  }
  const raw = await response.text();
  try {
    const answer = JSON.parse(raw);
    if (response.ok) take({ raw: JSON.stringify(answer, null, 2), text: textOf(answer), images: imagesOf(answer) });
    else take({ raw, error: String(answer?.error?.message ?? raw) });
  } catch {
    take(response.ok ? { raw, text: raw } : { raw, error: raw || "The answer is empty." });
  }
}
