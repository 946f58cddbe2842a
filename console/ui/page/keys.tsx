// The project keys.
import type { ComponentChildren } from "preact";
import { may } from "../api/client";
import { type List, useList } from "../api/list";
import { projects } from "../api/objects";
import type { Key, ListedKey, ListedKeyPage, Quota, UsageLine } from "../api/types";
import { href, param, setParams } from "../app/router";
import { Chooser } from "../part/chooser";
import { Select } from "../part/form";
import { ago, day, dollars, plural, UNKNOWN } from "../part/format";
import { State } from "../part/icon";
import { kindOf, limitName, shareOf } from "../part/limits";
import { ClearButton, HeadNewButton, ListCard, NewButton } from "../part/list";
import { asked as askedFor, orderOf } from "../part/order";
import { Meter, Page } from "../part/page";
import { Search } from "../part/search";
import { Table } from "../part/table";
import { KeyMenu } from "./key_actions";
import { MintKey } from "./mint_key";

/** The columns by which the gateway sorts keys. */
const SORTED = ["name", "created", "last_used", "spend", "expires"];
/** The key that was just minted is the first one. */
const NEWEST = { sort: "created", order: "desc" } as const;

const STATES = { active: "ok", expired: "off", disabled: "off", revoked: "bad" } as const;

export function KeyState({ state }: { state: Key["state"] }) {
  return <State kind={STATES[state]} word={state} />;
}

/** The keys that fit a filter of `GET keys`, beside the object that they belong to. */
export function KeyTable({ filter, empty }: { filter: Record<string, string>; empty: ComponentChildren }) {
  return (
    <Table
      list={useList<Key>("keys", { ...filter, ...askedFor(NEWEST) })}
      label="Keys"
      rowKey={(key) => key.id}
      empty={empty}
      columns={[
        {
          head: "Name",
          width: "1fr",
          cell: (key) => (
            <a class="row-link" href={href(`/keys/${key.id}`)}>
              {key.name}
            </a>
          ),
        },
        { head: "Prefix", width: 128, fold: 2, cell: (key) => <span class="mono faint">{key.prefix}…</span> },
        { head: "State", width: 112, fold: 1, cell: (key) => <KeyState state={key.state} /> },
      ]}
    />
  );
}

/** The first moment of the present month in UTC, by which money is summed. */
export function monthStart(now = Date.now()): number {
  const date = new Date(now);
  return Date.UTC(date.getUTCFullYear(), date.getUTCMonth(), 1);
}

/** Costs, and how many attempts have no known price; null for sums that took too long. */
export function Spend({ figures }: { figures: Pick<UsageLine, "cost_micro_usd" | "requests_unpriced" | "requests"> | null | undefined }) {
  if (figures === null) return <TooLong />;
  if (!figures || figures.requests === 0) return <span class="faint">{UNKNOWN}</span>;
  const { cost_micro_usd: cost, requests_unpriced: unpriced } = figures;
  if (cost === 0 && unpriced > 0) return <span class="faint">{plural(unpriced, "unpriced", "unpriced")}</span>;
  return (
    <>
      {dollars(cost)}
      {unpriced > 0 && <span class="faint"> + {unpriced} unpriced</span>}
    </>
  );
}

function TooLong() {
  const why = "not known: the sum took too long";
  return (
    <span class="faint" title={why}>
      <span aria-hidden="true">{UNKNOWN}</span>
      <span class="sr">{why}</span>
    </span>
  );
}

/** Says that a list by spend is not in this order, because the sums took too long. */
export function NotBySpend({ list }: { list: List<unknown> }) {
  const isPartial = (list.first.value as Pick<ListedKeyPage, "partial"> | null)?.partial ?? false;
  return (
    isPartial && (
      <p class="alert warn" role="status">
        This list is in order of creation: it took too long to sum the spend of all its rows. Load the page again, or search.
      </p>
    )
  );
}

/** The limit of which the largest share is used. */
function Tightest({ limit: worst }: { limit: Quota | null }) {
  if (!worst) return <span class="faint">{UNKNOWN}</span>;
  const share = shareOf(worst);
  return (
    <span class="meter-cell" title={limitName(worst)}>
      <Meter share={share} kind={kindOf(share)} />
      <span>{Math.round(share * 100)} %</span>
    </span>
  );
}

export function KeysPage() {
  const state = param("state");
  const project = param("project");
  const q = param("q");
  const order = orderOf(SORTED, NEWEST);
  const list = useList<ListedKey>("keys", { state, project, q, ...askedFor(order) });
  const filtered = state !== "" || project !== "" || q !== "";
  return (
    <Page
      title="API keys"
      lead="A key opens the data plane for one project, within its limits."
      actions={may("mint_keys") && <HeadNewButton>Mint key</HeadNewButton>}
    >
      <ListCard
        filters={
          <>
            <Search label="Search keys" placeholder="Name, prefix or ID" />
            <Select
              aria-label="State"
              value={state}
              onValue={(state) => setParams({ state })}
              options={[["", "Any state"], ...Object.keys(STATES).map((name): [string, string] => [name, name])]}
            />
            <Chooser
              label="Project"
              value={project}
              onValue={(project) => setParams({ project })}
              of={projects}
              fixed={[["", "Any project"]]}
            />
          </>
        }
        note={<NotBySpend list={list} />}
        list={list}
        label="API keys"
        rowKey={(key) => key.id}
        order={order}
        usual={NEWEST}
        isFiltered={filtered}
        icon="key-round"
        titles={["No key fits the filter", "There is no key yet"]}
        help={
          !filtered &&
          (may("administer") ? "Give clients project keys, never the administrator key." : "Keys of your projects appear here.")
        }
        action={filtered ? <ClearButton of={["state", "project", "q"]} /> : may("mint_keys") && <NewButton>Mint key</NewButton>}
        columns={[
          {
            head: "Name",
            width: "3fr",
            sort: "name",
            cell: (key) => (
              <a class="row-link" href={href(`/keys/${key.id}`)}>
                {key.name}
              </a>
            ),
          },
          { head: "Prefix", width: 128, fold: 3, cell: (key) => <span class="mono faint">{key.prefix}…</span> },
          { head: "State", width: 104, fold: 5, cell: (key) => <KeyState state={key.state} /> },
          { head: "Project", width: "2fr", fold: 1, cell: (key) => key.project_name ?? key.project },
          {
            head: "Limits used",
            width: 148,
            fold: 2,
            cell: ({ limit }) => <Tightest limit={limit} />,
          },
          {
            head: "Spend this month",
            width: 168,
            number: true,
            sort: "spend",
            fold: 6,
            cell: (key) => <Spend figures={key.month} />,
          },
          {
            head: "Last used",
            width: 112,
            sort: "last_used",
            from: "desc",
            fold: 4,
            cell: (key) => <LastUsed at={key.last_used_hour_ms} />,
          },
          {
            head: "Expires",
            width: 112,
            sort: "expires",
            from: "asc",
            fold: 0,
            cell: (key) => (key.expires_at_ms === null ? <span class="faint">never</span> : day(key.expires_at_ms)),
          },
          { head: "Actions", width: 56, quiet: true, cell: (key) => <KeyMenu of={key} /> },
        ]}
      />
      {may("mint_keys") && param("new") && <MintKey onClose={() => setParams({ new: null })} project={project} />}
    </Page>
  );
}

/** Uses are known by the hour. */
function LastUsed({ at }: { at: number | null }) {
  if (at === null) return <span class="faint">never</span>;
  return <>{Date.now() - at < 3_600_000 ? "this hour" : ago(at)}</>;
}
