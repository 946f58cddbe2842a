// One project key: what it may do, what it has used, and its actions.
import { Fault, may, mayIn } from "../api/client";
import { useAll } from "../api/objects";
import { changed, useResource } from "../api/resource";
import type { FullRecord, SeriesAnswer } from "../api/shapes";
import { suggestEndpoints, suggestModelEntries, suggestOperations } from "../api/suggest";
import type { Key, Page as PageOf, Principal, Project, Quota } from "../api/types";
import { href, param, setParams } from "../app/router";
import { Bars } from "../part/chart";
import { Allowed } from "../part/choice";
import { Copyable } from "../part/copy";
import { EditDialog } from "../part/edit";
import { Empty, Loaded } from "../part/feedback";
import { Figure, Figures } from "../part/figures";
import { Check, concerns, Field, Text } from "../part/form";
import { count, day, dollars, duration, moment, short, UNKNOWN, zoneName } from "../part/format";
import { Icon } from "../part/icon";
import { Limits, newLimit } from "../part/limits_card";
import { Ref } from "../part/links";
import { Menu } from "../part/menu";
import { dateEnd, dateOf } from "../part/moment";
import { AttemptMarks } from "../part/outcome";
import { Card, Facts, Page } from "../part/page";
import { Rows } from "../part/table";
import { tagsOf, tagsText } from "../part/tags";
import { useKeyActions } from "./key_actions";
import { KeyState, monthStart, Spend } from "./keys";
import { ActsAs } from "./mint_key";
import { outcomesOf, timesOf } from "./overview/figures";
import { ALL_TIME } from "./requests";

export function KeyPage({ id }: { id: string }) {
  const key = useResource<Key>(`keys/${encodeURIComponent(id)}`);
  return (
    <Loaded resource={key} missing={<Missing id={id} />}>
      {(data) => <One of={data} etag={key.etag} />}
    </Loaded>
  );
}

function Missing({ id }: { id: string }) {
  return (
    <Empty
      page
      icon="key-round"
      title="There is no such key"
      action={
        <a class="btn" href={href("/keys")}>
          All keys
        </a>
      }
    >
      <span class="mono wrap">{id}</span> was deleted, or never existed.
    </Empty>
  );
}

function One({ of, etag }: { of: Key; etag: string | null }) {
  const { items, dialog } = useKeyActions(of);
  const isOpen = of.state !== "revoked" && mayIn(of.project, "change_keys", of.acts_as);
  const { rows: quotas, isWhole } = useAll<Quota>("quotas", { key: of.id });
  const last = useResource<PageOf<FullRecord>>(`requests?${new URLSearchParams({ key: of.id, limit: String(LAST_SHOWN) })}`).data.value
    ?.data;
  const [one] = last ?? [];
  // What was never used has no figures.
  const search = new URLSearchParams({ key: of.id, from: String(monthStart()), step: "86400" });
  const series = useResource<SeriesAnswer>(one ? `series?${search}` : null).data.value;
  return (
    <Page
      title={of.name}
      lead={
        <>
          <span class="mono">{of.prefix}…</span> opens the data plane for its project.
        </>
      }
      actions={
        <>
          <a class="btn" href={href("/requests", { key: of.id })}>
            <Icon name="list" small />
            Its requests
          </a>
          <a class="btn" href={href("/usage", { key: of.id, by: "client", figure: "requests" })}>
            Its clients
          </a>
          <a class="btn" href={href(`/keys/${encodeURIComponent(of.id)}/access`)}>
            What can it call?
          </a>
          <button type="button" class="btn" onClick={() => setParams({ edit: "1" })} disabled={!isOpen}>
            <Icon name="pencil" small />
            Edit
          </button>
          <Menu label={`Actions for ${of.name}`} items={items} />
        </>
      }
    >
      <div class="cols main-side">
        <div class="page-stack">
          <Limits
            quotas={isWhole ? quotas : undefined}
            none="No limit of its own. Limits of its project and its human count as well."
            aside="all keys of its rotation together"
            add={newLimit("key", of.id)}
          />
          {one && <MonthCard series={series} />}
          {series && <OverTime of={series} />}
          {last && last.length > 0 && <LastRequests of={last} id={of.id} />}
        </div>
        {last && <FactsCard of={of} used={one} />}
      </div>
      {dialog}
      {param("edit") && isOpen && <Edit of={of} etag={etag} onClose={() => setParams({ edit: null })} />}
    </Page>
  );
}

/** The names of a key's project and human are those of its last request, or are asked for if there is none. */
function FactsCard({ of, used }: { of: Key; used: FullRecord | undefined }) {
  const project = useResource<Project>(used ? null : `projects/${encodeURIComponent(of.project)}`).data.value?.name ?? used?.project_name;
  const isNamed = of.acts_as === null || used?.principal === of.acts_as;
  const human =
    useResource<Principal>(isNamed ? null : `principals/${encodeURIComponent(of.acts_as ?? "")}`).data.value?.name ?? used?.principal_name;
  const list = (entries: string[] | null): string => (entries === null ? "all" : entries.length ? entries.join(", ") : "none");
  return (
    <Card bare>
      <Facts
        rows={[
          ["State", <KeyState key="s" state={of.state} />],
          ["Project", <Ref key="p" kind="project" id={of.project} name={project} />],
          ["Acts as", of.acts_as ? <Ref key="h" kind="human" id={of.acts_as} name={human} /> : "nobody"],
          ["Expires", of.expires_at_ms === null ? "never" : `${moment(of.expires_at_ms)} ${zoneName()}`],
          ["Last used", of.last_used_hour_ms === null ? "never" : `in the hour of ${moment(of.last_used_hour_ms)}`],
        ]}
      />
      <Facts
        rows={[
          ["Endpoints", list(of.endpoints)],
          ["Models", list(of.models)],
          ["Operations", list(of.routes)],
          ["Tags", tagsText(of.tags) || "none"],
        ]}
      />
      <Facts
        rows={[
          ["Id", <Copyable key="i" text={of.id} label="the id" clip />],
          ["Can be revealed", of.recoverable && of.state !== "revoked" ? "yes, a copy is stored encrypted" : "no"],
          ["Rotated from", of.rotated_from && <Ref kind="key" id={of.rotated_from} />],
          ["Minted", day(of.created_at_ms)],
        ]}
      />
    </Card>
  );
}

const LAST_SHOWN = 5;
const sum = (values: number[]): number => values.reduce((total, value) => total + value, 0);

/** What the key has used since the beginning of the month. */
function MonthCard({ series }: { series: SeriesAnswer | null }) {
  const { points, whole } = series?.groups[0] ?? {};
  const requests = points && sum(points.requests);
  const [input, output] = points ? [sum(points.input) + sum(points.cache_read), sum(points.output)] : [];
  const spend = points && {
    requests: requests ?? 0,
    cost_micro_usd: sum(points.cost_micro_usd),
    requests_unpriced: sum(points.requests_unpriced),
  };
  return (
    <Figures label="This month">
      <Figure name="Requests" value={count(requests)} sub="this month, UTC" />
      <Figure name="Tokens" value={short(points && (input ?? 0) + (output ?? 0))} sub={`${short(input)} in, ${short(output)} out`} />
      <Figure name="Spend" value={spend ? <Spend figures={spend} /> : UNKNOWN} sub="known prices" />
      <Figure name="First token" value={duration(whole?.first_content_us_p50)} sub={`p99 ${duration(whole?.first_content_us_p99)}`} />
      <Figure name="Total" value={duration(whole?.duration_us_p50)} sub={`p99 ${duration(whole?.duration_us_p99)}`} />
    </Figures>
  );
}

function OverTime({ of }: { of: SeriesAnswer }) {
  return (
    <Card title="Requests by day, this month, UTC">
      <Bars
        times={timesOf(of)}
        series={outcomesOf(of.groups[0]?.points)}
        unit={count}
        timeText={dayShort}
        summary="Requests with this key by day."
        height={148}
      />
    </Card>
  );
}

/** `22 Nov`. */
const dayShort = (at: number): string => day(at).replace(/ \d{4}$/, "");

function LastRequests({ of, id }: { of: FullRecord[]; id: string }) {
  return (
    <Card title="Last requests" aside={<a href={href("/requests", { key: id, period: ALL_TIME })}>All its requests</a>} bare>
      <Rows
        rows={of}
        label="Last requests"
        rowKey={({ request_id }) => request_id}
        columns={[
          {
            head: "Time",
            width: 128,
            cell: ({ request_id, started_at_ms }) => (
              <a class="num" href={href(`/requests/${encodeURIComponent(request_id)}`, { key: id })}>
                {moment(started_at_ms)}
              </a>
            ),
          },
          { head: "Asked for", width: "1fr", cell: ({ selector }) => selector || UNKNOWN },
          { head: "Attempts", width: 120, fold: 1, cell: (request) => <AttemptMarks of={request} /> },
          { head: "Total", width: 96, number: true, fold: 2, cell: ({ duration_us }) => duration(duration_us) },
          { head: "Cost", width: 96, number: true, cell: ({ cost_micro_usd }) => dollars(cost_micro_usd) },
        ]}
      />
    </Card>
  );
}

type Editable = Pick<Key, "name" | "acts_as" | "expires_at_ms" | "endpoints" | "models" | "routes" | "recoverable"> & { tags: string };

const editable = ({ name, acts_as, expires_at_ms, endpoints, models, routes, tags, recoverable }: Key): Editable => ({
  name,
  acts_as,
  expires_at_ms,
  endpoints,
  models,
  routes,
  tags: tagsText(tags),
  recoverable,
});

const LABELS: Record<keyof Editable, string> = {
  name: "Name",
  acts_as: "Acts as",
  expires_at_ms: "Expires",
  endpoints: "Endpoints",
  models: "Models",
  routes: "Operations",
  tags: "Tags",
  recoverable: "Encrypted copy",
};

/** The body of a change: the field of the expiry has another name in requests, and tags are an object. */
function bodyOf({ expires_at_ms, tags, ...rest }: Partial<Editable>): Record<string, unknown> {
  return {
    ...rest,
    ...(expires_at_ms === undefined ? {} : { expires_at: expires_at_ms }),
    ...(tags === undefined ? {} : { tags: tagsOf(tags) }),
  };
}

function Edit({ of, etag, onClose }: { of: Key; etag: string | null; onClose: () => void }) {
  return (
    <EditDialog
      title={`Edit ${of.name}`}
      path={`keys/${of.id}`}
      of={of}
      etag={etag}
      fieldsOf={editable}
      labels={LABELS}
      bodyOf={bodyOf}
      onSaved={() => changed("keys")}
      onClose={onClose}
    >
      {(mine, set, error) => (
        <>
          <Field label="Name" name="name">
            <Text value={mine.name} onValue={(name) => set({ name })} autoFocus />
          </Field>
          {may("administer") && <ActsAs project={of.project} value={mine.acts_as ?? ""} onValue={(id) => set({ acts_as: id || null })} />}
          {of.recoverable && mine.acts_as !== of.acts_as && (
            <p class="help">Saving erases the encrypted copy, which belongs to the former holder.</p>
          )}
          <Field label="Expires" name="expires_at" optional help="At the end of that day. Empty: never.">
            <Text type="date" value={dateOf(mine.expires_at_ms)} onValue={(date) => set({ expires_at_ms: date ? dateEnd(date) : null })} />
          </Field>
          <Allowlists project={of.project} value={mine} onValue={set} error={error} />
          <TagsField value={mine.tags} onValue={(tags) => set({ tags })} />
          {of.recoverable && (
            <Check
              label="Keep an encrypted copy"
              help="Without it the copy is erased, and the key cannot be revealed again."
              checked={mine.recoverable}
              onChange={(recoverable) => set({ recoverable })}
            />
          )}
        </>
      )}
    </EditDialog>
  );
}

/** The default tags of a key's requests. */
export function TagsField({ value, onValue }: { value: string; onValue: (tags: string) => void }) {
  return (
    <Field label="Tags" name="tags" optional help="Default tags of its requests in reports, such as run=baseline, team=search.">
      <Text value={value} onValue={onValue} />
    </Field>
  );
}

type ListsProps = {
  /** The project of the key, whose selectors are suggested to a human. */
  project: string;
  value: Pick<Key, "endpoints" | "models" | "routes">;
  onValue: (change: Partial<Pick<Key, "endpoints" | "models" | "routes">>) => void;
  error: Error | null;
};

/** The three allowlists of a key or a project. */
export function Allowlists({ project, value, onValue, error }: ListsProps) {
  const wrong = (name: string): string | null => (error instanceof Fault && concerns(error.param, name) ? error.message : null);
  return (
    <>
      <Allowed
        label="Endpoints"
        all="All"
        value={value.endpoints}
        onValue={(endpoints) => onValue({ endpoints })}
        suggest={(text) => suggestEndpoints(text, project)}
        placeholder="Add an endpoint"
        error={wrong("endpoints")}
      />
      <Allowed
        label="Models"
        all="All"
        value={value.models}
        onValue={(models) => onValue({ models })}
        suggest={(text) => suggestModelEntries(text, project)}
        placeholder="Add a model, or all of a provider"
        error={wrong("models")}
      />
      <Allowed
        label="Operations"
        all="All"
        value={value.routes}
        onValue={(routes) => onValue({ routes })}
        suggest={suggestOperations}
        placeholder="Add an operation"
        error={wrong("routes")}
      />
    </>
  );
}
