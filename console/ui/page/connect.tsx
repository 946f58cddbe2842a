// Setting up a client: texts for each, filled with the gateway's address and an endpoint.
import { useEffect, useState } from "preact/hooks";
import { call, may } from "../api/client";
import type { Explained } from "../api/explain";
import { useResource } from "../api/resource";
import { useSelectorsOf } from "../api/selectors";
import type { Endpoint, Key, Model, Page as PageOf, Target } from "../api/types";
import { href, param, setParams } from "../app/router";
import { CopyButton } from "../part/copy";
import { Field, Select } from "../part/form";
import { Card, Page } from "../part/page";
import { sameTarget } from "./routes";
import { CheckCard } from "./setup/check_card";
import texts from "./snippets.json";

type Snippet = {
  id: string;
  title: string;
  speaks: string;
  language: string;
  /** The file that the text is written to; absent for a text that is run or entered. */
  file?: string;
  code: string;
  /** The commands that follow. */
  run?: string;
  steps?: string[];
  note?: string;
  /** True if CI runs the text. */
  tried: boolean;
};

const SNIPPETS: Snippet[] = texts.snippets;

export type Filling = {
  origin: string;
  model: string;
  context: number | null;
  vision: boolean | null;
  /** What stands in place of the key; absent on pages that have none. */
  key?: string;
};

export const isLoopback = (host: string): boolean => host === "localhost" || host === "[::1]" || host.startsWith("127.");

/** Fills the placeholders of a text. */
export function filled(text: string, { origin, model, context, vision, key = "YOUR-KEY" }: Filling): string {
  const url = new URL(origin);
  const container = isLoopback(url.hostname) ? `${url.protocol}//host.docker.internal${url.port ? `:${url.port}` : ""}` : origin;
  const values: Record<string, string> = {
    base: origin,
    key,
    model,
    context_window: String(context ?? 128_000),
    vision: String(vision ?? false),
    base_from_container: container,
    reachable_check: isLoopback(url.hostname) ? `It cannot reach ${url.host}.` : "",
  };
  return text.replace(/\{\{(\w+)\}\}/g, (whole, name: string) => values[name] ?? whole);
}

export function ConnectPage() {
  const id = param("key");
  const keys = useResource<PageOf<Key>>("keys?state=active&limit=500").data.value?.data ?? [];
  const named = useResource<Key>(id ? `keys/${encodeURIComponent(id)}` : null).data.value;
  const key = named ?? (id ? null : (keys[0] ?? null));
  const selectors = useSelectorsOf(key?.id);
  const endpoints = useResource<PageOf<Endpoint>>("endpoints?limit=500").data.value?.data ?? [];
  const open = endpoints.filter(({ name, shadowed }) => !shadowed && (!key?.endpoints || key.endpoints.includes(name)));
  const names = [...open.map(({ name }) => name), ...selectors];
  const model = param("model") || names[0] || "MODEL";
  return (
    <Page
      title="Connect a client"
      lead={may("administer") ? "Give clients project keys, never the administrator key." : "Give each client a key of its own."}
    >
      <div class="form">
        <KeyField of={named && !keys.some((one) => one.id === named.id) ? [named, ...keys] : keys} value={key?.id ?? ""} />
        <ClientGuide
          endpoints={endpoints}
          names={names}
          model={model}
          keyOf={key}
          secret={null}
          hrefOf={(client) => href("/connect", { client, key: id, model: param("model") })}
        />
      </div>
    </Page>
  );
}

/** The key that the client shall send, by its ID; the address has it. */
export function KeyField({ of, value }: { of: Key[]; value: string }) {
  return (
    <Field label="Key" name="key" help="The check waits for a request with it.">
      <Select
        value={value}
        onValue={(key) => setParams({ key }, "replace")}
        options={of.length ? of.map(({ id, name, prefix }): [string, string] => [id, `${name} (${prefix}…)`]) : [["", "No key yet"]]}
      />
    </Field>
  );
}

type GuideProps = {
  endpoints: Endpoint[];
  /** The endpoints that the client may ask for. */
  names: string[];
  model: string;
  /** The key that the client shall send. */
  keyOf: Key | null;
  /** That key in clear text, as long as it is in memory. It is copied, never shown. */
  secret: string | null;
  /** The address of this page with another client chosen. */
  hrefOf: (client: string) => string;
  /** Called when the check has seen an answer. */
  onAnswer?: (said: string) => void;
};

/** The clients, and the text of the one that the address names. */
export function ClientGuide({ endpoints, names, model, keyOf, secret, hrefOf, onAnswer }: GuideProps) {
  const chosen = SNIPPETS.find((snippet) => snippet.id === param("client")) ?? SNIPPETS[0];
  const first = endpoints.find(({ name }) => name === model)?.failover[0];
  const needsFacts = chosen?.code.includes("{{context_window}}") ?? false;
  const facts = useResource<PageOf<Model>>(
    first && needsFacts ? `catalog?provider=${encodeURIComponent(first.provider)}&q=${encodeURIComponent(first.model)}&limit=20` : null,
  );
  const target = facts.data.value?.data.find((known) => known.model === first?.model);
  const filling: Filling = { origin: location.origin, model, context: target?.context_window ?? null, vision: target?.vision ?? null };
  const shown = secret && keyOf ? { ...filling, key: `${keyOf.prefix}…` } : filling;
  const whole = secret ? { ...filling, key: secret } : filling;
  if (!chosen) return null;
  return (
    <div class="cols client-cols">
      <Card title="Client">
        <Clients title="Tried with this gateway" of={SNIPPETS.filter(({ tried }) => tried)} chosen={chosen} hrefOf={hrefOf} />
        <Clients title="Not tried by us" of={SNIPPETS.filter(({ tried }) => !tried)} chosen={chosen} hrefOf={hrefOf} />
      </Card>
      <Card title={chosen.title}>
        <div class="form">
          <Field label="Model" name="model" help="An endpoint of the gateway.">
            <Select
              value={model}
              onValue={(model) => setParams({ model }, "replace")}
              options={(names.length ? names : [model]).map((name): [string, string] => [name, name])}
            />
          </Field>
          {chosen.steps && (
            <ol class="steps-list">
              {chosen.steps.map((step) => (
                <li key={step}>{filled(step, shown)}</li>
              ))}
            </ol>
          )}
          {chosen.file && (
            <p>
              Write this to <code>{chosen.file}</code>:
            </p>
          )}
          <CopyableText label={`Text for ${chosen.title}`} shown={filled(chosen.code, shown)} copied={filled(chosen.code, whole)} primary />
          {chosen.run && (
            <>
              <p>Then run:</p>
              <CopyableText label={`Commands for ${chosen.title}`} shown={filled(chosen.run, shown)} copied={filled(chosen.run, whole)} />
            </>
          )}
          {keyOf && <CheckCard key={keyOf.id} of={keyOf} endpoints={names} {...(onAnswer ? { onAnswer } : {})} />}
          {chosen.note && <p class="help">{withCode(filled(chosen.note, filling))}</p>}
          {may("administer") && chosen.speaks === "responses" && keyOf && names.includes(model) && first && (
            <SpeaksResponses key={`${keyOf.id} ${model}`} keyId={keyOf.id} model={model} first={first} />
          )}
          {secret ? (
            <p class="help">The copied text holds the whole key.</p>
          ) : (
            <p class="help">
              {keyOf ? (
                <>
                  Put the key {keyOf.name} (<code>{keyOf.prefix}…</code>) in place of <code>YOUR-KEY</code>.
                </>
              ) : (
                <>
                  Put a project key in place of <code>YOUR-KEY</code>.
                </>
              )}{" "}
              {may("mint_keys") && <a href={href("/keys", { new: "1" })}>{keyOf ? "Mint another" : "Mint key"}</a>}
            </p>
          )}
        </div>
      </Card>
    </div>
  );
}

/** A text for a client, and the button that copies it. */
function CopyableText({ label, shown, copied, primary = false }: { label: string; shown: string; copied: string; primary?: boolean }) {
  return (
    <>
      <pre class="code" role="group" aria-label={label} tabIndex={0}>
        <code>{shown}</code>
      </pre>
      <div class="dialog-foot">
        <CopyButton text={copied} primary={primary} />
      </div>
    </>
  );
}

/** Shows what stands between backticks as code. */
const withCode = (text: string) => text.split("`").map((part, i) => (i % 2 ? <code key={part}>{part}</code> : part));

/** Warns if the first target of an endpoint would be passed over for a request in the Responses protocol. */
function SpeaksResponses({ keyId, model, first }: { keyId: string; model: string; first: Target }) {
  const [isRefused, setRefused] = useState(false);
  useEffect(() => {
    const body = { model, stream: true, store: false, include: ["reasoning.encrypted_content"], input: "Say hello." };
    void call<Explained>("POST", "explain", { body: { path: "/v1/responses", key_id: keyId, body } }).then(
      ({ data }) => setRefused(data.passed_over.some((other) => UNSPOKEN.includes(other.reason) && sameTarget(other, first))),
      () => setRefused(false),
    );
  }, []);
  if (!isRefused) return null;
  return (
    <p class="alert warn" role="status">
      The first target of {model} does not speak Responses: Codex will be refused.{" "}
      <a href={href(`/routes/${encodeURIComponent(model)}`)}>Change the order</a>
    </p>
  );
}

const UNSPOKEN = ["no_dialect", "unsupported"];

type ClientsProps = { title: string; of: Snippet[]; chosen: Snippet; hrefOf: GuideProps["hrefOf"] };

function Clients({ title, of, chosen, hrefOf }: ClientsProps) {
  return (
    <>
      <h3 class="group-title client-group">{title}</h3>
      <ul class="nav">
        {of.map((snippet) => (
          <li key={snippet.id}>
            <a href={hrefOf(snippet.id)} aria-current={snippet === chosen ? "true" : undefined}>
              {snippet.title}
            </a>
          </li>
        ))}
      </ul>
    </>
  );
}
