//! The shipped gateway and plain connections to it, for benches without a rig.
#![allow(dead_code, reason = "each bench uses its part")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

#[path = "process.rs"]
pub(crate) mod process;

pub(crate) const ADMIN: &str = "bench-administrator-key-0123456789";
/// 32 bytes of text.
pub(crate) const ENCRYPTION_KEY: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
const CONFIG: &str = "providers:
  lab: {type: echo, models: [{id: echo, prices: {input: 1, output: 2}}]}
";

/// The gateway's process, which ends with the bench.
pub(crate) struct Gateway {
    pub(crate) child: Child,
    pub(crate) address: String,
}

impl Gateway {
    /// Starts the gateway on the state in `folder`, with additional variables.
    pub(crate) fn start(folder: &Path, variables: &[(&str, &str)]) -> Self {
        let config = folder.join("config.yaml");
        std::fs::write(&config, CONFIG).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_llmgw"))
            .arg("serve")
            .env_clear()
            .env("HOME", folder)
            .env("LLMGW_API_KEY", ADMIN)
            .env("LLMGW_CREDENTIAL_ENCRYPTION_KEY", ENCRYPTION_KEY)
            .env("LLMGW_PORT", "0")
            .env("LLMGW_STATE_DIR", folder.join("state"))
            .env("LLMGW_CONFIG", config)
            .env("LLMGW_LOG", "info")
            .env("LLMGW_DRAIN_DELAY_SECONDS", "0")
            .envs(variables.iter().copied())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = log
            .find_map(|line| Some(line.unwrap().split_once("listening on http://")?.1.trim().to_owned()))
            .unwrap();
        thread::spawn(move || log.for_each(drop));
        Self { child, address }
    }

    pub(crate) fn line(&self) -> Line {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Line(BufReader::new(stream))
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        process::terminate(&mut self.child);
    }
}

/// One connection to the gateway.
pub(crate) struct Line(pub(crate) BufReader<TcpStream>);

impl Line {
    /// Sends an administrator's request, which must succeed.
    pub(crate) fn admin(&mut self, method: &str, path: &str, body: &Value) -> Value {
        let path = format!("/admin/api/{path}");
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let (status, answer) = self.exchange(method, &path, ADMIN, &body);
        let answer = serde_json::from_slice(&answer).unwrap();
        assert!(matches!(status, 200 | 201), "{method} {path}: {answer}");
        answer
    }

    /// Returns the status of a request for the list of models.
    pub(crate) fn models(&mut self, key: &str) -> u16 {
        self.exchange("GET", "/v1/models", key, "").0
    }

    pub(crate) fn exchange(&mut self, method: &str, path: &str, key: &str, body: &str) -> (u16, Vec<u8>) {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: bench\r\nx-api-key: {key}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.0.get_mut().write_all(request.as_bytes()).unwrap();
        let (mut line, mut status, mut length) = (String::new(), 0, 0);
        while line != "\r\n" {
            line.clear();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the gateway closed the connection");
            if status == 0 {
                status = line.split(' ').nth(1).unwrap().parse().unwrap();
            } else if let Some((name, value)) = line.split_once(": ")
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().unwrap();
            }
        }
        let mut answer = vec![0; length];
        self.0.read_exact(&mut answer).unwrap();
        (status, answer)
    }
}
