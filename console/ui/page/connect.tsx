// Setting up a client: texts for each, filled with the gateway's address and an endpoint.
import { useEffect, useState } from "preact/hooks";
import { gatewayOrigin } from "../api/base";
import { at, call, may } from "../api/client";
import type { Explained } from "../api/explain";
import { activeKeys, selectorsOf, useFirst } from "../api/objects";
import { useResource } from "../api/resource";
import type { Endpoint, Key, Model, Page as PageOf, Target } from "../api/types";
import { href, param, setParams } from "../app/router";
import { Chooser } from "../part/chooser";
import type { Suggested } from "../part/combobox";
import { CopyButton } from "../part/copy";
import { Field } from "../part/form";
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
  const container = isLoopback(url.hostname)
    ? `${url.protocol}//host.docker.internal${url.port ? `:${url.port}` : ""}${url.pathname.replace(/\/$/, "")}`
    : origin;
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
  const { id, key, selectors } = useKey();
  const model = param("model") || selectors?.found[0]?.value || NO_MODEL;
  return (
    <Page
      title="Connect a client"
      lead={may("administer") ? "Give clients project keys, never the administrator key." : "Give each client a key of its own."}
    >
      <div class="form">
        <KeyField of={key} value={id} />
        <ClientGuide
          selectors={selectors}
          model={model}
          keyOf={key}
          secret={null}
          hrefOf={(client) => href("/connect", { client, key: param("key"), model: param("model") })}
        />
      </div>
    </Page>
  );
}

/** Stands for a model while none is known. */
export const NO_MODEL = "MODEL";

/** The key that the address names, else the first one, and the first selectors that it may use; null until they are read. */
export function useKey(): { id: string; key: Key | null; selectors: Suggested | null } {
  const wanted = param("key");
  const named = useResource<Key>(wanted ? at("keys", wanted) : null).data.value;
  const first = useResource<PageOf<Key>>(wanted ? null : "keys?state=active&limit=1").data.value;
  const key = wanted ? named : (first?.data[0] ?? null);
  const id = wanted || key?.id || "";
  const selectors = useFirst(selectorsOf(id), id || first ? id : null);
  return { id, key, selectors };
}

/** The key that the client shall send, by its ID; the address has it. */
export function KeyField({ of, value }: { of: Key | null; value: string }) {
  return (
    <Field label="Key" name="key" help="The check waits for a request with it.">
      <Chooser
        label="Key"
        value={value}
        text={of?.name}
        onValue={(key) => setParams({ key }, "replace")}
        of={activeKeys}
        placeholder="No key yet"
      />
    </Field>
  );
}

type GuideProps = {
  /** The first selectors that the client may ask for; null until they are read. */
  selectors: Suggested | null;
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
export function ClientGuide({ selectors, model, keyOf, secret, hrefOf, onAnswer }: GuideProps) {
  const chosen = SNIPPETS.find((snippet) => snippet.id === param("client")) ?? SNIPPETS[0];
  const { first, filling } = useFilling(chosen, model);
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
            <Chooser label="Model" value={model} onValue={(model) => setParams({ model }, "replace")} of={selectorsOf(keyOf?.id ?? "")} />
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
          {keyOf && <CheckCard key={keyOf.id} of={keyOf} endpoints={namesOf(selectors)} {...(onAnswer ? { onAnswer } : {})} />}
          {chosen.note && <p class="help">{withCode(filled(chosen.note, filling))}</p>}
          {may("administer") && chosen.speaks === "responses" && keyOf && first && (
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

/** The first target of an endpoint; undefined until it is read, and for what is no endpoint. */
function useFirstTarget(model: string): Target | undefined {
  const isEndpoint = model !== NO_MODEL && !model.includes("/");
  return useResource<Endpoint>(isEndpoint ? at("endpoints", model) : null).data.value?.failover[0];
}

const needsFacts = ({ code }: Snippet): boolean => code.includes("{{context_window}}");

/** What fills the text of a client, and the first target of the endpoint, if the text or its warnings need that. */
function useFilling(chosen: Snippet | undefined, model: string): { first: Target | undefined; filling: Filling } {
  const first = useFirstTarget(chosen && (needsFacts(chosen) || chosen.speaks === "responses") ? model : NO_MODEL);
  const target = useFacts(chosen && needsFacts(chosen) ? first : undefined);
  return { first, filling: { origin: gatewayOrigin(), model, context: target?.context_window ?? null, vision: target?.vision ?? null } };
}

/** What the catalog knows of a target. */
function useFacts(of: Target | undefined): Model | undefined {
  const path = of && `catalog?${new URLSearchParams({ provider: of.provider, q: of.model, limit: "20" })}`;
  return useResource<PageOf<Model>>(path ?? null).data.value?.data.find((known) => known.model === of?.model);
}

/** The names that the check tells. */
function namesOf(selectors: Suggested | null): string[] {
  const names = selectors?.found.map(({ value }) => value) ?? [];
  return selectors?.more ? [...names, "and others"] : names;
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
      The first target of {model} does not speak Responses: Codex will be refused, unless its provider serves agents.{" "}
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
