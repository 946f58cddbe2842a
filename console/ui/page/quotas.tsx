// Limits, what is used of them, and when they are reached at this rate.
import { useState } from "preact/hooks";
import { at, call, may } from "../api/client";
import { useOutlook } from "../api/dry_run";
import { useList } from "../api/list";
import { subjects } from "../api/objects";
import { changed } from "../api/resource";
import { suggestEndpoints, suggestModels } from "../api/suggest";
import type { Metric, Period, Quota, QuotaSubject as Subject } from "../api/types";
import { param, setParams } from "../app/router";
import { Chooser } from "../part/chooser";
import { Combobox, merged, type Suggested } from "../part/combobox";
import { Confirm, Dialog } from "../part/dialog";
import { AddressedDialog, EditDialog } from "../part/edit";
import { EffectsList, WriteOutlook } from "../part/effects";
import { Field, Form, FormButtons, FormFooterError, Select, useSubmission } from "../part/form";
import { moment } from "../part/format";
import { Icon } from "../part/icon";
import { amount, kindOf, limitName, METRICS, shareOf, WINDOWS } from "../part/limits";
import { Ref } from "../part/links";
import { HeadNewButton, ListCard } from "../part/list";
import { Menu } from "../part/menu";
import { NumberField } from "../part/number";
import { asked as askedFor, orderOf } from "../part/order";
import { Meter, Page } from "../part/page";
import { Search } from "../part/search";

const KINDS: [Subject["kind"], string][] = [
  ["key", "Key"],
  ["project", "Project"],
  ["principal", "Human"],
  ["provider", "Provider"],
  ["gateway", "Gateway"],
];

const WINDOW_MS: Partial<Record<Period, number>> = { hour: 3_600_000, day: 86_400_000, week: 604_800_000 };

/** The start of the present window of a limit; null if it has none, or of no known length. */
export function windowStart({ window, resets_at_ms: resets }: Pick<Quota, "window" | "resets_at_ms">): number | null {
  if (!resets || !window) return null;
  const end = new Date(resets);
  const length = window === "month" ? resets - Date.UTC(end.getUTCFullYear(), end.getUTCMonth() - 1, 1) : WINDOW_MS[window];
  return length ? resets - length : null;
}

/** The moment at which a limit is reached if use goes on as in its window so far; null if it is not, or not known. */
export function reachedAt(quota: Pick<Quota, "used" | "limit" | "window" | "resets_at_ms">, now: number): number | null {
  const { used, limit, window, resets_at_ms: resets } = quota;
  const start = windowStart({ window, resets_at_ms: resets });
  if (!resets || used <= 0 || start === null || now <= start) return null;
  const at = start + ((now - start) * limit) / used;
  return at < resets ? Math.max(at, now) : null;
}

/** The columns by which the gateway sorts limits. */
const SORTED = ["share", "used", "limit", "name", "resets"];
const BY_SHARE = { sort: "share", order: "desc" } as const;

export function QuotasPage() {
  const kind = param("kind");
  const q = param("q");
  const order = orderOf(SORTED, BY_SHARE);
  const list = useList<Quota>("quotas", { kind, q, ...askedFor(order) });
  const isFiltered = kind !== "" || q !== "";
  return (
    <Page
      title="Quotas"
      lead="A limit rejects requests that would exceed it, or only warns."
      actions={may("administer") && <HeadNewButton>New quota</HeadNewButton>}
    >
      <ListCard
        filters={
          <>
            <Search label="Search quotas" placeholder="Name, model or endpoint" />
            <Select
              aria-label="Kind"
              value={kind}
              onValue={(kind) => setParams({ kind })}
              options={[["", "Any scope"], ...KINDS.map(([id, name]): [string, string] => [id, name])]}
            />
          </>
        }
        list={list}
        label="Quotas"
        rowKey={(quota) => quota.id}
        order={order}
        usual={BY_SHARE}
        isFiltered={isFiltered}
        icon="gauge"
        titles={["No quota fits the filter", "There is no quota yet"]}
        help={isFiltered ? null : "Without one, keys are bounded by their allowlists alone."}
        action={
          (isFiltered || may("administer")) && (
            <button type="button" class="btn" onClick={() => setParams(isFiltered ? { kind: null, q: null } : { new: "1" })}>
              {isFiltered ? "Clear the filter" : "New quota"}
            </button>
          )
        }
        columns={[
          { head: "Applies to", width: "3fr", least: 150, sort: "name", cell: ({ subject }) => <SubjectOf of={subject} /> },
          { head: "Metric", width: "3fr", least: 150, fold: 5, cell: (quota) => limitName(quota) },
          { head: "Share", width: 92, number: true, sort: "share", cell: (quota) => `${Math.floor(shareOf(quota) * 100)} %` },
          { head: "Used", width: 196, number: true, sort: "used", fold: 6, cell: (quota) => <Used of={quota} /> },
          { head: "Reserved", width: 92, number: true, fold: 2, cell: (quota) => amount(quota.metric, quota.reserved) },
          { head: "Limit", width: 140, number: true, sort: "limit", fold: 4, cell: (quota) => amount(quota.metric, quota.limit) },
          { head: "Resets", width: 116, sort: "resets", fold: 3, cell: ({ resets_at_ms }) => moment(resets_at_ms) },
          { head: "Reached about", width: 124, fold: 1, cell: (quota) => moment(quota.exceeded ? null : reachedAt(quota, Date.now())) },
          { head: "Action", width: 72, fold: 0, cell: actionOf },
          ...(may("administer") ? [{ head: "Actions", width: 56, quiet: true, cell: (quota: Quota) => <QuotaMenu of={quota} /> }] : []),
        ]}
      />
      {may("administer") && param("new") && <NewQuota />}
      {may("administer") && param("edit") && <EditQuota key={param("edit")} id={param("edit")} />}
    </Page>
  );
}

/** What happens to a request that does not fit, and how many wait. */
export function actionOf({ enforcement, wait_ms, waiting }: Pick<Quota, "enforcement" | "wait_ms" | "waiting">): string {
  if (enforcement === "warn") return "warn";
  if (wait_ms === 0) return "reject";
  return waiting > 0 ? `${waiting} wait` : "wait";
}

/** True for the limits that may let requests wait. */
export const mayWait = (metric: Metric, window: Period | null): boolean => metric === "concurrent_requests" || window === "minute";

function SubjectOf({ of }: { of: Quota["subject"] }) {
  if (of.kind === "gateway" || of.id === undefined) return <>the gateway</>;
  const kind = of.kind === "principal" ? "human" : of.kind;
  return (
    <span class="with-act">
      <span class="muted">{kind}</span> <Ref kind={kind} id={of.id} name={of.name ?? of.id} />
    </span>
  );
}

function Used({ of }: { of: Quota }) {
  const share = shareOf(of);
  return (
    <span class="meter-cell">
      <Meter share={share} kind={kindOf(share)} />
      <span class="num">{amount(of.metric, of.used)}</span>
    </span>
  );
}

function QuotaMenu({ of }: { of: Quota }) {
  const [isDeleted, setDeleted] = useState(false);
  return (
    <div class="actions">
      <Menu
        label={`Actions for ${limitName(of)}`}
        items={[
          { label: "Change", icon: "pencil", run: () => setParams({ edit: of.id }) },
          { label: "Delete", icon: "trash-2", danger: true, run: () => setDeleted(true) },
        ]}
      />
      {isDeleted && (
        <Confirm
          title={`Delete ${limitName(of)}?`}
          action="Delete"
          run={async () => {
            await call("DELETE", `quotas/${of.id}`, { ifMatch: of.version });
            changed("quotas");
          }}
          onClose={() => setDeleted(false)}
        >
          <p>Nothing is rejected by it from the next request on. What was used stays in the records.</p>
          <WriteOutlook write={{ method: "DELETE", path: `quotas/${of.id}`, ifMatch: of.version }} />
        </Confirm>
      )}
    </div>
  );
}

/** The form of the quota that the address names. */
function EditQuota({ id }: { id: string }) {
  const path = at("quotas", id);
  const close = (): void => setParams({ edit: null });
  return (
    <AddressedDialog<Quota> path={path} title="Quota" onClose={close}>
      {(quota) => (
        <EditDialog
          title={`Change ${limitName(quota)}`}
          path={path}
          of={quota}
          etag={`"${quota.version}"`}
          fieldsOf={({ limit, enforcement, wait_ms }) => ({ limit, enforcement, wait_ms })}
          labels={{ limit: "Limit", enforcement: "When it is reached", wait_ms: "Wait up to" }}
          onSaved={() => changed("quotas")}
          onClose={close}
        >
          {(mine, set) => (
            <>
              <p class="prose">
                Applies to <SubjectOf of={quota.subject} />
              </p>
              <AmountField metric={quota.metric} value={mine.limit} onValue={(limit) => set({ limit })} />
              <Enforcement
                value={mine.enforcement}
                onValue={(enforcement) => set(enforcement === "warn" ? { enforcement, wait_ms: 0 } : { enforcement })}
              />
              {mine.enforcement === "hard" && mayWait(quota.metric, quota.window) && (
                <WaitField value={mine.wait_ms} onValue={(wait_ms) => set({ wait_ms })} />
              )}
            </>
          )}
        </EditDialog>
      )}
    </AddressedDialog>
  );
}

/** An amount in the unit of a metric; money is typed in dollars. */
function AmountField({ metric, value, onValue }: { metric: Metric; value: number; onValue: (limit: number) => void }) {
  const isCost = metric === "cost_micro_usd";
  return (
    <NumberField
      label={isCost ? "Limit ($)" : "Limit"}
      name="limit"
      unit={isCost ? 1e6 : 1}
      value={Number.isNaN(value) ? "" : value}
      onValue={(typed) => onValue(typeof typed === "number" ? typed : Number.NaN)}
    />
  );
}

function Enforcement({ value, onValue }: { value: Quota["enforcement"]; onValue: (value: Quota["enforcement"]) => void }) {
  return (
    <Field label="When it is reached" name="enforcement">
      <Select
        value={value}
        onValue={(value) => onValue(value as Quota["enforcement"])}
        options={[
          ["hard", "Reject requests"],
          ["warn", "Warn only"],
        ]}
      />
    </Field>
  );
}

function WaitField({ value, onValue }: { value: number; onValue: (wait_ms: number) => void }) {
  return (
    <NumberField
      label="Wait up to (s)"
      name="wait_ms"
      help="A request that does not fit waits for its turn, at most so long. 0 rejects it at once."
      unit={1000}
      value={Number.isNaN(value) ? "" : value}
      onValue={(typed) => onValue(typeof typed === "number" ? typed : Number.NaN)}
    />
  );
}

function NewQuota() {
  const [kind, setKind] = useState<Subject["kind"]>(KINDS.find(([kind]) => kind === param("kind"))?.[0] ?? "project");
  const [id, setId] = useState(param("of"));
  const [narrow, setNarrow] = useState("");
  const [metric, setMetric] = useState<Metric>("cost_micro_usd");
  const [window, setWindow] = useState<Period>("month");
  const [limit, setLimit] = useState(Number.NaN);
  const [enforcement, setEnforcement] = useState<Quota["enforcement"]>("hard");
  const [wait, setWait] = useState(0);
  const submission = useSubmission();
  const close = (): void => setParams({ new: null, of: null });
  const canWait = enforcement === "hard" && mayWait(metric, metric === "concurrent_requests" ? null : window);
  const body = {
    subject: kind === "gateway" ? { kind } : { kind, id },
    metric,
    ...(metric === "concurrent_requests" ? {} : { window }),
    ...(narrow === "" ? {} : narrow.includes("/") ? { model: narrow } : { endpoint: narrow }),
    limit: Number.isNaN(limit) ? null : limit,
    enforcement,
    ...(canWait && wait !== 0 ? { wait_ms: Number.isNaN(wait) ? null : wait } : {}),
  };
  const isComplete = body.limit !== null && (kind === "gateway" || id !== "");
  const { effects } = useOutlook(isComplete ? { method: "POST", path: "quotas", body } : null);
  const isWarned = effects?.warnings.some(({ code }) => code === "no_price") ?? false;
  const create = (): void => {
    void submission.run(body, async (repeatKey) => {
      await call("POST", "quotas", { body, repeatKey });
      changed("quotas");
      close();
    });
  };
  return (
    <Dialog title="New quota" onClose={close}>
      <Form submission={submission} onSubmit={create}>
        <div class="form-row">
          <Field label="Scope" name="subject.kind">
            <Select
              value={kind}
              onValue={(value) => {
                setKind(value as Subject["kind"]);
                setId("");
              }}
              options={KINDS}
            />
          </Field>
          {kind !== "gateway" && <Whose kind={kind} value={id} onValue={setId} />}
        </div>
        <div class="form-row">
          <Field label="Metric" name="metric">
            <Select value={metric} onValue={(value) => setMetric(value as Metric)} options={METRICS} />
          </Field>
          {metric !== "concurrent_requests" && (
            <Field label="Period" name="window">
              <Select value={window} onValue={(value) => setWindow(value as Period)} options={WINDOWS} />
            </Field>
          )}
        </div>
        <Only value={narrow} onValue={setNarrow} />
        <AmountField key={metric} metric={metric} value={Number.NaN} onValue={setLimit} />
        <Enforcement value={enforcement} onValue={setEnforcement} />
        {canWait && <WaitField value={wait} onValue={setWait} />}
        <EffectsList effects={effects} />
        {metric === "cost_micro_usd" && enforcement === "hard" && !isWarned && (
          <p class="alert warn">Targets without a known price are skipped for keys under a hard limit on cost.</p>
        )}
        <FormFooterError />
        <FormButtons busy={submission.busy} submit="Create" submitting="Creating…" onCancel={close} />
      </Form>
    </Dialog>
  );
}

async function suggestTargets(text: string): Promise<Suggested> {
  return merged(await Promise.all([suggestEndpoints(text, ""), suggestModels(text)]));
}

/** The model or the endpoint whose requests alone count. */
function Only({ value, onValue }: { value: string; onValue: (value: string) => void }) {
  return (
    <Field
      label="Only requests to"
      name={value.includes("/") ? "model" : "endpoint"}
      optional
      help="An endpoint by its name, or a model as PROVIDER/MODEL."
    >
      {value === "" ? (
        <Combobox label="Only requests to" placeholder="Any model or endpoint" suggest={suggestTargets} onPick={onValue} />
      ) : (
        <span class="tag">
          <span class="clip">{value}</span>
          <button type="button" aria-label={`Remove ${value}`} class="tag-x" onClick={() => onValue("")}>
            <Icon name="x" small />
          </button>
        </span>
      )}
    </Field>
  );
}

type WhoseProps = { kind: keyof typeof subjects; value: string; onValue: (id: string) => void };

function Whose({ kind, value, onValue }: WhoseProps) {
  return (
    <Field label="Applies to" name="subject">
      <Chooser key={kind} label="Applies to" value={value} onValue={onValue} of={subjects[kind]} placeholder="Choose" />
    </Field>
  );
}
