// The archives of the gateway's state.
import { useEffect } from "preact/hooks";
import { call } from "../api/client";
import { useResource } from "../api/resource";
import type { Backups } from "../api/types";
import { Empty, Loaded, notify } from "../part/feedback";
import { FormError, useSubmission } from "../part/form";
import { ago, bytes, moment, plural, zoneName } from "../part/format";
import { Icon, State } from "../part/icon";
import { Card, Page } from "../part/page";

export function BackupsPage() {
  const backups = useResource<Backups>("backups");
  const submission = useSubmission();
  const isRunning = backups.data.value?.is_running ?? false;
  useEffect(() => {
    if (!isRunning) return;
    const timer = setInterval(() => !document.hidden && void backups.load(), WATCH_MS);
    return () => clearInterval(timer);
  }, [isRunning, backups]);
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
      <Loaded resource={backups}>{(data) => <Archives of={data} />}</Loaded>
    </Page>
  );
}

const WATCH_MS = 1000;

function Archives({ of }: { of: Backups }) {
  const newest = [...of.data].sort((a, b) => b.name.localeCompare(a.name));
  return (
    <>
      {of.last_failure && (
        <div class="alert bad" role="alert">
          The last backup failed at {moment(of.last_failure.at_ms)}: {of.last_failure.message}
        </div>
      )}
      <Card bare>
        {newest.length === 0 ? (
          <Empty icon="archive" title="There is no backup yet">
            The last {of.kept} are kept.
          </Empty>
        ) : (
          <div class="table-wrap" role="group" aria-label="Backups" tabIndex={0}>
            <table class="table">
              <thead>
                <tr>
                  <th scope="col">Archive</th>
                  <th scope="col">Made ({zoneName()})</th>
                  <th scope="col" class="num">
                    Size
                  </th>
                  <th scope="col">Version</th>
                  <th scope="col">Checked</th>
                </tr>
              </thead>
              <tbody>
                {newest.map(({ name, bytes: size, manifest, fault, checked_at_ms }) => {
                  const at = manifest ? Date.parse(manifest.created_at) : null;
                  return (
                    <tr key={name}>
                      <td class="mono">{name}</td>
                      <td>
                        {moment(at)} <span class="faint">{at && ago(at)}</span>
                      </td>
                      <td class="num">{bytes(size)}</td>
                      <td>{manifest?.gateway_version}</td>
                      <td>
                        {fault ? (
                          <State kind="bad" word={fault} />
                        ) : checked_at_ms ? (
                          <State kind="ok" word="whole" />
                        ) : (
                          <State kind="busy" word="not yet" />
                        )}
                      </td>
                    </tr>
                  );
                })}
              </tbody>
            </table>
          </div>
        )}
        <div class="table-foot">
          {plural(newest.length, "archive")}; the last {of.kept} are kept
        </div>
      </Card>
    </>
  );
}
