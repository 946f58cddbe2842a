// Who changed what, and what was refused.

import { useState } from "preact/hooks";
import { gatewayPath } from "../api/base";
import { call } from "../api/client";
import { useList } from "../api/list";
import { changed, useResource } from "../api/resource";
import type { AuditRecord, AuditVerification } from "../api/types";
import { href, param, setParams } from "../app/router";
import { Dialog } from "../part/dialog";
import { Empty, ErrorBox, Loaded } from "../part/feedback";
import { FormError, Select, Text, useSubmission } from "../part/form";
import { clock, day, plural, zoneName } from "../part/format";
import { Icon, State } from "../part/icon";
import { ListCard } from "../part/list";
import { asked as askedFor, orderOf } from "../part/order";
import { Card, Facts, Page } from "../part/page";
import { Search } from "../part/search";
import { PERIODS, usePeriod } from "./requests";

const NEWEST = { sort: "time", order: "desc" } as const;

export function AuditPage() {
  const from = usePeriod(param("period"));
  const asked = { actor: param("actor"), action: param("action"), object: param("object"), outcome: param("outcome"), q: param("q"), from };
  const order = orderOf(["time"], NEWEST);
  const list = useList<AuditRecord>("audit", { ...asked, ...(order === NEWEST ? {} : askedFor(order)) });
  const isFiltered = Object.values(asked).some(Boolean);
  const exported = new URLSearchParams(Object.entries(asked).filter(([, value]) => value));
  const open = param("open");
  const chain = useVerification();
  const listed = open ? list.pages.value.flatMap(({ rows }) => rows ?? []).find(({ id }) => String(id) === open) : undefined;
  return (
    <Page
      title="Audit"
      lead="Every change, every sign-in, every refusal. Records form a chain that shows if one was altered."
      actions={
        <>
          <button type="button" class="btn" onClick={chain.verify} disabled={chain.busy}>
            <Icon name="link" small />
            {chain.busy ? "Verifying…" : "Verify chain"}
          </button>
          <a class="btn" href={gatewayPath(`/admin/api/audit/export?format=csv&${exported}`)} download="audit.csv">
            <Icon name="download" small />
            Export CSV
          </a>
        </>
      }
    >
      <ChainResult of={chain.result} error={chain.error} />
      <div class="filters">
        <Search label="Search audit records" placeholder="Part of an actor, action or object" />
      </div>
      <Filters rows={list.pages.value.flatMap(({ rows }) => rows ?? [])} />
      <ListCard
        list={list}
        label="Audit records"
        order={order}
        usual={NEWEST}
        rowKey={(record) => String(record.id)}
        isFiltered={isFiltered}
        icon="scroll-text"
        titles={["No record fits the filter", "There is no record yet"]}
        action={
          isFiltered && (
            <a class="btn" href={href("/audit")}>
              Clear the filter
            </a>
          )
        }
        columns={[
          { head: `Time (${zoneName()})`, width: 176, sort: "time", from: "desc", cell: (record) => <Time of={record} /> },
          { head: "Actor", width: "2fr", fold: 3, cell: ({ actor }) => actor },
          { head: "Action", width: "2fr", cell: ({ action }) => <span class="mono">{action}</span> },
          { head: "Object", width: "3fr", least: 180, fold: 4, cell: (record) => <ObjectOf of={record} /> },
          {
            head: "Outcome",
            width: 112,
            fold: 2,
            cell: ({ outcome }) => <State kind={outcome === "done" ? "ok" : "bad"} word={outcome} />,
          },
          { head: "Address", width: 136, fold: 1, cell: ({ address }) => <span class="mono faint">{address}</span> },
        ]}
      />
      {open && list.isRead && <Opened id={open} listed={listed} />}
    </Page>
  );
}

type Verification = { busy: boolean; result: AuditVerification | null; error: Error | null; verify: () => void };

function useVerification(): Verification {
  const [result, setResult] = useState<AuditVerification | null>(null);
  const { busy, error, run } = useSubmission();
  const verify = (): void =>
    void run(Date.now(), async (repeatKey) => {
      setResult(null);
      setResult((await call<AuditVerification>("POST", "audit/verify", { body: {}, repeatKey })).data);
      changed("audit?");
    });
  return { busy, error, result, verify };
}

/** `18,204 records, unbroken since 3 Oct 2026`. */
export function chainWords({ ok, rows, since_ms, broken_at, fault }: AuditVerification): string {
  if (ok) return `${plural(rows, "record")}, unbroken${since_ms === null ? "" : ` since ${day(since_ms)}`}`;
  return `The chain is broken${broken_at === null ? "" : ` at record ${broken_at}`}: ${fault}`;
}

function ChainResult({ of, error }: { of: AuditVerification | null; error: Error | null }) {
  return (
    <div role="status" class="status-place">
      <FormError error={error} />
      {of && (
        <p class={of.ok ? "alert ok wrap" : "alert bad wrap"}>
          <State kind={of.ok ? "ok" : "bad"} word="" />
          {chainWords(of)}
        </p>
      )}
    </div>
  );
}

/** The record that the address names, out of the list or from the gateway. */
function Opened({ id, listed }: { id: string; listed: AuditRecord | undefined }) {
  const read = useResource<AuditRecord>(listed ? null : `audit/${encodeURIComponent(id)}`);
  const of = listed ?? read.data.value;
  const close = (): void => setParams({ open: null });
  if (!of && !read.error.value) return null;
  return (
    <Dialog title={of?.action ?? `Record ${id}`} onClose={close} wide>
      {of ? <Details of={of} /> : read.error.value && <ErrorBox error={read.error.value} />}
    </Dialog>
  );
}

/** One record by itself: an address to send to a colleague. */
export function AuditRecordPage({ id }: { id: string }) {
  const record = useResource<AuditRecord>(`audit/${encodeURIComponent(id)}`);
  return (
    <Loaded
      resource={record}
      missing={
        <Empty
          page
          icon="scroll-text"
          title="There is no such record"
          action={
            <a class="btn" href={href("/audit")}>
              All records
            </a>
          }
        >
          Record {id} is older than the audit is kept, or never existed.
        </Empty>
      }
    >
      {(data) => (
        <Page title={data.action} lead={`Record ${data.id} of the audit`}>
          <Card bare>
            <div class="card-body">
              <Details of={data} />
            </div>
          </Card>
        </Page>
      )}
    </Loaded>
  );
}

function Time({ of }: { of: AuditRecord }) {
  const { pathname, search } = location;
  const query = new URLSearchParams(search);
  query.set("open", String(of.id));
  return (
    <a class="row-link num" href={`${pathname}?${query}`}>
      {day(of.at_ms).replace(/ \d{4}$/, "")} {clock(of.at_ms, "second")}
    </a>
  );
}

const PAGES: Record<string, string> = {
  key: "/keys/",
  project: "/access/projects/",
  principal: "/access/humans/",
  provider: "/providers/",
  endpoint: "/routes/",
};

/** The name of a record's object, as the record has it; null if it has none. A new key stands beside its quotas, a rotated one beside the old. */
export function nameOf({ detail, object_kind }: Pick<AuditRecord, "detail" | "object_kind">): string | null {
  type State = { [member: string]: State | string | undefined } | null | undefined;
  const named = (state: State): State | string => state?.name;
  const states = [detail?.after, detail?.before] as State[];
  const found = states.flatMap((state) => [named(state), ...[object_kind, "new"].map((part) => named(state?.[part] as State))]);
  return found.find((name): name is string => typeof name === "string" && name !== "") ?? null;
}

/** The object of a record. `isWhole` shows a long id in full, over more lines. */
function ObjectOf({ of, isWhole = false }: { of: AuditRecord; isWhole?: boolean }) {
  const page = PAGES[of.object_kind];
  const name = nameOf(of);
  const look = `${name === null ? "mono " : ""}${isWhole ? "wrap" : "clip"}`;
  return (
    <span title={of.object_id}>
      <span class="muted">{of.object_kind.replace(/_/g, " ")}</span>{" "}
      {page && of.object_id ? (
        <a class={look} href={href(page + encodeURIComponent(of.object_id))}>
          {name ?? of.object_id}
        </a>
      ) : (
        <bdi class={look}>{name ?? of.object_id}</bdi>
      )}
    </span>
  );
}

/** Suggests the values that occur in the records that are shown. */
function Suggestions({ id, values }: { id: string; values: string[] }) {
  return (
    <datalist id={id}>
      {[...new Set(values)].sort().map((value) => (
        <option key={value} value={value} />
      ))}
    </datalist>
  );
}

function Filters({ rows }: { rows: AuditRecord[] }) {
  const [actor, setActor] = useState(param("actor"));
  const [action, setAction] = useState(param("action"));
  const [object, setObject] = useState(param("object"));
  return (
    <form
      class="filters"
      onSubmit={(event) => {
        event.preventDefault();
        setParams({ actor: actor.trim(), action: action.trim(), object: object.trim() });
      }}
    >
      <Text type="search" value={actor} onValue={setActor} placeholder="Actor" aria-label="Actor" list="actors" />
      <Text type="search" value={action} onValue={setAction} placeholder="Action, such as key.create" aria-label="Action" list="actions" />
      <Text type="search" value={object} onValue={setObject} placeholder="Object, such as key/key_…" aria-label="Object" list="objects" />
      <Suggestions id="actors" values={rows.map(({ actor }) => actor)} />
      <Suggestions id="actions" values={rows.map(({ action }) => action)} />
      <Suggestions id="objects" values={rows.map(({ object_kind, object_id }) => `${object_kind}/${object_id}`)} />
      <button type="submit" class="btn">
        Filter
      </button>
      <Select
        aria-label="Outcome"
        value={param("outcome")}
        onValue={(outcome) => setParams({ outcome })}
        options={[
          ["", "Any outcome"],
          ["done", "done"],
          ["refused", "refused"],
        ]}
      />
      <Select
        aria-label="Period"
        data-period
        value={param("period")}
        onValue={(period) => setParams({ period })}
        options={[["", "All time"], ...Object.entries(PERIODS).map(([id, [name]]): [string, string] => [id, name])]}
      />
    </form>
  );
}

/** The members of two states that differ, as path, before, after. */
export function differences(before: unknown, after: unknown, path = ""): [string, string, string][] {
  const isObject = (value: unknown): value is Record<string, unknown> =>
    typeof value === "object" && value !== null && !Array.isArray(value);
  if (isObject(before) || isObject(after)) {
    const a = isObject(before) ? before : {};
    const b = isObject(after) ? after : {};
    const names = [...new Set([...Object.keys(a), ...Object.keys(b)])];
    return names.flatMap((name) => differences(a[name], b[name], path ? `${path}.${name}` : name));
  }
  const text = (value: unknown): string =>
    value === undefined || value === null ? "" : typeof value === "string" ? value : JSON.stringify(value);
  return text(before) === text(after) ? [] : [[path, text(before), text(after)]];
}

function Details({ of }: { of: AuditRecord }) {
  const { before, after, ...rest } = of.detail ?? {};
  const rows = [...differences(before, after), ...differences({}, rest)];
  return (
    <>
      <Facts
        rows={[
          ["Record", <a href={href(`/audit/${of.id}`)}>{String(of.id)}</a>],
          ["Time", `${day(of.at_ms)} ${clock(of.at_ms, "ms")} ${zoneName()}`],
          ["Actor", of.actor],
          ["Object", <ObjectOf key="o" of={of} isWhole />],
          ["Outcome", of.outcome],
          ["Address", of.address],
          ["Request", of.request_id && <span class="mono wrap">{of.request_id}</span>],
        ]}
      />
      {rows.length > 0 && (
        <div class="table-wrap" role="group" aria-label="Differences" tabIndex={0}>
          <table class="table differences">
            <thead>
              <tr>
                <th scope="col">Member</th>
                <th scope="col">Before</th>
                <th scope="col">After</th>
              </tr>
            </thead>
            <tbody>
              {rows.map(([path, was, is]) => (
                <tr key={path}>
                  <td class="mono conflict-cell">{path}</td>
                  <td class="conflict-cell">
                    <del class="diff-del">{was}</del>
                  </td>
                  <td class="conflict-cell">
                    <ins class="diff-ins">{is}</ins>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}
