// Setting up a client: texts for each, filled with the gateway's address and an endpoint.
import { useResource } from "../api/resource";
import type { Endpoint, Key, Model, Page as PageOf } from "../api/types";
import { href, param, setParams } from "../app/router";
import { CopyButton } from "../part/copy";
import { Field, Select } from "../part/form";
import { Card, Page } from "../part/page";
import texts from "./snippets.json";

type Snippet = {
  id: string;
  title: string;
  speaks: string;
  language: string;
  code: string;
  steps?: string[];
  note?: string;
  proved: boolean;
};

const SNIPPETS: Snippet[] = texts.snippets;

export type Filling = { origin: string; model: string; context: number | null; vision: boolean | null };

const isLoopback = (host: string): boolean => host === "localhost" || host === "[::1]" || host.startsWith("127.");

/** Fills the placeholders of a text. The key is never filled in: it is not on this page. */
export function filled(text: string, { origin, model, context, vision }: Filling): string {
  const url = new URL(origin);
  const container = isLoopback(url.hostname) ? `${url.protocol}//host.docker.internal${url.port ? `:${url.port}` : ""}` : origin;
  const values: Record<string, string> = {
    base: origin,
    key: "YOUR-KEY",
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
  const key = useResource<Key>(id ? `keys/${encodeURIComponent(id)}` : null).data.value;
  const endpoints = useResource<PageOf<Endpoint>>("endpoints?limit=500").data.value?.data ?? [];
  const names = endpoints
    .filter(({ name, shadowed }) => !shadowed && (!key?.endpoints || key.endpoints.includes(name)))
    .map(({ name }) => name);
  const model = param("model") || names[0] || "MODEL";
  const first = endpoints.find(({ name }) => name === model)?.failover[0];
  const facts = useResource<PageOf<Model>>(
    first ? `catalog?provider=${encodeURIComponent(first.provider)}&q=${encodeURIComponent(first.model)}&limit=20` : null,
  );
  const target = facts.data.value?.data.find((known) => known.model === first?.model);
  const chosen = SNIPPETS.find((snippet) => snippet.id === param("client")) ?? SNIPPETS[0];
  const filling: Filling = { origin: location.origin, model, context: target?.context_window ?? null, vision: target?.vision ?? null };
  return (
    <Page title="Connect a client" lead="Give clients project keys, never the administrator key.">
      <div class="cols client-cols">
        <Card title="Client">
          <Clients title="Tried with this gateway" of={SNIPPETS.filter(({ proved }) => proved)} chosen={chosen} />
          <Clients title="Not tried by us" of={SNIPPETS.filter(({ proved }) => !proved)} chosen={chosen} />
        </Card>
        {chosen && (
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
                    <li key={step}>{filled(step, filling)}</li>
                  ))}
                </ol>
              )}
              <pre class="code" role="group" aria-label={`Text for ${chosen.title}`} tabIndex={0}>
                <code>{filled(chosen.code, filling)}</code>
              </pre>
              <div class="dialog-foot">
                <CopyButton text={filled(chosen.code, filling)} primary />
              </div>
              {chosen.note && <p class="help">{filled(chosen.note, filling)}</p>}
              <p class="help">
                Put a project key in place of <code>YOUR-KEY</code>. <a href={href("/keys", { new: "1" })}>Mint key</a>
              </p>
            </div>
          </Card>
        )}
      </div>
    </Page>
  );
}

function Clients({ title, of, chosen }: { title: string; of: Snippet[]; chosen: Snippet | undefined }) {
  return (
    <>
      <h3 class="group-title client-group">{title}</h3>
      <ul class="nav">
        {of.map((snippet) => (
          <li key={snippet.id}>
            <a
              href={href("/connect", { client: snippet.id, key: param("key"), model: param("model") })}
              aria-current={snippet === chosen ? "true" : undefined}
            >
              {snippet.title}
            </a>
          </li>
        ))}
      </ul>
    </>
  );
}
