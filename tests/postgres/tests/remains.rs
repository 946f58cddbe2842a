//! Nothing remains of a server after the process that started it, however that ends.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use postgres_server::{PostgresServer, ServerOptions, installed, shared};

/// The other process: starts the servers, prints what must not remain, and ends as its standard input says.
#[test]
#[ignore = "a part of the other test"]
#[expect(clippy::zombie_processes, reason = "the process ends before its child")]
fn starts_servers() {
    let server = PostgresServer::start_with(ServerOptions::fast());
    let database = server.create_database();
    let mut client = server.client(&database.url());
    let _busy = client.args(["-c", "SELECT pg_sleep(600)"]).spawn().unwrap();
    let busy =
        "SELECT pid FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)' AND pid != pg_backend_pid()";
    while server.query(busy).is_empty() {}
    // Stopped processes end too.
    server.pause();
    for server in [&server, shared()] {
        println!("\nremains {}", server.data_folder().display());
    }
    let mut how = String::new();
    std::io::stdin().read_line(&mut how).unwrap();
    match how.trim() {
        "panic" => panic!("as demanded"),
        "exit" => std::process::exit(0),
        how => assert_eq!(how, "return"),
    }
}

#[test]
fn nothing_remains_of_the_servers_of_a_process() {
    if !installed() {
        return;
    }
    for how in ["panic", "exit", "return", "kill"] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "remains::starts_servers", "--include-ignored", "--nocapture"]);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = piped.spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines().map_while(Result::ok);
        let folders: Vec<_> =
            lines.filter_map(|line| line.strip_prefix("remains ").map(ToOwned::to_owned)).take(2).collect();
        let segments: Vec<_> = folders.iter().map(|folder| segment(folder)).collect();
        assert!(folders.iter().all(|folder| !processes(folder).is_empty()), "{how}: the servers run");
        if how == "kill" {
            process.kill().unwrap();
        }
        let input = process.stdin.take().unwrap();
        let _ = std::io::Write::write_all(&mut &input, format!("{how}\n").as_bytes());
        process.wait().unwrap();
        for (folder, segment) in folders.iter().zip(segments) {
            let began = Instant::now();
            let remains = || !processes(folder).is_empty() || Path::new(folder).exists() || present(&segment);
            while remains() {
                assert!(began.elapsed() < Duration::from_secs(20), "{how}: {folder} remains");
            }
        }
    }
}

/// Returns the processes whose working directory is the folder; each process of a server is there.
fn processes(folder: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let there = entries
        .filter(|entry| fs::read_link(entry.path().join("cwd")).is_ok_and(|place| place.starts_with(folder)));
    there.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

/// Returns the ID of the segment of shared memory of a server.
fn segment(folder: &str) -> String {
    let state = fs::read_to_string(Path::new(folder).join("postmaster.pid")).unwrap();
    state.lines().nth(6).unwrap().split_whitespace().last().unwrap().to_owned()
}

fn present(segment: &str) -> bool {
    let segments = fs::read_to_string("/proc/sysvipc/shm").unwrap();
    segments.lines().any(|line| line.split_whitespace().nth(1) == Some(segment))
}
