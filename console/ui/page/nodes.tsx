// The gateways that share the database: how each is doing, what it has of limits, and what to do with one that is lost.
import { useEffect, useState } from "preact/hooks";
import { at, call } from "../api/client";
import { changed, useResource } from "../api/resource";
import type { DetailedNode, ForgottenNode, Node, NodeShare, Nodes, Unused } from "../api/types";
import { href, param, setParams } from "../app/router";
import { Confirm, Dialog } from "../part/dialog";
import { AddressedDialog } from "../part/edit";
import { Empty, Loaded, notify } from "../part/feedback";
import { ago, count, duration, moment, plural, UNKNOWN, zoneName } from "../part/format";
import { type MarkKind, State } from "../part/icon";
import { amount, limitName } from "../part/limits";
import { Card, Facts, Page } from "../part/page";
import { Rows } from "../part/table";

export function NodesPage() {
  const nodes = useResource<Nodes>("nodes");
  const open = param("node");
  useWatch((nodes.data.value?.data.length ?? 0) > 0);
  return (
    <Page title="Nodes" lead="The gateways that share this database. Each serves by the changes of all.">
      <Loaded resource={nodes}>{(data) => <List of={data} />}</Loaded>
      {open && <OneNode key={open} id={open} />}
    </Page>
  );
}

/** Reads the list and the open node again while gateways share the database and the page is seen: a node that is lost sends nothing. */
function useWatch(isShared: boolean): void {
  useEffect(() => {
    if (!isShared) return;
    const timer = setInterval(() => !document.hidden && changed("nodes"), REREAD_MS);
    return () => clearInterval(timer);
  }, [isShared]);
}

/** A node is silent after five seconds without a sign of life. */
const REREAD_MS = 2_000;

const STANDINGS: Record<Node["standing"], { kind: MarkKind; word: string; about: string }> = {
  live: { kind: "ok", word: "live", about: "It is heard of." },
  silent: { kind: "bad", word: "silent", about: "It was not heard of for some seconds, and may still serve by an earlier state." },
  stale: { kind: "bad", word: "lost", about: "It was not heard of for so long that it refuses project keys if it still runs." },
  left: { kind: "off", word: "stopped", about: "It has stopped in order, and given back what it had of limits." },
};

/** The text that most live nodes have; a node with another one is marked. */
export function usual(nodes: Node[], of: (node: Node) => string): string | null {
  const counts = new Map<string, number>();
  for (const node of nodes.filter(({ standing }) => standing === "live")) counts.set(of(node), (counts.get(of(node)) ?? 0) + 1);
  const found = [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? 1 : -1))[0];
  return found ? found[0] : null;
}

/** `serves by the newest change`, `3 changes behind`. */
export function behindWords({ standing, seen_version }: Pick<Node, "standing" | "seen_version">, newest: number | null): string {
  if (standing === "left" || newest === null) return UNKNOWN;
  const behind = newest - seen_version;
  return behind > 0 ? `${plural(behind, "change")} behind` : "current";
}

/** `in step`, `2.31 s ahead`; a difference of more than a second matters. */
export function clockWords(ms: number): { isFar: boolean; words: string } {
  const size = Math.abs(ms);
  if (size < 100) return { isFar: false, words: "in step" };
  return { isFar: size > 1000, words: `${duration(size * 1000)} ${ms > 0 ? "ahead" : "behind"}` };
}

function List({ of: { data, newest_version } }: { of: Nodes }) {
  if (data.length === 0) return <None />;
  const [release, digest] = [usual(data, (node) => node.release), usual(data, (node) => node.file_digest)];
  const live = data.filter(({ standing }) => standing === "live").length;
  return (
    <Card bare>
      <Rows
        rows={data}
        label="Nodes"
        rowKey={({ node }) => String(node)}
        columns={[
          { head: "Node", width: "1fr", least: 160, cell: (node) => <Name of={node} /> },
          { head: "Standing", width: 104, cell: (node) => <Standing of={node} /> },
          { head: "Last heard of", width: 120, fold: 6, cell: (node) => heardWords(node) },
          { head: "Changes", width: 144, fold: 5, cell: (node) => behindWords(node, newest_version) },
          { head: "Usage", width: 144, fold: 3, cell: (node) => unstoredWords(node) },
          { head: "Clock", width: 128, fold: 2, cell: (node) => <Clock of={node} /> },
          {
            head: "Release",
            width: 136,
            fold: 4,
            cell: (node) => <Alike of={node} text={node.release} isOdd={node.release !== release} />,
          },
          {
            head: "Configuration",
            width: 160,
            fold: 1,
            cell: (node) => <Alike of={node} text={node.file_digest.slice(0, 10)} isOdd={node.file_digest !== digest} />,
          },
        ]}
      />
      <div class="table-foot">
        <span>
          {count(live)} of {plural(data.length, "node")} {live === 1 ? "is" : "are"} live
        </span>
      </div>
    </Card>
  );
}

function None() {
  return (
    <Card bare>
      <Empty icon="boxes" title="This gateway has its own database">
        Several gateways share a database of PostgreSQL that LLMGW_DATABASE_URL names.
      </Empty>
    </Card>
  );
}

function Name({ of }: { of: Node }) {
  return (
    <a class="row-link" href={href("/nodes", { node: String(of.node) })}>
      {of.name} <span class="faint">{of.is_this ? `${of.node}, answers` : of.node}</span>
    </a>
  );
}

function Standing({ of }: { of: Node }) {
  const { kind, word } = STANDINGS[of.standing];
  return <State kind={kind} word={word} />;
}

const heardWords = (node: Node): string => ago(node.standing === "left" ? node.left_at_ms : node.heard_at_ms);

const unstoredWords = ({ unstored_for_ms: ms, standing }: Node): string =>
  standing === "left" || ms === null || ms < 10_000 ? "stored" : `waits for ${duration(ms * 1000)}`;

function Clock({ of }: { of: Node }) {
  if (of.standing === "left") return <span>{UNKNOWN}</span>;
  const { isFar, words } = clockWords(of.clock_ahead_ms);
  return isFar ? <State kind="warn" word={words} /> : <span>{words}</span>;
}

/** A value that all live nodes should have alike. */
function Alike({ of, text, isOdd }: { of: Node; text: string; isOdd: boolean }) {
  return isOdd && of.standing === "live" ? <State kind="warn" word={`differs: ${text}`} /> : <span class="mono">{text}</span>;
}

function OneNode({ id }: { id: string }) {
  const [isForgetting, setForgetting] = useState(false);
  const close = (): void => setParams({ node: null });
  return (
    <AddressedDialog<DetailedNode> path={at("nodes", id)} title="Node" onClose={close}>
      {(node) =>
        isForgetting ? (
          <Forget of={node} onClose={() => setForgetting(false)} onDone={close} />
        ) : (
          <Dialog title={`Node ${node.name}`} onClose={close} wide>
            <NodeFacts of={node} />
            <Shares of={node.shares} />
            <div class="dialog-foot">
              <button type="button" class="btn" onClick={close}>
                Close
              </button>
              {!node.is_this && node.standing !== "live" && (
                <button type="button" class="btn danger" onClick={() => setForgetting(true)}>
                  Forget the node…
                </button>
              )}
            </div>
          </Dialog>
        )
      }
    </AddressedDialog>
  );
}

function NodeFacts({ of }: { of: DetailedNode }) {
  return (
    <Facts
      rows={[
        ["Number", `${of.node}${of.is_this ? ", the gateway that answers" : ""}`],
        ["Standing", <Standing key="s" of={of} />],
        ["Meaning", STANDINGS[of.standing].about],
        ["Last heard of", of.heard_at_ms && `${moment(of.heard_at_ms)} ${zoneName()}`],
        ["Stopped", of.left_at_ms && `${moment(of.left_at_ms)} ${zoneName()}`],
        ["Release", of.release],
        ["Usage", unstoredWords(of)],
        ["Clock", <Clock key="c" of={of} />],
        [
          "Configuration",
          <span key="d" class="mono wrap">
            {of.file_digest}
          </span>,
        ],
      ]}
    />
  );
}

function Shares({ of }: { of: NodeShare[] }) {
  return (
    <>
      <h3 class="group-title">Shares of limits</h3>
      {of.length === 0 ? (
        <p class="help">It has no share of a limit now.</p>
      ) : (
        <div class="table-wrap" role="group" aria-label="Shares of limits" tabIndex={0}>
          <table class="table">
            <thead>
              <tr>
                {["Of", "Limit", "May use", "Has used"].map((head) => (
                  <th key={head} scope="col">
                    {head}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {of.map((share) => (
                <tr key={share.quota}>
                  <td>
                    <a href={href("/quotas", { edit: share.quota })}>{share.name}</a>
                  </td>
                  <td>
                    {amount(share.metric, share.limit)} {limitName(share).toLowerCase()}
                  </td>
                  <td>{amount(share.metric, share.granted)}</td>
                  <td>{share.window === null || share.window === "minute" ? UNKNOWN : amount(share.metric, share.used)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}

const CHOICES: [Unused, string, string][] = [
  ["count", "Count as used", "It counts as used until each window ends, and for ever in limits in total. No limit is exceeded."],
  [
    "release",
    "Give back",
    "Others may use it now. A limit is exceeded by what the node has used and not stored, and by what it uses if it still runs.",
  ],
];

function Forget({ of, onClose, onDone }: { of: DetailedNode; onClose: () => void; onDone: () => void }) {
  const [unused, setUnused] = useState<Unused>("count");
  const run = async (): Promise<void> => {
    const { data } = await call<ForgottenNode>("POST", `${at("nodes", String(of.node))}/forget`, { body: { unused } });
    changed("nodes");
    const released = data.released_limits > 0 ? `, and ${plural(data.released_limits, "limit")} got back what it had unused` : "";
    notify(`${of.name} is forgotten${released}`);
    onDone();
  };
  return (
    <Confirm title={`Forget the node ${of.name}?`} action="Forget" run={run} onClose={onClose}>
      {of.standing === "left" ? (
        <p>It has stopped in order, so nothing is lost. It is no longer listed.</p>
      ) : (
        <>
          <p>
            For a node whose disk is lost: it is no longer listed, and changes do not wait for it. Usage that it has not stored is lost.
            With its disk, start it again instead.
          </p>
          <fieldset class="allowed">
            <legend>What it has unused of limits</legend>
            <div class="seg">
              {CHOICES.map(([value, title]) => (
                <button key={value} type="button" aria-pressed={unused === value} onClick={() => setUnused(value)}>
                  {title}
                </button>
              ))}
            </div>
          </fieldset>
          <p aria-live="polite">{CHOICES.find(([value]) => value === unused)?.[2]}</p>
        </>
      )}
      <p class="help">If it returns, it is a node again.</p>
    </Confirm>
  );
}
