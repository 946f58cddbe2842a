// Connecting a provider: servers on this machine, the tiles of the registry, and the form of what was chosen.
import { useState } from "preact/hooks";
import { call } from "../api/client";
import { changed, useResource } from "../api/resource";
import type { Detected, Page, Provider, RegistryEntry, SyncOutcome } from "../api/types";
import { go, href, param, setParams } from "../app/router";
import { Dialog } from "../part/dialog";
import { ErrorBox } from "../part/feedback";
import { Field, Form, FormButtons, FormFooterError, Text, useSubmission } from "../part/form";
import { plural } from "../part/format";
import { Icon } from "../part/icon";
import type { Typed } from "../part/number";
import { OauthForm, OauthTile } from "./oauth";
import { givenTimes, TimeoutFields } from "./provider/timeouts";
import { ProxyField } from "./provider/way";

/** A kind of provider that can be connected: of the registry, or one of our own for what it does not know. */
export type Kind = { id: string; name: string; type: string; registry: boolean; base_url?: string; api_key_env?: string; docs?: string };

const OTHERS: Kind[] = [
  { id: "compatible", name: "Any OpenAI-compatible server", type: "compatible", registry: false },
  { id: "azure_openai", name: "Azure OpenAI", type: "azure_openai", registry: false },
  { id: "oauth_partner", name: "OAuth", type: "oauth_partner", registry: false },
  { id: "echo", name: "Echo", type: "echo", registry: false },
];

/** The providers that most people look for, in the order in which they are offered. */
const POPULAR = [
  "openai",
  "anthropic",
  "gemini",
  "azure_openai",
  "bedrock",
  "vertex",
  "openrouter",
  "deepseek",
  "mistral",
  "groq",
  "xai",
  "ollama",
  "vllm",
  "compatible",
];

/** Returns the popular kinds, then the others by name, OAuth last: its tile is as wide as a row. */
export function inOrder(kinds: Kind[]): Kind[] {
  const popular = POPULAR.flatMap((id) => kinds.find((kind) => kind.id === id) ?? []);
  const others = kinds.filter((kind) => !popular.includes(kind));
  const place = ({ type }: Kind): number => Number(type === "oauth_partner");
  return [...popular, ...others.sort((a, b) => place(a) - place(b) || a.name.localeCompare(b.name, "en", { sensitivity: "base" }))];
}

/** Two letters of a name: its first, and the next that is a capital or begins a word. */
export function initialsOf(name: string): string {
  const letters = name.replace(/[^\p{L}\s]/gu, "");
  const second = letters.slice(1).match(/(?<=\s)\p{L}|\p{Lu}/u)?.[0] ?? letters[1] ?? "";
  return `${letters[0] ?? ""}${second}`;
}

const close = (): void => setParams({ connect: null });

/** Every kind that can be connected, and the resource that most of them were read from. */
export function useKinds() {
  const registry = useResource<Page<RegistryEntry>>("registry");
  const entries = registry.data.value?.data ?? [];
  const kinds = inOrder([...entries.map((entry) => ({ ...entry, registry: true })), ...OTHERS]);
  return { registry, kinds };
}

export function Connect() {
  const { registry, kinds } = useKinds();
  const chosen = kinds.find(({ id }) => id === param("connect"));
  const open = (provider: Provider): void => {
    if (provider.auth !== "oauth") void syncCatalog(provider.id).catch(() => {});
    go(href(`/providers/${provider.id}`));
  };
  if (chosen)
    return (
      <Dialog title={`Connect ${chosen.name}`} onClose={close}>
        <ProviderForm kind={chosen} onConnected={open} onBack={() => setParams({ connect: "choose" })} />
      </Dialog>
    );
  return (
    <Dialog title="Connect one provider" onClose={close} wide>
      {registry.error.value && <ErrorBox error={registry.error.value} retry={() => registry.load()} />}
      <ChooseKind kinds={kinds} onKind={(connect) => setParams({ connect })} onConnected={open} />
    </Dialog>
  );
}

/** What is particular about a kind; the others are called with an API key. */
const NOTES: Record<string, string> = { local_server: "on a machine of yours", echo: "Answers with your own words" };

type ChooseProps = { kinds: Kind[]; onKind: (id: string) => void; onConnected: (provider: Provider) => void };

export function ChooseKind({ kinds, onKind, onConnected }: ChooseProps) {
  const [text, setText] = useState("");
  const wanted = text.trim().toLowerCase();
  const found = kinds.filter(({ id, name }) => `${id} ${name}`.toLowerCase().includes(wanted));
  return (
    <>
      <Text type="search" value={text} onValue={setText} placeholder="Search by name" aria-label="Search by name" autoFocus />
      {!wanted && <OnThisMachine onConnected={onConnected} />}
      <h3 class="group-title">By name</h3>
      <ul class="tiles">
        {found.map(({ id, name, type }) => (
          <li key={id} class={type === "oauth_partner" ? "whole-row" : undefined}>
            {type === "oauth_partner" ? (
              <OauthTile onChoose={() => onKind(id)} />
            ) : (
              <button type="button" class="tile named" onClick={() => onKind(id)}>
                <span class="initials" aria-hidden="true">
                  {initialsOf(name)}
                </span>
                <b>{name}</b>
                {NOTES[type] && <span class="help">{NOTES[type]}</span>}
              </button>
            )}
          </li>
        ))}
      </ul>
      {found.length === 0 && <p class="help">Nothing fits. Connect it as an OpenAI-compatible server.</p>}
      <p class="help">
        Providers of a service of your own are connected on the page of its{" "}
        <a href={href("/providers", { tab: "extensions" })}>extension</a>.
      </p>
    </>
  );
}

/** Model servers that answer on this machine. */
function OnThisMachine({ onConnected }: Pick<ChooseProps, "onConnected">) {
  const detected = useResource<Page<Detected>>("providers/detect");
  const servers = detected.data.value?.data;
  return (
    <>
      <div class="split">
        <h3 class="group-title">On this machine</h3>
        <button type="button" class="btn small" disabled={detected.busy.value} onClick={() => detected.load()}>
          <Icon name="refresh-cw" small />
          Look again
        </button>
      </div>
      {servers?.length === 0 && (
        <p class="help">
          No model server answered on the usual ports (Ollama, LM Studio, llama.cpp, vLLM, SGLang). Start one and look again.
        </p>
      )}
      {servers && servers.length > 0 && (
        <ul class="tiles">
          {servers.map((server) => (
            <li key={server.base_url}>
              <LocalTile of={server} onConnected={onConnected} />
            </li>
          ))}
        </ul>
      )}
    </>
  );
}

function LocalTile({ of, onConnected }: { of: Detected } & Pick<ChooseProps, "onConnected">) {
  const known = of.providers[0];
  const submission = useSubmission();
  const connect = (): void => {
    const body = { id: of.registry_id, registry_id: of.registry_id, base_url: of.base_url };
    void submission.run(body, async (repeatKey) => onConnected(await create(body, repeatKey)));
  };
  return (
    <div class="tile">
      <b>
        {of.name}, {plural(of.models.length, "model")}
      </b>
      <span class="help mono wrap">{of.base_url}</span>
      {known ? (
        <a href={href(`/providers/${known}`)}>Connected as {known}</a>
      ) : (
        <button type="button" class="btn small" onClick={connect} disabled={submission.busy}>
          Connect
        </button>
      )}
      {submission.error && <p class="help bad">{submission.error.message}</p>}
    </div>
  );
}

/** Reads the list of models of a provider. The fault of an upstream is part of the outcome. */
export async function syncCatalog(id: string, repeatKey?: string): Promise<SyncOutcome> {
  const { data } = await call<SyncOutcome>("POST", `providers/${encodeURIComponent(id)}/sync`, { body: {}, repeatKey });
  changed("providers", "catalog", "health");
  return data;
}

async function create(body: object, repeatKey: string): Promise<Provider> {
  const { data } = await call<Provider>("POST", "providers", { body, repeatKey });
  changed("providers", "catalog", "health");
  return data;
}

type Fields = {
  id: string;
  api_key: string;
  base_url: string;
  region: string;
  project: string;
  location: string;
  models: string;
  proxy: string;
  timeout: Typed;
  stream_idle_timeout: Typed;
  first_content_timeout: Typed;
};

/** The body that connects a provider of a kind; fields left empty are not sent. */
export function bodyOf(kind: Kind, fields: Fields): Record<string, unknown> {
  const { id, models, timeout, stream_idle_timeout, first_content_timeout, ...rest } = fields;
  const given = Object.entries(rest).filter(([, value]) => value.trim() !== "");
  const names = models
    .split(/[\s,]+/)
    .map((name) => name.trim())
    .filter(Boolean);
  return {
    id,
    ...(kind.registry ? { registry_id: kind.id } : { type: kind.type }),
    ...Object.fromEntries(given.map(([name, value]) => [name, value.trim()])),
    ...(names.length ? { models: names } : {}),
    ...givenTimes({ timeout, stream_idle_timeout, first_content_timeout }),
  };
}

type FormProps = { kind: Kind; onConnected: (provider: Provider) => void; onBack: () => void };

export function ProviderForm(props: FormProps) {
  return props.kind.type === "oauth_partner" ? <OauthForm {...props} /> : <KeyForm {...props} />;
}

function KeyForm({ kind, onConnected, onBack }: FormProps) {
  const [fields, setFields] = useState<Fields>({
    id: kind.id,
    api_key: "",
    base_url: "",
    region: "",
    project: "",
    location: "",
    models: kind.type === "echo" ? "echo" : "",
    proxy: "",
    timeout: "",
    stream_idle_timeout: "",
    first_content_timeout: "",
  });
  const submission = useSubmission();
  const set = (change: Partial<Fields>): void => setFields({ ...fields, ...change });
  const needsKey = !["local_server", "echo"].includes(kind.type);
  const hasAddress = !["bedrock", "vertex", "echo"].includes(kind.type);
  const submit = (): void => {
    const body = bodyOf(kind, fields);
    void submission.run(body, async (repeatKey) => onConnected(await create(body, repeatKey)));
  };
  return (
    <Form submission={submission} onSubmit={submit}>
      <Field label="Name" name="id" help="Models are called NAME/MODEL.">
        <Text value={fields.id} onValue={(id) => set({ id })} autoFocus />
      </Field>
      {needsKey && (
        <Field
          label="API key"
          name="api_key"
          help={
            <>
              Stored encrypted. It can be replaced, never shown. Or name a variable: <code>{`\${ENV:${kind.api_key_env ?? "NAME"}}`}</code>.
            </>
          }
        >
          <Text type="password" value={fields.api_key} onValue={(api_key) => set({ api_key })} />
        </Field>
      )}
      {hasAddress && (
        <Field label="Base URL" name="base_url" optional={kind.base_url !== undefined || kind.type === "gemini"}>
          <Text
            inputMode="url"
            value={fields.base_url}
            onValue={(base_url) => set({ base_url })}
            placeholder={kind.base_url ?? "https://…"}
          />
        </Field>
      )}
      {kind.type === "bedrock" && (
        <Field label="Region" name="region">
          <Text value={fields.region} onValue={(region) => set({ region })} placeholder="eu-west-1" />
        </Field>
      )}
      {kind.type === "vertex" && (
        <div class="form-row">
          <Field label="Project" name="project" optional>
            <Text value={fields.project} onValue={(project) => set({ project })} />
          </Field>
          <Field label="Location" name="location" optional>
            <Text value={fields.location} onValue={(location) => set({ location })} placeholder="global" />
          </Field>
        </div>
      )}
      <Field label="Models" name="models" optional help="Beside those that its own list has. Separated by commas.">
        <Text value={fields.models} onValue={(models) => set({ models })} />
      </Field>
      {kind.type !== "echo" && (
        <details>
          <summary>Proxy</summary>
          <div class="form dialog-part">
            <ProxyField value={fields.proxy} onValue={set} />
          </div>
        </details>
      )}
      <details>
        <summary>Timeouts</summary>
        <div class="form dialog-part">
          <TimeoutFields value={fields} onValue={set} />
        </div>
      </details>
      <FormFooterError />
      <FormButtons busy={submission.busy} submit="Connect" submitting="Connecting…" cancel="Back" onCancel={onBack} />
    </Form>
  );
}
