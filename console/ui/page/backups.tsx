// The archives of the gateway's state: made, verified, downloaded, deleted, each with the evidence that it is whole.
import { useEffect, useState } from "preact/hooks";
import { gatewayPath } from "../api/base";
import { call } from "../api/client";
import { changed, type Resource, useResource } from "../api/resource";
import type { Backup, Backups, CheckedBackup } from "../api/types";
import { href } from "../app/router";
import { Confirm } from "../part/dialog";
import { Empty, Loaded, notify } from "../part/feedback";
import { FormError, useSubmission } from "../part/form";
import { ago, bytes, moment, plural, zoneName } from "../part/format";
import { Icon, State } from "../part/icon";
import { asked as askedFor, type Order, orderOf } from "../part/order";
import { Card, Page } from "../part/page";
import { Rows } from "../part/table";

export function BackupsPage() {
  const order = orderOf(["time", "size"], NEWEST);
  const backups = useResource<Backups>(`backups?${new URLSearchParams(askedFor(order))}`);
  const submission = useSubmission();
  const data = backups.data.value;
  const isRunning = data?.is_running ?? false;
  useWatch(backups, isRunning || (data?.is_checking ?? false));
  const create = (): void =>
    void submission.run(Date.now(), async (repeatKey) => {
      await call("POST", "backups", { body: {}, repeatKey });
      notify("A backup has begun");
      await backups.load();
    });
  return (
    <Page
      title="Backups"
      lead="Archives of the database and the catalog, in the folder backups of the state."
      actions={
        <button type="button" class="btn primary" data-new onClick={create} disabled={isRunning || submission.busy}>
          <Icon name="archive" small />
          {isRunning ? "Backup under way…" : "Create backup"}
        </button>
      }
    >
      <FormError error={submission.error} />
      <p class="alert">Not in an archive: encryption key, administrator key, config.yaml.</p>
      <Loaded resource={backups}>{(data) => <Archives of={data} order={order} onCreate={create} />}</Loaded>
    </Page>
  );
}

/** Reads the list again while something is under way and the page is seen. */
function useWatch(backups: Resource<Backups>, isUnderWay: boolean): void {
  useEffect(() => {
    if (!isUnderWay) return;
    const timer = setInterval(() => !document.hidden && void backups.load(), WATCH_MS);
    return () => clearInterval(timer);
  }, [isUnderWay, backups]);
}

const NEWEST = { sort: "time", order: "desc" } as const;
const WATCH_MS = 1000;
/** The age from which the last good archive is too old. */
const OLD_MS = 2 * 86_400_000;

const madeAt = ({ manifest }: Backup): number | null => (manifest ? Date.parse(manifest.created_at) : null);
const isGood = ({ fault, checked_at_ms }: Backup): boolean => fault === null && checked_at_ms !== null;

/** How old the last archive that was found whole is. */
export function ageWords(archives: Backup[], now: number): { kind: "ok" | "warn" | "bad"; words: string } {
  const made = archives.filter(isGood).flatMap((archive) => madeAt(archive) ?? []);
  if (made.length === 0) return { kind: "bad", words: "No archive was found whole yet" };
  const last = Math.max(...made);
  return { kind: now - last > OLD_MS ? "warn" : "ok", words: `The last good archive is of ${moment(last, now)}, ${ago(last, now)}` };
}

function Archives({ of, order, onCreate }: { of: Backups; order: Order; onCreate: () => void }) {
  const [deleting, setDeleting] = useState<Backup | null>(null);
  const [failed, setFailed] = useState<{ name: string; message: string } | null>(null);
  const archives = of.data;
  const { kind, words } = ageWords(archives, Date.now());
  return (
    <>
      {of.last_failure && (
        <div class="alert bad" role="alert">
          The last backup failed at {moment(of.last_failure.at_ms)}: {of.last_failure.message}
        </div>
      )}
      {failed && (
        <div class="alert bad" role="alert">
          <span class="mono wrap">{failed.name}</span> could not be verified: {failed.message}
        </div>
      )}
      <Card bare>
        {archives.length === 0 ? (
          <Empty
            icon="archive"
            title="There is no backup yet"
            action={
              <button type="button" class="btn primary" onClick={onCreate} disabled={of.is_running}>
                {of.is_running ? "Backup under way…" : "Create backup"}
              </button>
            }
          >
            An archive restores the gateway on another machine. The last {of.kept} are kept.
          </Empty>
        ) : (
          <Rows
            rows={archives}
            label="Backups"
            rowKey={({ name }) => name}
            order={order}
            usual={NEWEST}
            columns={[
              {
                head: "Archive",
                width: "1fr",
                least: 200,
                cell: ({ name }) => (
                  <span class="mono" title={name}>
                    {name}
                  </span>
                ),
              },
              { head: `Made (${zoneName()})`, width: 184, sort: "time", from: "desc", fold: 4, cell: (archive) => <Made of={archive} /> },
              { head: "Size", width: 88, number: true, sort: "size", fold: 3, cell: ({ bytes: size }) => bytes(size) },
              { head: "Holds", width: 168, fold: 1, cell: ({ manifest }) => manifest && <Holds of={manifest} /> },
              {
                head: "Verified",
                width: 168,
                fold: 2,
                cell: (archive) => <Verified of={archive} isChecking={of.is_checking} />,
              },
              {
                head: "Actions",
                width: 216,
                quiet: true,
                fold: 5,
                cell: (archive) => <Acts of={archive} onDelete={() => setDeleting(archive)} onFailed={setFailed} />,
              },
            ]}
          />
        )}
        <div class="table-foot">
          {archives.length > 0 && <State kind={kind} word={words} />}
          <span>
            {plural(archives.length, "archive")}; the last {of.kept} are kept
          </span>
          <a class="mono" href={`${href("/settings")}#LLMGW_BACKUP_KEEP`}>
            LLMGW_BACKUP_KEEP
          </a>
        </div>
      </Card>
      {deleting && (
        <Delete of={deleting} isLast={archives.filter(isGood).length === 1 && isGood(deleting)} onClose={() => setDeleting(null)} />
      )}
    </>
  );
}

function Made({ of }: { of: Backup }) {
  const at = madeAt(of);
  return (
    <>
      {moment(at)} <span class="faint">{at && ago(at)}</span>
    </>
  );
}

type ActsProps = { of: Backup; onDelete: () => void; onFailed: (failed: { name: string; message: string } | null) => void };

function Acts({ of: { name }, onDelete, onFailed }: ActsProps) {
  const submission = useSubmission();
  const message = submission.error?.message;
  useEffect(() => {
    if (message) onFailed({ name, message });
  }, [message]);
  const verify = (): void => {
    onFailed(null);
    void submission.run(Date.now(), async (repeatKey) => {
      const { data } = await call<CheckedBackup>("POST", `backups/${encodeURIComponent(name)}/verify`, { body: {}, repeatKey });
      notify(data.is_checking ? "Verifying goes on; the list shows the result" : data.fault ? `${name} is damaged` : `${name} is whole`);
      changed("backups");
    });
  };
  return (
    <span class="actions">
      <button type="button" class="btn small" aria-label={`Verify ${name}`} onClick={verify} disabled={submission.busy}>
        {submission.busy ? "Verifying…" : submission.error ? "Verify again" : "Verify"}
      </button>{" "}
      <a
        class="btn small"
        aria-label={`Download ${name}`}
        href={gatewayPath(`/admin/api/backups/${encodeURIComponent(name)}`)}
        download={name}
      >
        Download
      </a>{" "}
      <button type="button" class="btn plain square small" aria-label={`Delete ${name}`} onClick={onDelete}>
        <Icon name="trash-2" small />
      </button>
    </span>
  );
}

function Holds({ of }: { of: NonNullable<Backup["manifest"]> }) {
  const rows = Object.values(of.rows).reduce((sum, rows) => sum + rows, 0);
  return (
    <span title={of.files.map(({ name, bytes: size }) => `${name} ${bytes(size)}`).join(", ")}>
      {plural(rows, "row")} <span class="faint">by version {of.gateway_version}</span>
    </span>
  );
}

/** What a full read of the archive found. */
function Verified({ of, isChecking }: { of: Backup; isChecking: boolean }) {
  if (of.fault) return <State kind="bad" word={of.fault} />;
  if (of.checked_at_ms) return <State kind="ok" word={`whole, ${moment(of.checked_at_ms)}`} />;
  return <State kind="busy" word={isChecking ? "under way" : "not yet"} />;
}

function Delete({ of, isLast, onClose }: { of: Backup; isLast: boolean; onClose: () => void }) {
  const run = async (): Promise<void> => {
    await call("DELETE", `backups/${encodeURIComponent(of.name)}`);
    changed("backups");
    notify(`${of.name} was deleted`);
  };
  return (
    <Confirm title="Delete the archive?" action="Delete" typed={isLast ? of.name : undefined} run={run} onClose={onClose}>
      <p>
        <span class="mono wrap">{of.name}</span>, {bytes(of.bytes)}, made {moment(madeAt(of))}. It cannot be restored afterwards.
      </p>
      {isLast && <p class="alert warn">It is the only archive that was found whole.</p>}
    </Confirm>
  );
}
