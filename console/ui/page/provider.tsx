// One provider: the evidence that it works, its models, its credential, and who may use it.
import { useState } from "preact/hooks";
import { call } from "../api/client";
import { changed, useResource } from "../api/resource";
import { suggestModels } from "../api/suggest";
import type { Evidence, Failure, Page as PageOf, Provider, ProviderHealth, ProviderKey, SyncOutcome, Trial } from "../api/types";
import { go, href, param } from "../app/router";
import { Combobox } from "../part/combobox";
import { Confirm, Dialog } from "../part/dialog";
import { WriteOutlook } from "../part/effects";
import { isByTraffic, provenAt, reachedAt } from "../part/evidence";
import { Empty, ErrorBox, Loaded, notify } from "../part/feedback";
import { Field, Form, FormButtons, FormError, FormFooterError, Text, useSubmission } from "../part/form";
import { ago, count, day, dollars, duration, moment, plural, secondsText, UNKNOWN, zoneName } from "../part/format";
import { Icon, Mark } from "../part/icon";
import { type Item, Menu } from "../part/menu";
import { Card, Facts, Page } from "../part/page";
import { syncCatalog } from "./connect_provider";
import { SignInCard } from "./oauth";
import { EditBody } from "./provider/body";
import { EditErrors } from "./provider/errors";
import { AddKey, KeysCard, RemoveKey, ReplaceKey } from "./provider/keys";
import { Models } from "./provider/models";
import { EditTimeouts } from "./provider/timeouts";
import { EditTls, EditWay, tlsWords } from "./provider/way";
import { ProviderCharts } from "./provider_charts";
import { ProviderStateMark } from "./providers";

export function ProviderPage({ id }: { id: string }) {
  const source = param("source");
  const provider = useResource<Provider>(`providers/${encodeURIComponent(id)}${source ? `?source=${encodeURIComponent(source)}` : ""}`);
  return (
    <Loaded
      resource={provider}
      missing={
        <Empty
          page
          icon="plug"
          title="There is no such provider"
          action={
            <a class="btn" href={href("/providers")}>
              All providers
            </a>
          }
        >
          <span class="mono wrap">{id}</span> was deleted, or never existed.
        </Empty>
      }
    >
      {(data) => <One of={data} etag={provider.etag} />}
    </Loaded>
  );
}

/** The types of provider that take cache marks of the gateway. */
const CACHING = ["anthropic", "bedrock"];

/** The dialogs that edit settings. */
const EDITS: Partial<Record<string, typeof EditTimeouts>> = {
  timeouts: EditTimeouts,
  way: EditWay,
  tls: EditTls,
  body: EditBody,
  errors: EditErrors,
};

type Doing = "credential" | "key" | "timeouts" | "way" | "tls" | "errors" | "body" | "disable" | "delete" | "test" | null;

const refresh = (): void => changed("providers", "health", "catalog", "endpoints");

function One({ of, etag }: { of: Provider; etag: string | null }) {
  const [doing, setDoing] = useState<Doing>(null);
  const [removed, setRemoved] = useState<ProviderKey | null>(null);
  const [model, setModel] = useState("");
  const health = useResource<PageOf<ProviderHealth>>("health/providers").data.value?.data.find(({ provider }) => provider === of.id);
  const isFile = of.source === "file";
  const Edit = EDITS[doing ?? ""];
  const agents = of.responses_fallback === "agents";
  const close = (): void => setDoing(null);
  const suffix = of.shadowed ? "?source=api" : "";
  const path = `providers/${encodeURIComponent(of.id)}${suffix}`;
  const patch = async (body: object): Promise<void> => {
    await call("PATCH", path, { body, ifMatch: etag });
    refresh();
  };
  const items: Item[] = [
    of.disabled
      ? {
          label: "Enable",
          icon: "play",
          run: () => void patch({ disabled: false }).catch((error: Error) => notify(error.message)),
          disabled: isFile,
        }
      : { label: "Disable", icon: "power", run: () => setDoing("disable"), disabled: isFile },
    {
      label: agents ? "Stop serving Codex" : "Serve Codex",
      icon: "terminal",
      run: () => void patch({ responses_fallback: agents ? "strict" : "agents" }).catch((error: Error) => notify(error.message)),
      disabled: isFile,
    },
    {
      label: "Add key",
      icon: "key-round",
      run: () => setDoing("key"),
      disabled: isFile || of.auth !== "api_key" || !of.credential.set,
    },
    { label: "Proxy and address", icon: "route", run: () => setDoing("way"), disabled: isFile || !of.base_url },
    { label: "TLS", icon: "badge-check", run: () => setDoing("tls"), disabled: isFile || !of.base_url?.startsWith("https:") },
    ...(CACHING.includes(of.type)
      ? [
          {
            label: of.prompt_cache ? "Add no cache marks" : "Add cache marks",
            icon: "boxes" as const,
            run: () => void patch({ prompt_cache: of.prompt_cache ? null : "auto" }).catch((error: Error) => notify(error.message)),
            disabled: isFile,
          },
        ]
      : []),
    { label: "Members of requests", icon: "code-xml", run: () => setDoing("body"), disabled: isFile },
    { label: "Rules for errors", icon: "list", run: () => setDoing("errors"), disabled: isFile },
    { label: "Delete", icon: "trash-2", run: () => setDoing("delete"), danger: true, disabled: isFile },
  ];
  const prove = (model: string): void => {
    setModel(model);
    setDoing("test");
  };
  return (
    <Page
      title={of.id}
      lead={
        <>
          {of.registry_id ?? of.type}
          {of.base_url && (
            <>
              {" at "}
              <span class="mono wrap">{of.base_url}</span>
            </>
          )}
        </>
      }
      actions={
        <>
          <button type="button" class="btn" onClick={() => setDoing("timeouts")} disabled={isFile}>
            <Icon name="clock" small />
            Timeouts
          </button>
          <button
            type="button"
            class="btn"
            onClick={() => setDoing("credential")}
            disabled={isFile || of.auth !== "api_key" || !!of.api_keys}
          >
            <Icon name="key-round" small />
            Replace credential
          </button>
          <Menu label={`Actions for ${of.id}`} items={items} />
        </>
      }
    >
      {of.reason && (
        <div class="alert warn" role="status">
          {of.reason}
        </div>
      )}
      {isFile && <p class="alert">It is defined in the configuration file. Change it there; the gateway reads the file again by itself.</p>}
      <div class="cols main-side">
        <div class="page-stack">
          <SignInCard of={of} />
          <KeysCard of={of} isFixed={isFile} onAdd={() => setDoing("key")} onRemove={setRemoved} />
          <EvidenceCard of={of} served={health?.recent.requests ?? 0} onTest={() => prove("")} />
          <ProviderCharts id={of.id} />
          <Models of={of} path={path} etag={etag} isFixed={isFile} onProve={prove} onSaved={refresh} />
        </div>
        <FactsCard of={of} health={health} />
      </div>
      {Edit && <Edit of={of} path={path} etag={etag} onSaved={refresh} onClose={close} />}
      {doing === "test" && <Test of={of} given={model} onClose={close} />}
      {doing === "credential" && <ReplaceKey of={of} patch={patch} onClose={close} />}
      {doing === "key" && <AddKey of={of} patch={patch} onClose={close} />}
      {removed && <RemoveKey of={of} removed={removed} patch={patch} onClose={() => setRemoved(null)} />}
      {doing === "disable" && (
        <Confirm title={`Disable ${of.id}?`} action="Disable" danger={false} run={() => patch({ disabled: true })} onClose={close}>
          <p>Nothing is sent there from the next request on. It stays a target and is skipped.</p>
          <WriteOutlook write={{ method: "PATCH", path, body: { disabled: true }, ifMatch: etag }} />
        </Confirm>
      )}
      {doing === "delete" && (
        <Confirm
          title={`Delete ${of.id}?`}
          action="Delete"
          typed={health?.recent.requests ? of.id : undefined}
          run={async () => {
            await call("DELETE", path, { ifMatch: etag });
            go(href("/providers"));
            refresh();
          }}
          onClose={close}
        >
          <p>Its credential is erased. Its usage records stay.</p>
          <WriteOutlook write={{ method: "DELETE", path, ifMatch: etag }} />
        </Confirm>
      )}
    </Page>
  );
}

type EvidenceProps = {
  of: Provider;
  /** The requests that it has served lately: they prove what a test would. */
  served: number;
  onTest: () => void;
};

function EvidenceCard({ of, served, onTest }: EvidenceProps) {
  const [read, setRead] = useState<SyncOutcome | null>(null);
  const submission = useSubmission();
  const evidence = of.evidence;
  const isReady = of.state === "ready";
  const sync = (): void =>
    void submission.run(Date.now(), async (repeatKey) => {
      setRead(await syncCatalog(of.id, repeatKey));
      refresh();
    });
  const { reachable, catalog, inference } = evidence ?? {};
  const reached = evidence ? reachedAt(evidence) : null;
  return (
    <Card title="Evidence">
      <ul class="evidence">
        <EvidenceLine
          name="Reachable"
          at={reached}
          note={reached !== null && reached !== reachable?.at_ms ? "by traffic" : reachable?.by}
          error={reachable?.last_error}
        />
        <EvidenceLine
          name="Catalog read"
          at={catalog?.synced_at_ms}
          note={catalog?.synced_at_ms ? plural(catalog.models, "model") : null}
          error={catalog?.last_error}
          action={
            <button type="button" class="btn small" onClick={sync} disabled={!isReady || submission.busy}>
              {submission.busy ? "Reading…" : "Sync catalog"}
            </button>
          }
        />
        <EvidenceLine
          name="Inference proven"
          at={inference && provenAt(inference)}
          note={provenBy(inference, served)}
          isProven={served > 0}
          error={inference?.last_error}
          action={
            <button type="button" class="btn small" onClick={onTest} disabled={!isReady}>
              Test completion
            </button>
          }
        />
      </ul>
      <p class="help">Catalog access alone does not prove inference entitlement.</p>
      {read?.ok && (
        <p role="status">
          Read {plural(read.models, "model")} at {moment(read.at_ms)}: {count(read.added)} new, {count(read.removed)} gone.
        </p>
      )}
      <FormError error={submission.error} />
    </Card>
  );
}

/** What proves that the provider completes requests. */
function provenBy(inference: Evidence["inference"] | undefined, served: number): string | null {
  const lately = served > 0 ? `, ${plural(served, "request")} served lately` : "";
  if (inference && isByTraffic(inference)) return `answered ${ago(inference.last_answered_at_ms)}${lately}`;
  if (inference?.model) return `by ${inference.model}`;
  return lately ? `by traffic${lately}` : null;
}

type LineProps = {
  name: string;
  at: number | null | undefined;
  note?: string | null | undefined;
  error?: Failure | null | undefined;
  /** True if it is proven by something that has no time of its own. */
  isProven?: boolean;
  action?: preact.JSX.Element;
};

function EvidenceLine({ name, at, note, error, isProven = false, action }: LineProps) {
  // A failure that is older than the proof says nothing about now.
  const failed = error && (at == null || error.at_ms >= at) ? error : null;
  return (
    <li class="evidence-line">
      <Mark kind={failed ? "bad" : at == null && !isProven ? "off" : "ok"} />
      <div>
        <b>{name}</b> <span class="muted">{note}</span>
        {failed && (
          <p class="help bad wrap">
            {failed.status ? `${failed.status}: ` : ""}
            {failed.message} {failed.hint}
          </p>
        )}
      </div>
      <span class="faint num">{at == null ? (isProven ? "" : "not yet") : `${moment(at)} ${zoneName()}`}</span>
      {action ?? <span />}
    </li>
  );
}

/** What stands for the credential of a provider that has none of its own. */
const CREDENTIALS: Record<string, string> = { local: "none needed", oauth: "the sign-in of its owner" };

/** The models that rest because of a rate limit, and for how long; null if none does. */
const restsOf = (health: ProviderHealth | undefined): string | null =>
  health?.rests.map(({ model, wait_ms }) => `${model} for ${duration(wait_ms * 1000)}`).join(", ") || null;

/** The limits that the upstream has reported, with what is left of each. */
function limitRows(health: ProviderHealth | undefined): [string, string][] {
  return (health?.limits ?? []).map(({ name, limit, remaining, resets_at_ms }): [string, string] => {
    const left = remaining === null ? "" : `${count(remaining)}${limit === null ? "" : ` of ${count(limit)}`} left`;
    const resets = resets_at_ms !== null && resets_at_ms > Date.now() ? `full ${ago(resets_at_ms)}` : "";
    return [`Upstream: ${name.replace(/-/g, " ")}`, [left, resets].filter(Boolean).join(", ") || UNKNOWN];
  });
}

/** How the models of a provider serve Codex. */
const codexOf = ({ protocols, responses_fallback }: Provider): string => {
  if (protocols.includes("responses")) return "natively";
  return responses_fallback === "agents" ? "by adaptation" : "refused";
};

function FactsCard({ of, health }: { of: Provider; health: ProviderHealth | undefined }) {
  const { credential } = of;
  const four = credential.last_four ? `set, ends in ${credential.last_four}` : "set";
  const set = of.api_keys ? plural(of.api_keys.length, "key") : four;
  return (
    <Card bare>
      <Facts
        rows={[
          ["State", <ProviderStateMark key="s" of={of} health={health} />],
          ["Resting", restsOf(health)],
          ["Served", health && `${plural(health.recent.requests, "request")} since ${moment(health.recent.since_ms)}`],
          ["First token", health?.recent.first_content_us_avg != null && `${duration(health.recent.first_content_us_avg)} on average`],
          [
            "Last failure",
            health?.last_failure && `${health.last_failure.status ?? health.last_failure.result}, ${ago(health.last_failure.at_ms)}`,
          ],
        ]}
      />
      <Facts rows={limitRows(health)} />
      <Facts
        rows={[
          ["Credential", CREDENTIALS[of.auth ?? ""] ?? credential.reference ?? (credential.set ? set : "none")],
          ["Replaced", credential.updated_at_ms ? day(credential.updated_at_ms) : null],
          ["Protocols", of.protocols.join(", ")],
          ["Codex", codexOf(of)],
          ["Answer begins", `within ${secondsText(of.timeout)}`],
          ["Pause in a stream", `up to ${secondsText(of.stream_idle_timeout)}`],
          ["First content", of.first_content_timeout !== null && `within ${secondsText(of.first_content_timeout)}`],
          ["Rules for errors", of.errors.length > 0 && String(of.errors.length)],
          ["Cache marks", of.prompt_cache && (of.prompt_cache === "1h" ? "added, for an hour" : "added")],
          ["Members of requests", of.body && "changed by settings"],
          ["Proxy", of.proxy && <span class="mono wrap">{of.proxy}</span>],
          ["Connects to", of.connect_to && <span class="mono wrap">{of.connect_to}</span>],
          ["TLS", tlsWords(of)],
        ]}
      />
      <Facts
        rows={[
          ["Owner", of.owner ? "private" : "shared by all projects"],
          ["Region", of.region ?? of.location],
          ["Project", of.project],
          ["Defined in", of.source === "file" ? "the configuration file" : `this console, version ${of.version}`],
        ]}
      />
    </Card>
  );
}

function Test({ of, given, onClose }: { of: Provider; given: string; onClose: () => void }) {
  const [model, setModel] = useState(given);
  const [trial, setTrial] = useState<Trial | null>(null);
  const submission = useSubmission();
  const isHosted = of.auth !== "local";
  const test = (): void =>
    void submission.run(Date.now(), async (repeatKey) => {
      setTrial(null);
      const { data } = await call<Trial>("POST", `providers/${encodeURIComponent(of.id)}/test`, { body: { model }, repeatKey });
      setTrial(data);
      refresh();
    });
  return (
    <Dialog title="Test completion" onClose={onClose}>
      <Form submission={submission} onSubmit={test}>
        <Field label="Model" name="model">
          {given ? (
            <Text value={model} onValue={setModel} class="mono" />
          ) : (
            <Text value={model} onValue={setModel} class="mono" autoFocus />
          )}
        </Field>
        {!given && (
          <Combobox
            label="Find a model"
            placeholder="Find a model of the catalog"
            suggest={async (text) => {
              const { found, more } = await suggestModels(`${of.id}/${text}`);
              return { found: found.filter(({ value }) => value.startsWith(`${of.id}/`)), more };
            }}
            onPick={(picked) => setModel(picked.slice(of.id.length + 1))}
          />
        )}
        <p class="help">
          Sends one real request of at most 128 output tokens.{" "}
          {isHosted ? "Hosted test requests may be billable." : "Loading a model can take a minute."}
        </p>
        {trial && <TrialResult trial={trial} />}
        <FormFooterError />
        <FormButtons
          busy={submission.busy}
          submit="Test completion"
          submitting="Waiting for the answer…"
          cancel="Close"
          onCancel={onClose}
          saves={false}
        />
      </Form>
    </Dialog>
  );
}

/** What a test has shown. */
export function TrialResult({ trial }: { trial: Trial }) {
  if (!trial.ok) return <ErrorBox error={new Error(`${trial.status}: ${trial.error ?? "failed"}${trial.hint ? ` ${trial.hint}` : ""}`)} />;
  const tokens = trial.record?.tokens;
  const cost = trial.record?.cost_micro_usd;
  return (
    <div class="alert" role="status">
      <p class="wrap">
        {trial.served_model ?? "It"} answered “{trial.answer.slice(0, 200)}”.
      </p>
      <p class="help">
        First token {trial.first_content_ms === null ? UNKNOWN : duration(trial.first_content_ms * 1000)}
        {tokens && `, ${count(tokens.input)} tokens in, ${count(tokens.output)} out`}
        {cost != null && `, ${dollars(cost)}`}.
      </p>
    </div>
  );
}
