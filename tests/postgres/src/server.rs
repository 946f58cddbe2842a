//! A server: its start, its end, and what happens to it in between.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};

use rustix::process::Signal;

use crate::account::Account;
use crate::database::{Database, url};
use crate::folder::Folder;
use crate::options::ServerOptions;
use crate::programs::{self, Programs};
use crate::psql::Psql;
use crate::{port, processes, template, wait};

/// A PostgreSQL on loopback with its own data. It ends when it is dropped, and when the process ends in any way.
#[derive(Debug)]
pub struct PostgresServer {
    // Dropped first, which ends the server's processes.
    pub(crate) folder: Folder,
    first: Mutex<Option<First>>,
    psql: Mutex<Option<Psql>>,
    pub(crate) programs: &'static Programs,
    pub(crate) account: Account,
    pub(crate) options: ServerOptions,
    port: u16,
    paused: AtomicBool,
    databases: AtomicU32,
    pub(crate) standbys: AtomicU32,
}

/// The server's first process, which this one must wait for after its end.
#[derive(Debug)]
struct First(Child);

/// Returns the server that all unit tests of this process use, each with its own database. It has
/// [`ServerOptions::fast`] and ends with the process.
pub fn shared() -> &'static PostgresServer {
    static SHARED: OnceLock<PostgresServer> = OnceLock::new();
    SHARED.get_or_init(|| PostgresServer::start_with(ServerOptions::fast()))
}

impl PostgresServer {
    /// Starts a server with the default options. Panics if PostgreSQL is missing: see [`installed`](crate::installed).
    pub fn start() -> Self {
        Self::start_with(ServerOptions::default())
    }

    /// Starts a server.
    pub fn start_with(options: ServerOptions) -> Self {
        let programs = programs::find().unwrap_or_else(|why| panic!("{why}"));
        let account = Account::current();
        let folder = Folder::new(account);
        template::copy(programs, account, &folder.path().join("data"));
        Self::launch(folder, programs, account, options, "")
    }

    /// Starts a server on the data in the folder. `also` is added to its settings.
    pub(crate) fn launch(
        folder: Folder,
        programs: &'static Programs,
        account: Account,
        options: ServerOptions,
        also: &str,
    ) -> Self {
        let server = Self {
            folder,
            first: Mutex::default(),
            psql: Mutex::default(),
            programs,
            account,
            options,
            port: port::free(),
            paused: AtomicBool::new(false),
            databases: AtomicU32::new(0),
            standbys: AtomicU32::new(0),
        };
        server.configure(also);
        server.run();
        server
    }

    /// Returns the address of the server.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// Returns the URL of the database `llmgw`, with its owner and the password.
    pub fn url(&self) -> String {
        self.url_at(self.address())
    }

    /// Returns the URL of the database `llmgw` at another address, such as that of a proxy.
    pub fn url_at(&self, address: SocketAddr) -> String {
        url(address, template::ROLE, self.options.tls)
    }

    /// Returns the certificate to trust, in PEM, of a server with TLS.
    pub fn ca_file(&self) -> PathBuf {
        assert!(self.options.tls, "the server has no TLS");
        self.folder.path().join("certificate.pem")
    }

    /// Creates an empty database, which is deleted when the value is dropped.
    pub fn create_database(&self) -> Database<'_> {
        self.create_from("template1")
    }

    /// Creates a database with everything that is in the database `template`. Ends the sessions of that one.
    pub(crate) fn create_from(&self, template: &str) -> Database<'_> {
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        // Copying files is faster, but waits until they are on the disk.
        let files = self.programs.major() >= 15 && !self.options.durable;
        let strategy = if files { "STRATEGY file_copy" } else { "" };
        self.query(&format!(
            "CREATE DATABASE {name} OWNER {} TEMPLATE {template} {strategy}",
            template::ROLE
        ));
        Database::new(self, name)
    }

    /// Runs SQL as the superuser in the database `postgres`, and returns the rows.
    pub fn query(&self, sql: &str) -> Vec<Vec<String>> {
        self.try_query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Like [`query`](Self::query), but returns the error of the server or of the connection.
    pub fn try_query(&self, sql: &str) -> Result<Vec<Vec<String>>, String> {
        if self.paused.load(Ordering::SeqCst) {
            return Err("the server is paused".to_owned());
        }
        let mut kept = self.psql.lock().unwrap();
        let result = kept.get_or_insert_with(|| self.psql("postgres")).query(sql);
        if result.is_err() {
            *kept = None;
        }
        result
    }

    /// Returns a `psql` that connects as a gateway does, with the URL of this server, of a database, or of a proxy.
    pub fn client(&self, url: &str) -> Command {
        let mut client = self.programs.command(self.account, "psql");
        client.args(["--no-psqlrc", "--quiet", "--no-align", "--tuples-only", "--dbname", url]);
        client.current_dir(self.folder.path());
        client
    }

    pub(crate) fn psql(&self, database: &str) -> Psql {
        let command = self.programs.command(self.account, "psql");
        Psql::start(command, self.folder.path(), self.port, database)
    }

    /// Stops the server in order: sessions end, everything is on the disk.
    pub fn stop(&self) {
        self.end(|first| {
            processes::send(first, Signal::INT);
            processes::resume(first);
        });
    }

    /// Kills all processes of the server at once. What was committed is there after [`restart`](Self::restart).
    pub fn kill(&self) {
        self.end(processes::kill);
    }

    /// Starts the server again on the same port and data. Stops it first, unless it was stopped or killed.
    pub fn restart(&self) {
        self.stop();
        self.run();
    }

    /// Stops all processes of the server by `SIGSTOP` until [`resume`](Self::resume). Connections stay open.
    pub fn pause(&self) {
        self.paused.store(true, Ordering::SeqCst);
        processes::pause(self.process_id());
    }

    /// Lets the processes continue after [`pause`](Self::pause).
    pub fn resume(&self) {
        processes::resume(self.process_id());
        self.paused.store(false, Ordering::SeqCst);
    }

    /// Returns the ID of the server's first process.
    pub fn process_id(&self) -> u32 {
        self.first.lock().unwrap().as_ref().expect("the server runs").0.id()
    }

    /// Returns the server's log since its first start.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Returns the folder of the data, in which each process of the server works.
    pub fn data_folder(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn end(&self, end: impl FnOnce(u32)) {
        *self.psql.lock().unwrap() = None;
        self.paused.store(false, Ordering::SeqCst);
        if let Some(first) = self.first.lock().unwrap().take() {
            end(first.0.id());
            drop(first);
        }
    }

    /// Writes the settings and the rules for connections.
    fn configure(&self, also: &str) {
        let folder = self.folder.path();
        let mut text = format!(
            "listen_addresses = '127.0.0.1'\nport = {}\nunix_socket_directories = '{}'\n{COMMON}",
            self.port,
            folder.display()
        );
        if self.options.tls {
            self.create_certificate();
            for (setting, file) in [("ssl_cert_file", "certificate.pem"), ("ssl_key_file", "key.pem")] {
                writeln!(text, "{setting} = '{}'", folder.join(file).display()).unwrap();
            }
            text.push_str("ssl = on\n");
        }
        for (name, value) in &self.options.settings {
            writeln!(text, "{name} = '{}'", value.replace('\'', "''")).unwrap();
        }
        text.push_str(also);
        self.write(&self.data_folder().join("postgresql.conf"), &text);

        let tcp = if self.options.tls { "hostssl" } else { "host" };
        let rules = format!(
            "local all {0} trust\nlocal replication {0} trust\n\
             {tcp} all {1} 127.0.0.1/32 scram-sha-256\n{tcp} replication {2} 127.0.0.1/32 scram-sha-256\n",
            template::SUPERUSER,
            template::ROLE,
            template::STANDBY_ROLE
        );
        self.write(&self.data_folder().join("pg_hba.conf"), &rules);
    }

    fn create_certificate(&self) {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        self.write(&self.folder.path().join("certificate.pem"), &made.cert.pem());
        let key = self.folder.path().join("key.pem");
        self.write(&key, &made.signing_key.serialize_pem());
        fs::set_permissions(key, fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// Writes a file that belongs to the account of the server.
    pub(crate) fn write(&self, path: &Path, text: &str) {
        fs::write(path, text).unwrap();
        self.account.own(path);
    }

    /// Starts the first process and waits until it accepts connections.
    fn run(&self) {
        let data = self.data_folder();
        let log = File::options().append(true).create(true).open(self.folder.path().join("log")).unwrap();
        // A killed server leaves its state there.
        let state = data.join("postmaster.pid");
        let before = fs::read_to_string(&state).unwrap_or_default();
        let mut command = self.programs.command(self.account, "postgres");
        command.arg("-D").arg(&data).current_dir(&data).stdout(log.try_clone().unwrap()).stderr(log);
        let mut child = command.spawn().unwrap();
        wait::until("PostgreSQL starts", || {
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none(), "PostgreSQL did not start: {}", self.log());
            let text = fs::read_to_string(&state).unwrap_or_default();
            // The eighth line says how far the start is.
            let ready = text.lines().nth(7).is_some_and(|line| line.trim() == "ready");
            (ready && text != before).then_some(())
        });
        *self.first.lock().unwrap() = Some(First(child));
    }
}

impl Drop for First {
    fn drop(&mut self) {
        let _ = self.0.wait();
    }
}

/// What all servers have. Shared memory is in the folder, so that nothing of it remains after a kill.
const COMMON: &str = "\
dynamic_shared_memory_type = mmap
jit = off
log_line_prefix = '%m [%p] %a '
max_wal_senders = 10
shared_buffers = 32MB
timezone = 'GMT'
log_timezone = 'GMT'
wal_level = replica
";
