//! Standbys: servers that follow another one by streaming replication, and their promotion.

use std::fs::File;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use crate::folder::Folder;
use crate::server::PostgresServer;
use crate::template::STANDBY_ROLE;
use crate::wait;

/// Whether a commit waits for the standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replication {
    /// A commit is acknowledged when the primary has it: a promotion can lose it.
    Asynchronous,
    /// A commit is acknowledged when the standby has it too. Without the standby, commits wait.
    Synchronous,
}

impl PostgresServer {
    /// Starts a server that follows this one, and waits until it does. This server must not have
    /// [`ServerOptions::fast`](crate::ServerOptions::fast).
    pub fn standby(&self, replication: Replication) -> Self {
        self.standby_through(self.address(), replication)
    }

    /// Like [`standby`](Self::standby), but the standby reaches this server at another address, such as that of a
    /// proxy.
    pub fn standby_through(&self, primary: SocketAddr, replication: Replication) -> Self {
        assert!(self.options.durable, "a server with fast options has no standby");
        let folder = Folder::new(self.account);
        let data = folder.path().join("data");
        let mut backup = self.programs.command(self.account, "pg_basebackup");
        backup.args(["--checkpoint=fast", "--no-sync", "--wal-method=stream", "--username=postgres"]);
        backup.arg(format!("--host={}", self.folder.path().display()));
        backup.arg(format!("--port={}", self.address().port())).arg("--pgdata").arg(&data);
        let output = backup.current_dir(folder.path()).output().unwrap();
        assert!(output.status.success(), "pg_basebackup: {}", String::from_utf8_lossy(&output.stderr));

        // What was set in the primary by SQL does not hold here.
        for file in ["postgresql.auto.conf", "standby.signal"] {
            File::create(data.join(file)).unwrap();
            self.account.own(&data.join(file));
        }
        let name = format!("standby_{}", self.standbys.fetch_add(1, Ordering::Relaxed));
        let (host, port) = (primary.ip(), primary.port());
        let follow = format!(
            "primary_conninfo = 'host={host} port={port} user={STANDBY_ROLE} password={STANDBY_ROLE} \
             application_name={name}'\nwal_retrieve_retry_interval = 100ms\n"
        );
        let standby = Self::launch(folder, self.programs, self.account, self.options.clone(), &follow);
        self.wait_for_state(&name, "streaming");
        if replication == Replication::Synchronous {
            self.query(&format!("ALTER SYSTEM SET synchronous_standby_names = '{name}'"));
            self.query("SELECT pg_reload_conf()");
            self.wait_for_state(&name, "sync");
        }
        standby
    }

    /// Makes a standby a primary, and waits until it accepts changes.
    pub fn promote(&self) {
        assert_eq!(self.query("SELECT pg_promote()"), [["t"]], "{}", self.log());
    }

    /// Waits until this standby has everything that `primary` has committed.
    pub fn catch_up_with(&self, primary: &Self) {
        let place = primary.query("SELECT pg_current_wal_lsn()")[0][0].clone();
        let sql = format!("SELECT pg_last_wal_replay_lsn() >= '{place}'");
        wait::until("the standby has everything", || (self.query(&sql) == [["t"]]).then_some(()));
    }

    fn wait_for_state(&self, name: &str, state: &str) {
        let sql =
            format!("SELECT state, sync_state FROM pg_stat_replication WHERE application_name = '{name}'");
        wait::until("the standby follows", || {
            self.query(&sql).iter().flatten().any(|value| value == state).then_some(())
        });
    }
}
