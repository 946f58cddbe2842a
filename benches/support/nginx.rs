//! nginx, configured as usual for streams: one worker, unbuffered answers, kept-alive upstream connections, no access
//! log. Request buffering keeps its default: each request is read completely, through a file if it is large, before it
//! is forwarded. Without buffering, a request of 1 MB costs nginx about as much as it costs the floor.

use std::path::Path;

/// Returns the path of nginx, if it is installed.
pub(crate) fn path() -> Option<&'static Path> {
    ["/usr/sbin/nginx", "/usr/bin/nginx", "/usr/local/sbin/nginx"]
        .map(Path::new)
        .into_iter()
        .find(|p| p.exists())
}

/// Returns the configuration file for a server on `port` in `folder`.
pub(crate) fn configuration(folder: &Path, port: u16, upstream_port: u16) -> String {
    let folder = folder.display();
    format!(
        "daemon off;
worker_processes 1;
worker_rlimit_nofile 20000;
pid {folder}/nginx.pid;
error_log {folder}/error.log error;
events {{ worker_connections 15000; multi_accept on; }}
http {{
    access_log off;
    tcp_nodelay on;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    keepalive_timeout 600s;
    keepalive_requests 1000000000;
    client_max_body_size 64m;
    upstream scripted {{
        server 127.0.0.1:{upstream_port};
        keepalive 4096;
        keepalive_requests 1000000000;
    }}
    server {{
        listen 127.0.0.1:{port} backlog=8192;
        location / {{
            proxy_pass http://scripted;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
            proxy_buffering off;
            proxy_read_timeout 600s;
        }}
    }}
}}
"
    )
}
