// Steps 2 to 4: connecting a provider, reading its list of models, and proving that it answers.
import { useEffect, useRef, useState } from "preact/hooks";
import { call } from "../../api/client";
import { modelsOf, readyProvidersWhich, useAll } from "../../api/objects";
import { changed } from "../../api/resource";
import type { Model, Provider, SyncOutcome, Trial } from "../../api/types";
import { go, href } from "../../app/router";
import { Chooser } from "../../part/chooser";
import { provenAt, reachedAt } from "../../part/evidence";
import { ErrorBox } from "../../part/feedback";
import { Field, Form, FormButtons, FormError, FormFooterError, Text, useSubmission } from "../../part/form";
import { clock, dollars, plural } from "../../part/format";
import { Mark } from "../../part/icon";
import { ChooseKind, ProviderForm, syncCatalog, useKinds } from "../connect_provider";
import { TrialResult } from "../provider";

type ProvidersProps = { onDone: (said: string, provider: string) => void };

export function ProvidersStep({ onDone }: ProvidersProps) {
  const { registry, kinds } = useKinds();
  const [chosen, choose] = useState<string | null>(null);
  const box = useRef<HTMLDivElement>(null);
  const wasChosen = useRef(false);
  // The control that had the focus is gone when the tiles give way to the form, and the reverse.
  useEffect(() => {
    if (chosen || wasChosen.current) box.current?.querySelector<HTMLElement>("input")?.focus();
    wasChosen.current = chosen !== null;
  }, [chosen]);
  const kind = kinds.find(({ id }) => id === chosen);
  // A human signs in to an OAuth provider on its own page.
  const connected = ({ id, auth }: Provider): void => (auth === "oauth" ? go(href(`/providers/${id}`)) : onDone(`${id} is connected.`, id));
  return (
    <div ref={box} class="form">
      {registry.error.value && <ErrorBox error={registry.error.value} retry={() => registry.load()} />}
      {kind ? (
        <>
          <h3>{kind.name}</h3>
          <ProviderForm key={kind.id} kind={kind} onConnected={connected} onBack={() => choose(null)} />
        </>
      ) : (
        <>
          <ChooseKind kinds={kinds} onKind={choose} onConnected={connected} />
          <p class="help">
            To try without any: Echo answers with your own words. It completes no step.{" "}
            <button type="button" class="link" onClick={() => choose("echo")}>
              Choose Echo
            </button>
          </p>
        </>
      )}
    </div>
  );
}

/** True for a provider that runs inside the gateway: it completes no step. */
export const isInside = ({ type }: Provider): boolean => type === "echo" || type === "builtin_speech";

/** The provider that a step is about: the wanted one, else the first that can complete it. */
export function providerOfStep(ready: Provider[], wanted: string): Provider | undefined {
  const usable = ready.filter((one) => !isInside(one));
  return usable.find(({ id }) => id === wanted) ?? usable[0];
}

const completing = readyProvidersWhich((one) => !isInside(one));

function useProvider(wanted: string) {
  const { list, rows, isWhole } = useAll<Provider>("providers", { state: "ready" });
  return { all: list, isRead: isWhole, provider: isWhole ? providerOfStep(rows, wanted) : undefined };
}

type StepProps = {
  /** The id of the provider that was connected; empty if none was. */
  wanted: string;
  onProvider: (id: string) => void;
  onNext: () => void;
  /** Called when something may have become true. */
  onChange: (said: string) => void;
};

function WhichProvider({ provider, onProvider }: { provider: Provider; onProvider: (id: string) => void }) {
  return (
    <Field label="Provider" name="provider">
      <Chooser label="Provider" value={provider.id} onValue={onProvider} of={completing} />
    </Field>
  );
}

function NoProvider({ all, isRead }: Pick<ReturnType<typeof useProvider>, "all" | "isRead">) {
  if (all.error.value) return <ErrorBox error={all.error.value} retry={() => all.load()} />;
  if (!isRead) return <p aria-busy="true">Reading…</p>;
  return (
    <p class="muted">
      No provider outside the gateway is ready. <a href={href("/setup", { step: "providers" })}>Connect one</a>
    </p>
  );
}

export function SyncStep(props: StepProps) {
  const { provider, ...rest } = useProvider(props.wanted);
  if (!provider) return <NoProvider {...rest} />;
  return <Sync key={provider.id} {...props} provider={provider} />;
}

function Sync({ provider, onProvider, onNext, onChange }: StepProps & { provider: Provider }) {
  const [outcome, setOutcome] = useState<SyncOutcome | null>(null);
  const submission = useSubmission();
  const catalog = provider.evidence?.catalog;
  const sync = (): void =>
    void submission.run(Date.now(), async (repeatKey) => {
      const read = await syncCatalog(provider.id, repeatKey);
      setOutcome(read);
      if (read.ok) onChange(`Read ${plural(read.models, "model")} of ${provider.id}.`);
    });
  const isRead = outcome ? outcome.ok : catalog?.synced_at_ms != null;
  // A provider that was just connected has been asked nothing yet.
  useEffect(() => {
    if (!isRead && !catalog?.last_error) sync();
  }, []);
  const failure = outcome ? outcome.error : catalog?.last_error;
  const [models, at] = outcome ? [outcome.models, outcome.at_ms] : [catalog?.models ?? 0, catalog?.synced_at_ms ?? 0];
  return (
    <Form submission={submission} onSubmit={sync} label="Sync catalog">
      <WhichProvider provider={provider} onProvider={onProvider} />
      <p role="status">{submission.busy ? "Reading the list…" : isRead ? `Read ${plural(models, "model")} at ${clock(at)}.` : ""}</p>
      {!submission.busy && failure && (
        <>
          <ErrorBox
            error={new Error(`${failure.status ? `${failure.status}: ` : ""}${failure.message}${failure.hint ? `. ${failure.hint}` : ""}`)}
          />
          <p>
            Change its key or address on the page of <a href={href(`/providers/${provider.id}`)}>{provider.id}</a>, then sync again. A
            provider without a list can go on: name a model in the test.
          </p>
        </>
      )}
      <p>
        <b>Catalog access alone does not prove inference entitlement.</b>
      </p>
      <FormError error={submission.error} />
      <div class="dialog-foot">
        {(isRead || failure) && (
          <button type="button" class={isRead ? "btn primary" : "btn"} onClick={onNext} disabled={submission.busy}>
            Go on
          </button>
        )}
        <button type="submit" class={isRead ? "btn" : "btn primary"} disabled={submission.busy}>
          {submission.busy ? "Reading…" : "Sync catalog"}
        </button>
      </div>
    </Form>
  );
}

/** Tokens that the question of a test has, about. */
const QUESTION_TOKENS = 20;
const ANSWER_TOKENS_MAX = 128;

/** The most that a test costs at known prices in millionths of a dollar; null if a price is unknown. */
export function costOf(model: Pick<Model, "prices"> | undefined): number | null {
  const { input, output } = model?.prices ?? {};
  if (typeof input !== "number" || typeof output !== "number") return null;
  return input * QUESTION_TOKENS + output * ANSWER_TOKENS_MAX;
}

/** Returns the model that a test shall ask: of those that chat the one with the lowest known price, else the first; empty if there is none. */
export function modelToTest(known: Model[]): string {
  const chats = known.filter(({ operations }) => operations.includes("chat_completions"));
  const cost = (model: Model): number => costOf(model) ?? Number.POSITIVE_INFINITY;
  const [first, ...others] = chats.length ? chats : known;
  return others.reduce((best, model) => (best && cost(model) < cost(best) ? model : best), first)?.model ?? "";
}

export function TestStep(props: StepProps) {
  const { provider, ...rest } = useProvider(props.wanted);
  if (!provider) return <NoProvider {...rest} />;
  return <Test {...props} provider={provider} />;
}

function Test({ provider, onProvider, onNext, onChange }: StepProps & { provider: Provider }) {
  const { list, rows: known, isWhole } = useAll<Model>("catalog", { provider: provider.id });
  const isRead = isWhole || list.error.value !== null;
  const [typed, setTyped] = useState("");
  const [trial, setTrial] = useState<Trial | null>(null);
  const submission = useSubmission();
  const model = typed || modelToTest(known);
  const isHosted = provider.auth === "api_key" || provider.auth === "oauth";
  const cost = costOf(known.find((one) => one.model === model));
  const test = (): void =>
    void submission.run(Date.now(), async (repeatKey) => {
      setTrial(null);
      const { data } = await call<Trial>("POST", `providers/${encodeURIComponent(provider.id)}/test`, { body: { model }, repeatKey });
      setTrial(data);
      changed("providers", "catalog", "health");
      if (data.ok) onChange(`${data.served_model ?? model} answered.`);
    });
  return (
    <Form submission={submission} onSubmit={test} label="Test completion">
      <div class="form-row">
        <WhichProvider
          provider={provider}
          onProvider={(id) => {
            setTyped("");
            setTrial(null);
            onProvider(id);
          }}
        />
        {isRead && (
          <Field label="Model" name="model">
            {known.length ? (
              <Chooser label="Model" value={model} onValue={setTyped} of={modelsOf(provider.id)} />
            ) : (
              <Text value={typed} onValue={setTyped} class="mono" />
            )}
          </Field>
        )}
      </div>
      {isHosted ? (
        <p>
          <b>Hosted test requests may be billable</b>
          {cost === null ? "; the price of this one is unknown." : `, this one about ${dollars(cost)}.`}
        </p>
      ) : (
        provider.auth === "local" && <p class="muted">Loading a model can take a minute.</p>
      )}
      {trial && <TrialResult trial={trial} />}
      <EvidenceRow of={provider} />
      <FormFooterError />
      {trial?.ok ? (
        <div class="dialog-foot">
          <button type="button" class="btn primary" onClick={onNext}>
            Go on
          </button>
        </div>
      ) : (
        <FormButtons
          busy={submission.busy}
          submit="Test completion"
          submitting="Waiting for the answer…"
          lacks={!model && `Name a model: none of ${provider.id} is known yet.`}
        />
      )}
    </Form>
  );
}

/** What is proven of a provider, each with its time; hollow marks stand for what is not. */
function EvidenceRow({ of: { evidence } }: { of: Provider }) {
  const { catalog, inference } = evidence ?? {};
  const rows: [string, number | null | undefined][] = [
    ["Reachable", evidence && reachedAt(evidence)],
    [catalog?.synced_at_ms ? `Catalog read, ${plural(catalog.models, "model")}` : "Catalog read", catalog?.synced_at_ms],
    [inference?.model ? `Inference proven by ${inference.model}` : "Inference proven", inference && provenAt(inference)],
  ];
  return (
    <ul class="evidence-row" aria-label="Evidence">
      {rows.map(([name, at]) => (
        <li key={name} class="state wrap">
          <Mark kind={at == null ? "off" : "ok"} />
          {name} <span class="faint num">{at == null ? "not yet" : clock(at)}</span>
        </li>
      ))}
    </ul>
  );
}
