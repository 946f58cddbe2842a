// The editor of an endpoint: its targets in order with what is known of each, and the test of it.
import { useEffect, useState } from "preact/hooks";
import { call, Fault } from "../api/client";
import { useOutlook } from "../api/dry_run";
import { changed, useResource } from "../api/resource";
import type { Effects } from "../api/shapes";
import { suggestModels } from "../api/suggest";
import type { Endpoint, Model, Page as PageOf, Provider, ProviderHealth, Target, Trial } from "../api/types";
import { go, href, param } from "../app/router";
import { Combobox } from "../part/combobox";
import { Conflict, contested } from "../part/conflict";
import { Confirm, Dialog } from "../part/dialog";
import { EffectsList, WriteOutlook } from "../part/effects";
import { Empty, Loaded, notify } from "../part/feedback";
import { FormError, useSubmission } from "../part/form";
import { ago, duration, plural, short } from "../part/format";
import { Icon } from "../part/icon";
import { Ref } from "../part/links";
import { Menu } from "../part/menu";
import { Card, Facts, Page } from "../part/page";
import { Reorder } from "../part/reorder";
import { priceOf, TrialResult } from "./provider";
import { ProviderStateMark } from "./providers";
import { EndpointState, sameTarget, targetOf } from "./routes";

export function RoutePage({ name }: { name: string }) {
  const source = param("source");
  const endpoint = useResource<Endpoint>(`endpoints/${encodeURIComponent(name)}${source ? `?source=${encodeURIComponent(source)}` : ""}`);
  return (
    <Loaded
      resource={endpoint}
      missing={
        <Empty
          page
          icon="route"
          title="There is no such endpoint"
          action={
            <a class="btn" href={href("/routes")}>
              All endpoints
            </a>
          }
        >
          <span class="mono wrap">{name}</span> was deleted, or never existed.
        </Empty>
      }
    >
      {(data) => <Editor of={data} etag={endpoint.etag} />}
    </Loaded>
  );
}

type Draft = { failover: Target[]; preamble: string };

const draftOf = (of: Endpoint): Draft => ({ failover: of.failover, preamble: of.preamble ?? "" });
const idOf = ({ provider, model }: Target): string => `${provider}/${model}`;
const LABELS: Record<keyof Draft, string> = { failover: "Targets", preamble: "Preamble" };

function shown(value: unknown): string {
  if (Array.isArray(value)) return value.map((target: Target, i) => `${i + 1}. ${idOf(target)}`).join("  ");
  return value ? String(value) : "–";
}

/** What a draft changes, in words. */
export function changesOf(before: Draft, draft: Draft): string[] {
  const said: string[] = [];
  draft.failover.forEach((target, to) => {
    const from = before.failover.findIndex((other) => sameTarget(other, target));
    if (from < 0) said.push(`${idOf(target)} added`);
    else {
      const staying = before.failover.filter((other) => draft.failover.some((now) => sameTarget(now, other)));
      const old = staying.findIndex((other) => sameTarget(other, target));
      const now = draft.failover
        .filter((other) => before.failover.some((was) => sameTarget(was, other)))
        .findIndex((other) => sameTarget(other, target));
      if (now < old) said.push(`${idOf(target)} moved up to ${to + 1}`);
    }
  });
  for (const target of before.failover)
    if (!draft.failover.some((other) => sameTarget(other, target))) said.push(`${idOf(target)} removed`);
  if (before.preamble !== draft.preamble) said.push("preamble changed");
  return said;
}

function Editor({ of, etag }: { of: Endpoint; etag: string | null }) {
  const [base, setBase] = useState({ draft: draftOf(of), etag });
  const [draft, setDraft] = useState(base.draft);
  const [theirs, setTheirs] = useState<{ draft: Draft; etag: string | null } | null>(null);
  const [doing, setDoing] = useState<"test" | "delete" | null>(null);
  const submission = useSubmission();
  const isFile = of.source === "file";
  const isChanged = contested(base.draft, base.draft, draft).length > 0;
  const suffix = of.shadowed ? "?source=api" : "";
  const path = `endpoints/${encodeURIComponent(of.name)}${suffix}`;
  const wanted = { failover: draft.failover, preamble: draft.preamble || null };
  const { effects } = useOutlook(isChanged ? { method: "PUT", path, body: wanted, ifMatch: base.etag } : null);
  useEffect(() => {
    if (isChanged) return;
    setBase({ draft: draftOf(of), etag });
    setDraft(draftOf(of));
  }, [of]);
  const save = (from: typeof base, wanted: Draft): void => {
    const body = { failover: wanted.failover, preamble: wanted.preamble || null };
    void submission.run(body, async () => {
      try {
        const answer = await call<Endpoint>("PUT", path, { body, ifMatch: from.etag });
        setBase({ draft: draftOf(answer.data), etag: answer.etag });
        setDraft(draftOf(answer.data));
        changed("endpoints");
        notify(`${of.name} is published`);
      } catch (error) {
        if (!(error instanceof Fault && error.status === 412)) throw error;
        const now = await call<Endpoint>("GET", path);
        setTheirs({ draft: draftOf(now.data), etag: now.etag });
      }
    });
  };
  return (
    <Page
      title={of.name}
      lead={
        <>
          Clients put <code>{of.name}</code> into <code>model</code>. Targets are tried from the top until one begins to answer.
        </>
      }
      actions={
        <>
          <button type="button" class="btn" onClick={() => setDoing("test")} disabled={of.shadowed}>
            <Icon name="play" small />
            Test now
          </button>
          <Menu
            label={`Actions for ${of.name}`}
            items={[{ label: "Delete", icon: "trash-2", danger: true, disabled: isFile, run: () => setDoing("delete") }]}
          />
        </>
      }
    >
      {isFile && <p class="alert">It is defined in the configuration file. Change it there; the gateway reads the file again by itself.</p>}
      <div class="cols main-side">
        <div class="page-stack">
          <TargetsCard of={of} isFile={isFile} draft={draft} before={base.draft} onDraft={setDraft} />
        </div>
        <div class="page-stack">
          <Card bare>
            <Facts
              rows={[
                ["State", <EndpointState key="s" of={of} />],
                ["Defined in", isFile ? "the configuration file" : `this console, version ${of.version}`],
              ]}
            />
          </Card>
          <Card title="Preamble">
            <textarea
              class="input"
              aria-label="Preamble"
              rows={4}
              readOnly={isFile}
              placeholder="Put before each request's own system text. Empty: nothing is added."
              value={draft.preamble}
              onInput={(e) => setDraft({ ...draft, preamble: e.currentTarget.value })}
            />
          </Card>
        </div>
      </div>
      <FormError error={submission.error} />
      {isChanged && (
        <SaveBar
          changes={changesOf(base.draft, draft)}
          effects={effects}
          busy={submission.busy}
          onDiscard={() => {
            submission.clear();
            setDraft(base.draft);
          }}
          onSave={() => save(base, draft)}
        />
      )}
      {theirs && (
        <Conflict
          title={`${of.name} was changed meanwhile`}
          labels={LABELS}
          before={base.draft}
          theirs={theirs.draft}
          mine={draft}
          show={shown}
          onClose={() => setTheirs(null)}
          onSave={(wanted) => {
            setTheirs(null);
            setDraft(wanted);
            save(theirs, wanted);
          }}
        />
      )}
      {doing === "test" && <TestNow of={of} onClose={() => setDoing(null)} />}
      {doing === "delete" && (
        <Confirm
          title={`Delete ${of.name}?`}
          action="Delete"
          typed={of.name}
          run={async () => {
            await call("DELETE", path, { ifMatch: base.etag });
            go(href("/routes"));
            changed("endpoints");
          }}
          onClose={() => setDoing(null)}
        >
          <p>Clients that ask for it get an error from the next request on. Keys that name it keep the entry.</p>
          <WriteOutlook write={{ method: "DELETE", path, ifMatch: base.etag }} />
        </Confirm>
      )}
    </Page>
  );
}

type SaveProps = { changes: string[]; effects: Effects | null; busy: boolean; onDiscard: () => void; onSave: () => void };

function SaveBar({ changes, effects, busy, onDiscard, onSave }: SaveProps) {
  return (
    <section class="savebar" aria-label="Changes">
      <b>{plural(changes.length, "change")}</b>
      <span class="muted wrap grow">{changes.join(", ")}</span>
      <span class="help">Running streams are not touched.</span>
      <EffectsList effects={effects} />
      <button type="button" class="btn plain" onClick={onDiscard}>
        Discard
      </button>
      <button type="button" class="btn primary" data-save onClick={onSave} disabled={busy}>
        {busy ? "Saving…" : "Save and publish"}
      </button>
    </section>
  );
}

type TargetsProps = { of: Endpoint; isFile: boolean; draft: Draft; before: Draft; onDraft: (draft: Draft) => void };

function TargetsCard({ of, isFile, draft, before, onDraft }: TargetsProps) {
  const models = useResource<PageOf<Model>>("catalog?limit=500").data.value?.data;
  const providers = useResource<PageOf<Provider>>("providers?limit=500").data.value?.data;
  const health = useResource<PageOf<ProviderHealth>>("health/providers").data.value?.data;
  const member = (target: Target) => (
    <Member
      target={target}
      model={models?.find(({ id }) => id === idOf(target))}
      provider={providers?.find(({ id, shadowed }) => id === target.provider && !shadowed)}
      health={health?.find(({ provider }) => provider === target.provider)}
      reason={of.passed_over.find((other) => sameTarget(other, target))?.reason}
      isNew={!before.failover.some((other) => sameTarget(other, target))}
    />
  );
  return (
    <Card title="Targets, in order" bare>
      {isFile ? (
        <ol class="members">
          {draft.failover.map((target, i) => (
            <li key={idOf(target)} class="member fixed">
              <span />
              <span class="place">{i + 1}</span>
              {member(target)}
            </li>
          ))}
        </ol>
      ) : (
        <>
          <Reorder items={draft.failover} keyOf={idOf} nameOf={idOf} onItems={(failover) => onDraft({ ...draft, failover })}>
            {member}
          </Reorder>
          <div class="add">
            <Combobox
              label="Add a target"
              placeholder="Add a target: type a model or a provider"
              suggest={async (text) =>
                (await suggestModels(text)).filter(({ value }) => !draft.failover.some((target) => idOf(target) === value))
              }
              onPick={(picked) => onDraft({ ...draft, failover: [...draft.failover, targetOf(picked)] })}
            />
          </div>
        </>
      )}
    </Card>
  );
}

type MemberProps = {
  target: Target;
  model: Model | undefined;
  provider: Provider | undefined;
  health: ProviderHealth | undefined;
  reason: string | undefined;
  isNew: boolean;
};

const CAPABILITIES = [
  ["vision", "images"],
  ["tools", "tools"],
  ["reasoning", "reasoning"],
  ["audio", "audio"],
] as const;

function Member({ target, model, provider, health, reason, isNew }: MemberProps) {
  const inference = provider?.evidence?.inference;
  const isProven = inference?.proven_at_ms != null && inference.model === target.model;
  const isPriced = model?.prices != null;
  return (
    <>
      <div>
        <div class="member-name">
          <Ref kind="provider" id={target.provider} name={target.provider} />
          <span class="sep">/</span>
          <span class="mono clip">{target.model}</span>
        </div>
        <div class="chips">
          {isNew && <span class="tag accent">added</span>}
          {isProven ? <span class="tag ok">proven {ago(inference.proven_at_ms)}</span> : <span class="tag">unproven</span>}
          {model?.context_window && <span class="tag">{short(model.context_window)} context</span>}
          {model &&
            CAPABILITIES.map(
              ([field, word]) =>
                model[field] !== null && <span class={model[field] ? "tag" : "tag warn"}>{model[field] ? word : `no ${word}`}</span>,
            )}
          {model &&
            (isPriced ? (
              <span class="tag">{`${priceOf(model, "input")} in · ${priceOf(model, "output")} out`}</span>
            ) : (
              <span class="tag warn">price unknown</span>
            ))}
        </div>
        {reason && (
          <p class="warning">
            <Icon name="triangle-alert" small />
            Passed over: {reason}
          </p>
        )}
      </div>
      <div class="member-health">
        {provider ? <ProviderStateMark of={provider} health={health} /> : <span class="faint">unknown provider</span>}
        {health && <span class="num">{duration(health.recent.first_content_us_avg)} to the first token</span>}
      </div>
    </>
  );
}

function TestNow({ of, onClose }: { of: Endpoint; onClose: () => void }) {
  const [trial, setTrial] = useState<Trial | null>(null);
  const submission = useSubmission();
  const test = (): void =>
    void submission.run(Date.now(), async (repeatKey) => {
      setTrial(null);
      const { data } = await call<Trial>("POST", `endpoints/${encodeURIComponent(of.name)}/test`, { body: {}, repeatKey });
      setTrial(data);
    });
  return (
    <Dialog title={`Test ${of.name}`} onClose={onClose}>
      <p class="prose">Sends one request through this endpoint. Hosted test requests may be billable.</p>
      {trial && <TrialResult trial={trial} />}
      <FormError error={submission.error} />
      <div class="dialog-foot">
        <button type="button" class="btn" onClick={onClose}>
          Close
        </button>
        <button type="button" class="btn primary" onClick={test} disabled={submission.busy}>
          {submission.busy ? "Waiting for the answer…" : "Test now"}
        </button>
      </div>
    </Dialog>
  );
}
