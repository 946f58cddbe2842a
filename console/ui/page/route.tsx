// The editor of an endpoint: its targets in order, who would serve what, the rehearsal of failures, and the test.
import { useEffect, useState } from "preact/hooks";
import { call, Fault } from "../api/client";
import { useOutlook } from "../api/dry_run";
import { useExplained } from "../api/explain";
import { changed, useResource } from "../api/resource";
import type { Effects } from "../api/shapes";
import type { Endpoint, Target, Trial, Usage } from "../api/types";
import { go, href, param, setParams } from "../app/router";
import { Conflict, contested } from "../part/conflict";
import { CopyButton } from "../part/copy";
import { Confirm, Dialog } from "../part/dialog";
import { EffectsList, WriteOutlook } from "../part/effects";
import { Empty, isSettled, Loaded, notify, Skeleton } from "../part/feedback";
import { FormError, useSubmission } from "../part/form";
import { count, plural } from "../part/format";
import { Icon } from "../part/icon";
import { Menu } from "../part/menu";
import { Card, Facts, Page } from "../part/page";
import { TrialResult } from "./provider";
import { usePeriod } from "./requests";
import { casesFor, FIRST_ONLY } from "./route/cases";
import { changesOf, contentOf, type Draft, draftOf, idOf, yamlOf } from "./route/draft";
import { KEYS_MAX, Matrix } from "./route/matrix";
import { FirstContentCard, NamesCard, OrderCard } from "./route/order";
import { assumed, faultsOf, faultsText, Rehearse } from "./route/rehearse";
import { TargetsCard, usedOf, useModels } from "./route/targets";
import { EndpointState } from "./routes";

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

const LABELS: Record<keyof Draft, string> = {
  failover: "Targets",
  order: "Order",
  sticky: "Sessions stay",
  also: "Further names",
  preamble: "Preamble",
  cursor_bodies: "Bodies of Cursor",
};

function shown(value: unknown): string {
  if (Array.isArray(value))
    return value.map((item: Target | string, i) => (typeof item === "string" ? item : `${i + 1}. ${idOf(item)}`)).join("  ") || "–";
  return value === null || value === "" ? "–" : String(value);
}

function Editor({ of, etag }: { of: Endpoint; etag: string | null }) {
  const [base, setBase] = useState({ draft: draftOf(of), etag });
  const [draft, setDraft] = useState(base.draft);
  const [theirs, setTheirs] = useState<{ draft: Draft; etag: string | null } | null>(null);
  const [doing, setDoing] = useState<"test" | "delete" | null>(null);
  const submission = useSubmission();
  const used = useResource<Usage>(usagePath(of.name, usePeriod("24h")));
  const usage = used.data.value;
  const models = useModels(draft.failover);
  const faults = faultsOf(param("fail"));
  const keys = param("keys").split(",").filter(Boolean).slice(0, KEYS_MAX);
  const explained = useExplained(
    draft.failover.length === 0 || !isSettled(used)
      ? null
      : {
          draft: { name: of.name, ...contentOf(draft) },
          cases: casesFor(
            of.name,
            usedOf(usage).filter((operation) => operation in FIRST_ONLY),
            keys,
          ),
          faults: assumed(faults, draft.failover),
        },
  );
  // Shown at once, so that nothing moves when the rest arrives.
  const isRead =
    isSettled(used) && models !== null && (draft.failover.length === 0 || explained.cases.length > 0 || explained.error !== null);
  const isFile = of.source === "file";
  const isChanged = contested(base.draft, base.draft, draft).length > 0;
  const suffix = of.shadowed ? "?source=api" : "";
  const path = `endpoints/${encodeURIComponent(of.name)}${suffix}`;
  const wanted = contentOf(draft);
  const { effects } = useOutlook(isChanged && !isFile ? { method: "PUT", path, body: wanted, ifMatch: base.etag } : null);
  useEffect(() => {
    if (isChanged) return;
    setBase({ draft: draftOf(of), etag });
    setDraft(draftOf(of));
  }, [of]);
  const save = (from: typeof base, wanted: Draft): void => {
    const body = contentOf(wanted);
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
          Clients put <code>{of.name}</code> into <code>model</code>.{" "}
          {of.order === "listed"
            ? "Targets are tried from the top until one begins to answer."
            : "Targets are tried in the order below until one begins to answer."}
        </>
      }
      actions={
        <>
          <button type="button" class="btn" onClick={() => setDoing("test")} disabled={of.shadowed}>
            <Icon name="play" small />
            Test now
          </button>
          <a class="btn" href={href("/connect", { model: of.name })}>
            <Icon name="code-xml" small />
            Connect a client
          </a>
          <Menu
            label={`Actions for ${of.name}`}
            items={[{ label: "Delete", icon: "trash-2", danger: true, disabled: isFile, run: () => setDoing("delete") }]}
          />
        </>
      }
    >
      {isFile && (
        <p class="alert">
          It is defined in the configuration file. A change here is shown as YAML to copy into the file, which the gateway reads again by
          itself.
        </p>
      )}
      {!isRead ? (
        <div class="card">
          <Skeleton rows={8} />
        </div>
      ) : (
        <div class="cols main-side">
          <div class="page-stack">
            <TargetsCard of={of} draft={draft} before={base.draft} models={models} usage={usage} onDraft={setDraft} />
            <Matrix
              of={explained}
              targets={draft.failover}
              models={models}
              keys={keys}
              onKeys={(next) => setParams({ keys: next.join(",") }, "replace")}
            />
          </div>
          <div class="page-stack">
            <Rehearse
              targets={draft.failover}
              faults={faults}
              onFaults={(next) => setParams({ fail: faultsText(next) }, "replace")}
              of={explained.cases[0]}
            />
            <OrderCard draft={draft} onDraft={setDraft} />
            <FirstContentCard draft={draft} onDraft={setDraft} />
            <NamesCard draft={draft} onDraft={setDraft} />
            <UsedBy of={of} usage={usage} />
            <Card title="Preamble">
              <textarea
                class="input"
                aria-label="Preamble"
                rows={3}
                placeholder="Put before each request's own system text. Empty: nothing is added."
                value={draft.preamble}
                onInput={(e) => setDraft({ ...draft, preamble: e.currentTarget.value })}
              />
            </Card>
          </div>
        </div>
      )}
      <FormError error={submission.error} />
      {isChanged && (
        <SaveBar
          changes={changesOf(base.draft, draft)}
          effects={effects}
          busy={submission.busy}
          yaml={isFile ? yamlOf(of.name, draft) : null}
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

type SaveProps = {
  changes: string[];
  effects: Effects | null;
  busy: boolean;
  /** The change as text, for an endpoint of the configuration file. */
  yaml: string | null;
  onDiscard: () => void;
  onSave: () => void;
};

function SaveBar({ changes, effects, busy, yaml, onDiscard, onSave }: SaveProps) {
  return (
    <section class="savebar" aria-label="Changes">
      <b class="nowrap">{plural(changes.length, "change")}</b>
      <span class="muted clip grow" title={`${changes.join(", ")}. Running streams are not touched.`}>
        {changes.join(", ")}
      </span>
      <EffectsList effects={effects} />
      <button type="button" class="btn plain" onClick={onDiscard}>
        Discard
      </button>
      {yaml === null ? (
        <button type="button" class="btn primary" data-save onClick={onSave} disabled={busy}>
          {busy ? "Saving…" : "Save and publish"}
        </button>
      ) : (
        <CopyButton text={yaml} label="Copy YAML with this change" primary />
      )}
    </section>
  );
}

/** The use of the endpoint in the last day, by what the targets are used for. */
const usagePath = (name: string, from: string): string =>
  `usage?${new URLSearchParams({ endpoint: name, group_by: "provider,model,operation", from, limit: "500" })}`;

/** How much the endpoint is used, and where that is shown. */
function UsedBy({ of, usage }: { of: Endpoint; usage: Usage | null }) {
  const endpoint = of.name;
  return (
    <Card title="Who uses it" bare>
      <Facts
        rows={[
          ["State", <EndpointState key="s" of={of} />],
          [
            "Requests",
            <a key="r" class="num" href={href("/requests", { endpoint, period: "24h" })}>
              {count(usage?.totals?.requests)} in 24 h
            </a>,
          ],
          [
            "After failover",
            <a key="f" href={href("/requests", { endpoint, period: "24h", failed_over: "true" })}>
              Show them
            </a>,
          ],
          [
            "Keys",
            <a key="k" href={href("/usage", { endpoint, by: "key", period: "7d" })}>
              Show those of this week
            </a>,
          ],
          ["Defined in", of.source === "file" ? "the configuration file" : `this console, version ${of.version}`],
        ]}
      />
    </Card>
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
